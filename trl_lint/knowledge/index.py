"""A package and a release in, its wheel or its metadata out, asked of the package index through pip."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

TIMEOUT_SECONDS: Final = 600


class HarvestError(Exception):
    """Something that a person has to know, in one line."""


def wheel(package: str, version: str, folders: Sequence[Path], keep: Path) -> Path:
    """The wheel of a release: one that lies in `folders`, else one downloaded into `keep`."""
    stem = f"{package.replace('-', '_')}-{version}-"
    for folder in [*folders, keep]:
        found = sorted(path for path in folder.glob("*.whl") if path.name.startswith(stem))
        if found:
            return found[0]
    options = ["--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "-d", str(keep)]
    _pip(package, version, "download", *options, f"{package}=={version}")
    found = sorted(path for path in keep.glob("*.whl") if path.name.startswith(stem))
    if not found:
        raise HarvestError(f"{package} {version}: pip downloaded no wheel of that name")
    return found[0]


def metadata(package: str, version: str, folders: Sequence[Path], keep: Path) -> dict[str, Any]:
    """The core metadata of a release as pip's report gives it; no wheel is downloaded where the index offers it."""
    name = f"{package}-{version}.json"
    path = next((folder / name for folder in [*folders, keep] if (folder / name).is_file()), None)
    if path is None:
        path = keep / name
        with tempfile.NamedTemporaryFile(suffix=".json", dir=keep) as report:
            options = ["--dry-run", "--no-deps", "--ignore-installed", "--ignore-requires-python"]
            _pip(package, version, "install", *options, "--report", report.name, f"{package}=={version}")
            path.write_bytes(Path(report.name).read_bytes())
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["install"][0]["metadata"]
    return found


def versions(package: str) -> list[str]:
    """Every release on the index, the newest first."""
    output = _pip(package, None, "index", "versions", package)
    found = re.search(r"^Available versions: (.*)$", output, re.MULTILINE)
    if found is None:
        raise HarvestError(f"the package index lists no releases of {package}")
    return [version.strip() for version in found[1].split(",")]


def _pip(package: str, version: str | None, command: str, *arguments: str) -> str:
    what = f"{package} {version}" if version else package
    call = [sys.executable, "-m", "pip", command, "--disable-pip-version-check", "--no-input", "--quiet"]
    if command == "index":
        call.remove("--quiet")
    try:
        done = subprocess.run([*call, *arguments], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise HarvestError(f"{what}: the package index did not answer within {TIMEOUT_SECONDS} s") from None
    if done.returncode == 0:
        return done.stdout
    if "No module named pip" in done.stderr:
        raise HarvestError(f"{what}: this Python has no pip ({sys.executable})")
    if re.search(r"from versions: .*\d", done.stderr) and version:
        raise HarvestError(f"{package} has no release {version} on the package index")
    if re.search(r"Connection|Retrying|timed out|from versions: none|No matching distribution", done.stderr):
        raise HarvestError(f"{what}: the package index cannot be reached, or has no such package")
    errors = [
        line for line in done.stderr.splitlines() if "ERROR" in line or "rror:" in line
    ] or done.stderr.splitlines()
    raise HarvestError(f"{what}: the package index cannot be read ({errors[0].strip() if errors else 'pip failed'})")
