"""The command line as a person meets it: words in, text and an exit code out, files changed or not."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ..helpers import ROOT

BAD = 'from trl import SFTConfig\n\nargs = SFTConfig(output_dir="out", max_seq_length=512)\n'
GOOD = 'from trl import SFTConfig\n\nargs = SFTConfig(output_dir="out", max_length=512)\n'
# Reading the rulebook's pages takes longer than most tests: kept for all of them.
CACHE = tempfile.TemporaryDirectory(prefix="trl-lint-tests-")


def trl_lint(*words: str, cwd: Path, stdin: bytes | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TRL_LINT_CACHE_DIR": CACHE.name,
        "NO_COLOR": "1",
        **env,
    }
    done = subprocess.run(
        [sys.executable, "-m", "trl_lint", *words],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        env=environment,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "requirements.txt").write_text("trl==1.9.2\n", "utf-8")
    (tmp_path / "train.py").write_text(BAD, "utf-8")
    return tmp_path


def test_findings_fail(project: Path) -> None:
    done = trl_lint(cwd=project)
    assert done.returncode == 1
    assert "error[unknown-config-field]" in done.stdout
    assert "train.py:3:" in done.stdout
    assert "judged by trl 1.9.2 (requirements.txt:1)" in done.stdout


def test_fix_rewrites_and_exits_zero(project: Path) -> None:
    done = trl_lint("--fix", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "train.py").read_text("utf-8") == GOOD
    assert "Fixed 1 (1 file)" in done.stdout
    again = trl_lint("--fix", cwd=project)
    assert "Fixed" not in again.stdout.replace("Nothing to fix.", "")


def test_diff_is_what_fix_would_write_and_writes_nothing(project: Path) -> None:
    done = trl_lint("--diff", cwd=project)
    assert done.returncode == 1
    assert (project / "train.py").read_text("utf-8") == BAD
    patch = subprocess.run(
        ["git", "apply", "--unsafe-paths", "-p1", "--directory", "."],
        cwd=project,
        input=done.stdout,
        text=True,
        capture_output=True,
        check=False,
    )
    assert patch.returncode == 0, patch.stderr
    assert (project / "train.py").read_text("utf-8") == GOOD


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 1),
        (["--exit-zero"], 0),
        (["--fail-on", "error"], 1),
        (["--fix"], 0),
        (["--fix", "--exit-non-zero-on-fix"], 1),
        (["--ignore", "unknown-config-field"], 0),
        (["--ignore", "api"], 0),
        (["--select", "vllm"], 0),
        (["--trl", "0.17.0"], 0),
        (["nowhere.py"], 2),
        (["--select", "unknown-config-feild"], 2),
        (["--no-such-option"], 2),
        (["--gpu", "a1000000"], 2),
        (["--trl", "not-a-version"], 2),
        (["--version"], 0),
        (["rules"], 0),
        (["explain", "unknown-config-field"], 0),
        (["explain", "unknown-config-feild"], 2),
        (["facts"], 0),
        (["--show-settings"], 0),
    ],
)
def test_exit_codes(project: Path, words: list[str], code: int) -> None:
    done = trl_lint(*words, cwd=project)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_rule_name_suggests_the_nearest(project: Path) -> None:
    done = trl_lint("--select", "unknown-config-feild", cwd=project)
    assert (
        done.stderr.strip()
        == "trl-lint: there is no rule or group 'unknown-config-feild'; did you mean 'unknown-config-field'?"
    )


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_json_is_the_same_however_it_is_run(project: Path, jobs: str) -> None:
    for index in range(30):
        (project / f"train_{index}.py").write_text(BAD, "utf-8")
    one = trl_lint("--output-format", "json", "--no-cache", "-j", "1", cwd=project)
    other = trl_lint("--output-format", "json", "-j", jobs, cwd=project)
    cached = trl_lint("--output-format", "json", "-j", jobs, cwd=project)
    assert one.stdout == other.stdout == cached.stdout
    data = json.loads(one.stdout)
    assert data["version"] == 1
    assert len(data["findings"]) == 31
    assert data["findings"][0]["fix"]["edits"] == [{"path": "train.py", "start": 66, "end": 70, "text": ""}]


@pytest.mark.parametrize("format", ["concise", "github", "sarif", "json", "terminal"])
def test_every_format_prints(project: Path, format: str) -> None:
    done = trl_lint("--output-format", format, "--output-file", "report", cwd=project)
    assert done.returncode == 1
    assert "unknown-config-field" in (project / "report").read_text("utf-8")


def test_stdin(project: Path) -> None:
    done = trl_lint("--fix", "--stdin-filename", "train.py", "-", cwd=project, stdin=BAD.encode())
    assert done.stdout == GOOD
    assert (project / "train.py").read_text("utf-8") == BAD


def test_settings_of_the_project(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.trl-lint]\nignore = ["unknown-config-field"]\n', "utf-8")
    assert trl_lint(cwd=project).returncode == 0
    (project / "pyproject.toml").write_text("[tool.trl-lint]\nselct = []\n", "utf-8")
    done = trl_lint(cwd=project)
    assert done.returncode == 2
    assert "pyproject.toml:2: unknown key 'selct'" in done.stderr


def test_ignore_comments(project: Path) -> None:
    (project / "train.py").write_text(
        BAD.replace("512)", "512)  # trl-lint: ignore[unknown-config-field] pinned elsewhere"), "utf-8"
    )
    assert trl_lint(cwd=project).returncode == 0
    assert trl_lint("--no-ignores", cwd=project).returncode == 1
    (project / "train.py").write_text("# trl-lint: ignore-file[api]\n" + BAD, "utf-8")
    assert trl_lint(cwd=project).returncode == 0
    (project / "train.py").write_text(BAD.replace("args =", "# trl-lint: ignore[api] known\nargs ="), "utf-8")
    assert trl_lint(cwd=project).returncode == 0
    (project / "train.py").write_text(BAD.replace("512)", "512)  # trl-lint: ignore"), "utf-8")
    done = trl_lint(cwd=project)
    assert done.returncode == 1
    assert "note[bare-ignore]" in done.stdout


def test_ignored_files_of_git_are_not_read(project: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / ".gitignore").write_text("train.py\n", "utf-8")
    assert trl_lint(cwd=project).returncode == 0
    assert trl_lint("train.py", cwd=project).returncode == 1


def test_an_ignored_folder_that_is_named_is_read(project: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / ".gitignore").write_text("demo/\n", "utf-8")
    (project / "demo").mkdir()
    (project / "demo" / "train.py").write_text(BAD, "utf-8")
    assert trl_lint("demo", cwd=project).returncode == 1
    assert "demo" not in trl_lint(cwd=project).stdout


def test_mode_and_links_survive_a_fix(project: Path) -> None:
    (project / "train.py").chmod(0o755)
    (project / "link.py").symlink_to("train.py")
    assert trl_lint("--fix", "link.py", cwd=project).returncode == 0
    assert (project / "link.py").is_symlink()
    assert stat.S_IMODE((project / "train.py").stat().st_mode) == 0o755
    assert (project / "train.py").read_text("utf-8") == GOOD


# Bad input ---------------------------------------------------------------------------------------------------------------

BROKEN = {
    "syntax error": b"from trl import SFTConfig\nSFTConfig(\n",
    "not utf-8": b"from trl import SFTConfig  # \xff\xfe\n",
    "wrong cookie": b"# -*- coding: nonsense -*-\nfrom trl import SFTConfig\n",
    "nested brackets": b"from trl import SFTConfig\nx = " + b"[" * 3000 + b"]" * 3000 + b"\n",
    "long sum": b"from trl import SFTConfig\nx = " + b"+".join([b"a"] * 30000) + b"\n",
    "ten megabytes": b"from trl import SFTConfig\n" + b"# padding\n" * 1_000_000,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_a_counted_skip_and_the_rest_goes_on(project: Path, name: str) -> None:
    (project / "broken.py").write_bytes(BROKEN[name])
    done = trl_lint(cwd=project)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "skipped broken.py: " in done.stdout
    assert "error[unknown-config-field]" in done.stdout
    assert trl_lint("--fail-on-skip", cwd=project).returncode == 2


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf", b"# trl\n", b"import trl\n", b"trl\x00"])
def test_odd_but_harmless_files(project: Path, data: bytes) -> None:
    (project / "odd.py").write_bytes(data)
    done = trl_lint("odd.py", cwd=project)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_a_cookie_is_honoured(project: Path) -> None:
    text = '# -*- coding: latin-1 -*-\nname = "é"\n' + BAD
    (project / "train.py").write_bytes(text.encode("latin-1"))
    assert trl_lint("--fix", cwd=project).returncode == 0
    assert (project / "train.py").read_bytes() == text.replace("max_seq_length", "max_length").encode("latin-1")


def test_edits_of_a_file_in_another_encoding_are_text(project: Path) -> None:
    text = "# -*- coding: latin-1 -*-\n" + BAD.replace('"out"', '"é"').replace(
        "max_seq_length=512", 'max_seq_length=len("é")'
    )
    (project / "train.py").write_bytes(text.encode("latin-1"))
    done = trl_lint("--output-format", "json", cwd=project)
    (edit,) = json.loads(done.stdout)["findings"][0]["fix"]["edits"]
    data = text.encode("latin-1")
    assert data[: edit["start"]] + edit["text"].encode("latin-1") + data[edit["end"] :] == data.replace(
        b"max_seq_length", b"max_length"
    )


def test_unreadable_files_and_folders(project: Path) -> None:
    if os.geteuid() == 0:
        os.symlink("nowhere", project / "dangling.py")
    else:
        (project / "closed.py").write_text(BAD, "utf-8")
        (project / "closed.py").chmod(0)
    (project / "loop").symlink_to(".")
    done = trl_lint(cwd=project)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_file_changed_meanwhile_is_not_overwritten(project: Path) -> None:
    from trl_lint.fixing.writing import NotWritten, replace_file

    with pytest.raises(NotWritten, match="changed while it was being read"):
        replace_file(str(project / "train.py"), b"something else", b"new")
    assert (project / "train.py").read_text("utf-8") == BAD
    assert [p.name for p in project.iterdir() if p.name.startswith(".trl-lint")] == []


# What a run may import -----------------------------------------------------------------------------------------------------


def imported(*words: str, cwd: Path) -> set[str]:
    """The modules that a run imports, as the interpreter itself reports them."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRL_LINT_CACHE_DIR": str(cwd / ".cache-of-tests")}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "trl_lint", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_a_run_without_a_site_imports_nothing_heavy(project: Path) -> None:
    (project / "train.py").write_text("print('no training here')\n", "utf-8")
    found = imported(cwd=project)
    assert not found & {
        "libcst",
        "rich",
        "rich.console",
        "yaml",
        "packaging",
        "packaging.version",
        "click",
        "dataclasses",
        "trl_lint.model",
        "tomllib",
    }


def test_a_second_run_needs_no_libcst(project: Path) -> None:
    assert "libcst" in imported("--output-format", "concise", cwd=project)
    assert "libcst" not in imported("--output-format", "concise", cwd=project)


def test_linting_imports_no_training_stack_and_opens_no_socket(project: Path) -> None:
    poison = project / "poison"
    poison.mkdir()
    for name in ("torch", "trl", "transformers", "vllm", "liger_kernel", "kernels", "peft"):
        (poison / f"{name}.py").write_text("raise SystemExit('a linter must not import this')\n", "utf-8")
    (poison / "sitecustomize.py").write_text(
        "import socket\ndef no(*a, **k):\n    raise SystemExit('a linter must not open a socket')\nsocket.socket.connect = no\nsocket.create_connection = no\n",
        "utf-8",
    )
    done = trl_lint("train.py", cwd=project, PYTHONPATH=f"{poison}{os.pathsep}{ROOT}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "error[unknown-config-field]" in done.stdout
