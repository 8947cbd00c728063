"""A fork is to a script what a Python of its own is, but for what has been imported before."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import nursery

HEAVY = "import time\ntime.sleep(0.3)\nprint('imported', flush=True)\n"


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A script whose neighbour imports something heavy, which lies elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "heavy.py").write_text(HEAVY)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "neighbour.py").write_text("import heavy\nprint('neighbour', flush=True)\n")
    (tmp_path / "own" / "script.py").write_text(
        "import os, sys\nimport neighbour\nprint(sys.argv, os.getcwd(), os.environ['NAME'], __name__)\nsys.exit(int(sys.argv[1]))\n"
    )
    return tmp_path


def _known(scripts: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(scripts / "elsewhere"), "NAME": "nursery"}


def test_a_script_runs_in_its_own_folder_with_its_own_words(scripts: Path) -> None:
    own, known = scripts / "own", _known(scripts)
    with nursery.started((sys.executable,), [own / "script.py"], known) as words:
        for code in (0, 3):
            ran = subprocess.run(
                [*words, "script.py", str(code), "-x"], cwd=own, env={**known, "NAME": f"fork {code}"}, capture_output=True, text=True
            )  # fmt: skip
            assert ran.returncode == code, ran.stderr
            assert ran.stdout == f"neighbour\n['script.py', '{code}', '-x'] {own} fork {code} __main__\n"


def test_the_fork_ends_with_who_asked_for_it(scripts: Path) -> None:
    own, known = scripts / "own", _known(scripts)
    (own / "waits.py").write_text(
        "import os, time\nopen('pid', 'w').write(f'{os.getpid()}')\nos.rename('pid', 'there')\ntime.sleep(600)\n"
    )
    with nursery.started((sys.executable,), [own / "script.py"], known) as words:
        asking = subprocess.Popen([*words, "waits.py"], cwd=own, env=known)
        while not (own / "there").exists():
            assert asking.poll() is None
            time.sleep(0.01)
        number = int((own / "there").read_text())
        asking.kill()
        asking.wait()
        while Path(f"/proc/{number}").exists():
            time.sleep(0.01)


def test_what_cannot_be_imported_is_said(scripts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (scripts / "own" / "neighbour.py").write_text("import nowhere_to_be_found\n")
    with (
        pytest.raises(RuntimeError, match="cannot fork"),
        nursery.started((sys.executable,), [scripts / "own" / "script.py"], _known(scripts)),
    ):
        pass
    assert "nowhere_to_be_found" in capfd.readouterr().err
