"""`[tool.trl-lint]`: where it is looked for, what it may hold, and how a mistake is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trl_lint.settings import Settings, SettingsError, describe, load

FULL = """[project]
name = "mine"
dependencies = ["trl"]

[tool.trl-lint]
select = ["vllm", "liger"]
ignore = ["online-without-vllm"]
exclude = ["third_party/**"]
fail-on = "error"
possible = true
trl = "1.9.2"
liger-kernel = ">=0.5"
gpu = "a100:8"
python = ".venv/bin/python"
"""


def write(folder: Path, text: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return str(folder / "train.py")


def test_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(write(tmp_path, FULL))
    lines = {"select": 6, "ignore": 7, "exclude": 8, "fail-on": 9, "possible": 10}
    lines |= {"trl": 11, "liger-kernel": 12, "gpu": 13, "python": 14}
    assert settings == Settings(
        folder=str(tmp_path),
        select=("vllm", "liger"),
        ignore=("online-without-vllm",),
        exclude=("third_party/**",),
        fail_on="error",
        possible=True,
        packages={"trl": "1.9.2", "liger-kernel": ">=0.5"},
        gpu="a100:8",
        python=os.path.join(tmp_path, ".venv/bin/python"),
        origins={key: f"pyproject.toml:{line}" for key, line in lines.items()},
    )


def test_describe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = describe(load(write(tmp_path, '[tool.trl-lint]\nselect = ["vllm"]\ntrl = "1.9.2"\n')))
    assert lines[0] == "select = ['vllm'] (from pyproject.toml:2)"
    assert "trl = '1.9.2' (from pyproject.toml:3)" in lines
    assert "fail-on = not set (from the default)" in lines
    assert len(lines) == 16


MISTAKES = [
    (
        '[tool.trl-lint]\nselct = ["a"]\n',
        "pyproject.toml:2: unknown key 'selct' in [tool.trl-lint]; did you mean 'select'?",
    ),
    (
        '[tool.trl-lint]\nfail_on = "error"\n',
        "pyproject.toml:2: unknown key 'fail_on' in [tool.trl-lint]; did you mean 'fail-on'?",
    ),
    ("[tool.trl-lint]\nzzz = 1\n", "pyproject.toml:2: unknown key 'zzz' in [tool.trl-lint]"),
    (
        "[tool.trl-lint.selct]\nx = 1\n",
        "pyproject.toml:1: unknown key 'selct' in [tool.trl-lint]; did you mean 'select'?",
    ),
    ('[tool.trl-lint]\n\nselect = "a"\n', "pyproject.toml:3: select must be a list of strings, not 'a'"),
    ("[tool.trl-lint]\nignore = [1]\n", "pyproject.toml:2: ignore must be a list of strings, not [1]"),
    ("[tool.trl-lint]\ntrl = 1.9\n", "pyproject.toml:2: trl must be a string, not 1.9"),
    ('[tool.trl-lint]\npossible = "yes"\n', "pyproject.toml:2: possible must be true or false, not 'yes'"),
    (
        '[tool.trl-lint]\nfail-on = "never"\n',
        "pyproject.toml:2: fail-on must be one of error, warning, note, not 'never'",
    ),
    (
        '[tool.trl-lint]\nseverity = { "vllm" = "loud" }\n',
        "pyproject.toml:2: severity of vllm must be one of error, warning, note, not 'loud'",
    ),
    (
        '[tool.trl-lint]\nseverity = "note"\n',
        'pyproject.toml:2: severity must be a table like { "rule-or-group" = "note" }, not \'note\'',
    ),
    (
        '[tool.trl-lint.per-path."a"]\nexclude = ["x"]\n',
        "pyproject.toml:1: unknown key 'exclude' in per-path.'a': it takes ignore and severity",
    ),
    (
        '[tool.trl-lint.per-path."a"]\nignore = "x"\n',
        "pyproject.toml:1: per-path.'a': ignore must be a list of strings, not 'x'",
    ),
    (
        '[tool.trl-lint]\nper-path = ["a"]\n',
        'pyproject.toml:2: per-path holds tables by glob: [tool.trl-lint.per-path."tests/**"]',
    ),
    ('[tool.trl-lint]\nrules = "a"\n', "pyproject.toml:2: rules must be a list of strings, not 'a'"),
    ("[tool]\ntrl-lint = 3\n", "pyproject.toml:2: tool.trl-lint must be a table"),
    ("[tool.trl-lint]\ntrl = \n", "pyproject.toml:2: cannot read [tool.trl-lint], the file is no TOML: Invalid value"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    start = write(tmp_path, text)
    with pytest.raises(SettingsError) as error:
        load(start)
    assert str(error.value) == message


TEAM = """[tool.trl-lint]
rules = ["lint/rules", "/opt/rules"]
severity = { vllm = "note", "online-without-vllm" = "error" }
baseline = "ci/known.json"

[tool.trl-lint.per-path."tests/**"]
ignore = ["liger"]
severity = { vllm = "warning" }

[tool.trl-lint.per-path."tests/slow.py"]
ignore = ["api"]
severity = { online-without-vllm = "note" }
"""


def test_what_holds_for_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(write(tmp_path, TEAM))
    assert settings.rules == (os.path.join(tmp_path, "lint/rules"), "/opt/rules")
    assert settings.baseline == os.path.join(tmp_path, "ci/known.json")
    assert settings.ignored_at("train.py") == frozenset()
    assert settings.ignored_at("tests/deep/x.py") == {"liger"}
    assert settings.ignored_at("tests/slow.py") == {"liger", "api"}

    def severity(path: str, rule: str) -> str | None:
        return settings.severity_of(path, rule, "vllm" if "vllm" in rule else "api")

    assert severity("train.py", "online-without-vllm") == "error"
    assert severity("train.py", "other-vllm") == "note"
    assert severity("train.py", "other") is None
    assert severity("tests/x.py", "online-without-vllm") == "warning"
    assert severity("tests/slow.py", "online-without-vllm") == "note"
    assert severity("tests/slow.py", "other-vllm") == "warning"
    names = [name for _key, given in settings.rule_names() for name in given]
    assert names == ["vllm", "online-without-vllm", "liger", "vllm", "api", "online-without-vllm"]
    shown = {line.partition(" = ")[0]: line for line in describe(settings)}
    assert shown["per-path"].endswith("(from pyproject.toml:6)")
    assert "'tests/slow.py': {'ignore': ['api']" in shown["per-path"]


def test_the_nearest_table_wins(tmp_path: Path) -> None:
    write(tmp_path, '[tool.trl-lint]\ngpu = "a100"\n')
    write(tmp_path / "with", '[tool.trl-lint]\ngpu = "h100"\n')
    # A pyproject.toml without the table, or one that only depends on the tool, leaves it to the next above.
    without = write(tmp_path / "without", '[project]\nname = "x"\n')
    depends = write(tmp_path / "depends", '[dependency-groups]\ndev = ["trl-lint"]\n')
    assert load(str(tmp_path / "with" / "deep" / "train.py")).gpu == "h100"
    assert load(without).gpu == load(depends).gpu == load(str(tmp_path)).gpu == "a100"


def test_the_search_stops_at_the_repository(tmp_path: Path) -> None:
    write(tmp_path, '[tool.trl-lint]\ngpu = "a100"\n')
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    assert load(str(tmp_path / "repository" / "train.py")) == Settings()


def test_a_malformed_file_that_does_not_name_the_tool_is_not_ours_to_judge(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert load(write(tmp_path, "[project\n")) == Settings()


def test_a_key_of_another_table_is_not_mistaken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = '[tool.ruff]\nselect = ["E"]\n\n[tool.trl-lint]\n"select" = ["vllm"]\n'
    assert load(write(tmp_path, text)).origins == {"select": "pyproject.toml:5"}


def test_a_python_by_name_stays_a_name(tmp_path: Path) -> None:
    assert load(write(tmp_path, '[tool.trl-lint]\npython = "python3.12"\n')).python == "python3.12"
