"""What a team needs: a baseline, ignore comments written and cleaned up, rules and severities of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .test_check import BAD, project, trl_lint

__all__ = ["project"]

TWO = """from trl import SFTConfig

first = SFTConfig(output_dir="a", max_seq_length=512)
second = SFTConfig(output_dir="b", max_seq_length=512)
"""
PAGE = """# Runs of ours state their seed

```toml
at = ["seed"]
when = "not given(seed)"
severity = "warning"
message = "no seed is given"

[[fix]]
title = "say seed=1"
effect = "training"
set = { seed = 1 }
```
"""


def write(project: Path, name: str, text: str) -> Path:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def concise(project: Path, *words: str) -> list[str]:
    """The findings of a run, a line each, without the summary."""
    return trl_lint("--output-format", "concise", "-q", *words, cwd=project).stdout.splitlines()


# Baseline ----------------------------------------------------------------------------------------------------------------


def baselined(project: Path, *words: str, cwd: Path | None = None) -> Path:
    done = trl_lint("--baseline", "known.json", "--write-baseline", *words, cwd=cwd or project)
    assert done.returncode == 0, done.stderr
    return (cwd or project) / "known.json"


def test_a_baseline_hides_what_it_records_and_nothing_else(project: Path) -> None:
    text = baselined(project).read_text("utf-8")
    assert json.loads(text) == {
        "version": 1,
        "findings": [
            {
                "path": "train.py",
                "rule": "unknown-config-field",
                "site": "SFTConfig",
                "field": "max_seq_length",
                "value": "max_seq_length=512",
                "message": json.loads(text)["findings"][0]["message"],
            }
        ],
    }
    done = trl_lint("--baseline", "known.json", cwd=project)
    assert done.returncode == 0
    assert "note: 1 finding that is in known.json is not shown" in done.stdout
    write(project, "train.py", BAD.replace("512", "256"))
    assert trl_lint("--baseline", "known.json", cwd=project).returncode == 1


@pytest.mark.parametrize(
    "edited",
    [
        "# above\n" * 100 + BAD,
        BAD.replace("\n", "\r\n"),
        BAD.replace('(output_dir="out", ', '(\n    output_dir="out",\n    '),
        BAD.replace("args", "training_args"),
        BAD.replace('"out"', '"elsewhere"'),
        BAD + "\nother = SFTConfig(output_dir='x', max_length=512)\n",
    ],
)
def test_a_baseline_survives_edits_elsewhere(project: Path, edited: str) -> None:
    baselined(project)
    write(project, "train.py", edited)
    assert concise(project, "--baseline", "known.json") == []


def test_a_baseline_survives_another_release(project: Path) -> None:
    baselined(project)
    write(project, "requirements.txt", "trl==1.16.0\n")
    assert concise(project, "--baseline", "known.json") == []


def test_equal_findings_are_counted(project: Path) -> None:
    write(project, "train.py", TWO)
    (entry,) = json.loads(baselined(project).read_text("utf-8"))["findings"]
    assert entry["count"] == 2
    write(project, "train.py", TWO + 'third = SFTConfig(output_dir="c", max_seq_length=512)\n')
    assert len(concise(project, "--baseline", "known.json")) == 1


def test_what_is_gone_is_said_and_dropped(project: Path) -> None:
    write(project, "train.py", TWO)
    baselined(project)
    write(project, "train.py", BAD.replace('"out"', '"a"'))
    done = trl_lint("--baseline", "known.json", cwd=project)
    gone = "1 entry of known.json is no longer found (unknown-config-field in train.py); --write-baseline drops what is gone"
    assert gone in done.stdout
    assert done.returncode == 0
    # Of rules and files that were not looked at nothing is known.
    write(project, "other.py", "import trl\n")
    for words in (["other.py"], ["--select", "vllm"]):
        assert "no longer found" not in trl_lint("--baseline", "known.json", *words, cwd=project).stdout
    assert "count" not in json.loads(baselined(project).read_text("utf-8"))["findings"][0]


def test_entries_of_files_that_were_not_looked_at_stay(project: Path) -> None:
    write(project, "other.py", BAD)
    before = baselined(project).read_text("utf-8")
    assert baselined(project, "train.py").read_text("utf-8") == before
    (project / "other.py").unlink()
    assert [e["path"] for e in json.loads(baselined(project, "train.py").read_text("utf-8"))["findings"]] == [
        "train.py"
    ]


def test_paths_are_relative_to_the_baseline(project: Path) -> None:
    write(project, "deep/train.py", BAD)
    write(project, "pyproject.toml", '[tool.trl-lint]\nbaseline = "ci/known.json"\n')
    (project / "ci").mkdir()
    assert trl_lint("--write-baseline", cwd=project).returncode == 0
    found = json.loads((project / "ci" / "known.json").read_text("utf-8"))["findings"]
    assert [e["path"] for e in found] == ["../deep/train.py", "../train.py"]
    assert trl_lint(cwd=project).returncode == 0
    assert trl_lint(cwd=project / "deep").returncode == 0


def test_secrets_do_not_reach_a_baseline(project: Path) -> None:
    write(project, "train.py", BAD.replace("max_seq_length=512", 'max_seq_len="hf_abcdefghijklmnopqrstuvwx"'))
    assert "hf_abc" not in baselined(project).read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "known.json: no such baseline; --write-baseline makes it"),
        ("{", "known.json:1: no JSON"),
        ("[]", "known.json: no baseline of trl-lint; make it again with --write-baseline"),
        ('{"version": 1, "findings": [{}]}', "known.json: no baseline of trl-lint"),
        ('{"version": 9, "findings": []}', "known.json: written by a newer trl-lint (version 9)"),
        ("\xff", "known.json: no baseline of trl-lint"),
    ],
)
def test_a_baseline_that_cannot_be_used(project: Path, text: str | None, error: str) -> None:
    if text is not None:
        write(project, "known.json", text if text != "\xff" else "3")
    done = trl_lint("--baseline", "known.json", cwd=project)
    assert done.returncode == 2
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_baseline_needs_a_file(project: Path) -> None:
    done = trl_lint("--write-baseline", cwd=project)
    assert done.returncode == 2
    assert "--write-baseline needs a file: --baseline FILE" in done.stderr


# Statistics --------------------------------------------------------------------------------------------------------------


def test_statistics(project: Path) -> None:
    write(project, "train.py", TWO)
    done = trl_lint("--statistics", cwd=project)
    assert done.stdout == "2  error    unknown-config-field  2 fixable\nFound 2 errors in 1 file (2 runs).\n"
    assert done.returncode == 1
    row = {"rule": "unknown-config-field", "group": "api", "severity": "error", "count": 2, "fixable": 2}
    assert json.loads(trl_lint("--statistics", "--output-format", "json", cwd=project).stdout) == [row]
    assert trl_lint("--statistics", "--output-format", "sarif", cwd=project).returncode == 2


# Ignore comments ---------------------------------------------------------------------------------------------------------

SHAPES = {
    "one line": (BAD, BAD.replace("512)", "512)  # trl-lint: ignore[unknown-config-field] old")),
    "several lines": (
        'from trl import SFTConfig\nargs = SFTConfig(\n    output_dir="a",\n    max_seq_length=512,  # ours\n)\n',
        'from trl import SFTConfig\nargs = SFTConfig(\n    output_dir="a",\n'
        "    max_seq_length=512,  # ours  # trl-lint: ignore[unknown-config-field] old\n)\n",
    ),
    "continued": (
        'from trl import SFTConfig\nargs = SFTConfig(output_dir="a", max_seq_length=512) \\\n    or None\n',
        "from trl import SFTConfig\n# trl-lint: ignore[unknown-config-field] old\n"
        'args = SFTConfig(output_dir="a", max_seq_length=512) \\\n    or None\n',
    ),
    "two of one rule in a call": (
        'from trl import SFTConfig\nargs = SFTConfig(\n    output_dir="a",\n    max_seq_length=512,\n    dataset_batch_size=8,\n)\n',
        'from trl import SFTConfig\nargs = SFTConfig(\n    output_dir="a",\n    max_seq_length=512,\n'
        "    dataset_batch_size=8,  # trl-lint: ignore[unknown-config-field] old\n)\n",
    ),
    "crlf, emoji": (
        BAD.replace('"out"', '"🚀"').replace("\n", "\r\n"),
        BAD.replace('"out"', '"🚀"')
        .replace("512)", "512)  # trl-lint: ignore[unknown-config-field] old")
        .replace("\n", "\r\n"),
    ),
    "a comment that is there": (
        BAD.replace("512)", "512)  # trl-lint: ignore[vllm] why # type: ignore"),
        BAD.replace("512)", "512)  # trl-lint: ignore[vllm, unknown-config-field] why # type: ignore"),
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_add_ignore(project: Path, name: str) -> None:
    before, after = SHAPES[name]
    path = write(project, "train.py", before)
    done = trl_lint("--add-ignore=old", cwd=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Added 1 ignore comment (1 file).\n"
    assert path.read_bytes().decode() == after
    assert [line for line in concise(project) if "error" in line] == []
    assert trl_lint("--add-ignore", cwd=project).stdout == "Added 0 ignore comments (0 files).\n"
    assert path.read_bytes().decode() == after


RECIPE = """model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
output_dir: out
per_device_train_batch_size: 1
fp16: true
"""
LAUNCH = """trl vllm-serve --model Qwen/Qwen2.5-0.5B-Instruct &
trl grpo --config r.yaml \\
    --use_vllm true \\
    --learning_rate 1e-6
"""
IGNORED = "  # trl-lint: ignore[fp16-on-ampere] known"
ABOVE = "# trl-lint: ignore[vllm-mode-left-to-default] known\n"


@pytest.fixture
def launched(project: Path) -> Path:
    (project / "train.py").unlink()
    write(project, "r.yaml", RECIPE)
    write(project, "launch.sh", LAUNCH)
    write(project, "pyproject.toml", '[tool.trl-lint]\ngpu = "a100:1"\n')
    return project


def test_add_ignore_in_recipes_and_launches(launched: Path) -> None:
    assert {line.partition(":")[0] for line in concise(launched)} == {"r.yaml", "launch.sh"}
    done = trl_lint("--add-ignore=known", cwd=launched)
    assert done.stdout == "Added 2 ignore comments (2 files).\n", done.stderr
    assert concise(launched) == []
    assert (launched / "r.yaml").read_text("utf-8") == RECIPE.replace("true", f"true{IGNORED}")
    assert (launched / "launch.sh").read_text("utf-8") == LAUNCH.replace("trl grpo", f"{ABOVE}trl grpo")


def test_add_ignore_leaves_a_notebook_to_its_author(project: Path) -> None:
    cell = {"cell_type": "code", "source": BAD, "metadata": {}, "outputs": [], "execution_count": None}
    (project / "train.py").unlink()
    path = write(
        project, "train.ipynb", json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    before = path.read_bytes()
    done = trl_lint("--add-ignore", cwd=project)
    assert done.returncode == 1
    assert "unknown-config-field is not ignored: write the comment into the notebook's cell by hand" in done.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [["--fix"], ["--diff"], ["--write-baseline", "--baseline", "b.json"], ["-"]])
def test_add_ignore_goes_alone(project: Path, words: list[str]) -> None:
    assert trl_lint("--add-ignore", *words, cwd=project).returncode == 2
    assert (project / "train.py").read_text("utf-8") == BAD


def test_add_ignore_takes_no_path_for_a_reason(project: Path) -> None:
    assert trl_lint("--add-ignore", "train.py", cwd=project).stdout == "Added 1 ignore comment (1 file).\n"


GOOD = BAD.replace("max_seq_length", "max_length")
UNUSED = {
    "at the end": (GOOD.replace("512)", "512)  # trl-lint: ignore[unknown-config-field] old"), GOOD),
    "on its own line": (GOOD.replace("args", "# trl-lint: ignore[unknown-config-field] old\nargs"), GOOD),
    "crlf": (
        GOOD.replace("args", "# trl-lint: ignore[unknown-config-field] old\nargs").replace("\n", "\r\n"),
        GOOD.replace("\n", "\r\n"),
    ),
    "before another comment": (
        GOOD.replace("512)", "512)  # trl-lint: ignore[unknown-config-field] see #12  # type: ignore"),
        GOOD.replace("512)", "512)  # type: ignore"),
    ),
    "after another comment": (
        GOOD.replace("512)", "512)  # type: ignore  # trl-lint: ignore[unknown-config-field]"),
        GOOD.replace("512)", "512)  # type: ignore"),
    ),
    "in part": (
        BAD.replace("512)", "512)  # trl-lint: ignore[unknown-trainer-keyword, unknown-config-field] old"),
        BAD.replace("512)", "512)  # trl-lint: ignore[unknown-config-field] old"),
    ),
    "the whole file": ("# trl-lint: ignore-file[unknown-config-field]\n" + GOOD, GOOD),
    "a typo": (GOOD.replace("512)", "512)  # trl-lint: ignore[unknown-config-feild]"), GOOD),
    "two of them": (
        GOOD.replace("args", "# trl-lint: ignore[unknown-config-field]\nargs").replace(
            "512)", "512)  # trl-lint: ignore[unknown-config-field]"
        ),
        GOOD,
    ),
}


@pytest.mark.parametrize("name", UNUSED)
def test_an_ignore_that_silences_nothing(project: Path, name: str) -> None:
    before, after = UNUSED[name]
    path = write(project, "train.py", before)
    done = trl_lint(cwd=project)
    assert done.returncode == 0
    assert "note[unused-ignore]" in done.stdout
    assert trl_lint("--fix", cwd=project).returncode == 0
    assert path.read_bytes().decode() == after


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BAD.replace("512)", "512)  # trl-lint: ignore[unknown-config-field]"), []),
        (BAD.replace("512)", "512)  # trl-lint: ignore[api]"), []),
        (GOOD.replace("512)", "512)  # trl-lint: ignore[api]"), ["--select", "vllm"]),
        (GOOD.replace("512)", "512)  # trl-lint: ignore[api]"), ["--ignore", "liger"]),
        (GOOD.replace("512)", "512)  # trl-lint: ignore[api]"), ["--no-ignores"]),
        # Some rule of the group may hold, for all that the file shows.
        (GOOD.replace("512)", "512)  # trl-lint: ignore[precision]"), []),
        # It needs the GPU to be known, which it is elsewhere.
        (GOOD.replace("512)", "512, fp16=True)  # trl-lint: ignore[fp16-on-ampere]"), []),
        # No comment, only a string that looks like one.
        (GOOD.replace('"out"', '"# trl-lint: ignore[api]"'), []),
    ],
)
def test_an_ignore_that_may_be_needed(project: Path, text: str, words: list[str]) -> None:
    write(project, "train.py", text)
    assert "unused-ignore" not in trl_lint(*words, cwd=project).stdout


def test_an_unused_ignore_can_be_left_out(project: Path) -> None:
    write(project, "train.py", GOOD.replace("512)", "512)  # trl-lint: ignore[unknown-config-field]"))
    write(project, "pyproject.toml", '[tool.trl-lint]\nignore = ["vllm"]\n')
    assert "unused-ignore" in trl_lint(cwd=project).stdout
    write(project, "pyproject.toml", '[tool.trl-lint.per-path."*.py"]\nignore = ["unused-ignore"]\n')
    assert "unused-ignore" not in trl_lint(cwd=project).stdout
    # What the settings leave out cannot be said to be unused.
    write(project, "pyproject.toml", '[tool.trl-lint]\nignore = ["unknown-config-field"]\n')
    assert "unused-ignore" not in trl_lint(cwd=project).stdout


def test_removing_a_comment_is_nothing_to_measure(project: Path) -> None:
    write(project, "train.py", GOOD.replace("512)", "512)  # trl-lint: ignore[unknown-config-field]"))
    assert "unused-ignore" in trl_lint(cwd=project).stdout
    assert "unused-ignore" not in trl_lint("probe", "train.py", "--dry-run", cwd=project).stdout


def test_an_unused_ignore_in_a_recipe_and_a_launch(launched: Path) -> None:
    write(launched, "r.yaml", RECIPE.replace("fp16: true", f"bf16: true{IGNORED}"))
    write(
        launched,
        "launch.sh",
        LAUNCH.replace("trl grpo", f"{ABOVE}trl grpo").replace("--use_vllm", "--vllm_mode server --use_vllm"),
    )
    assert sum("unused-ignore" in line for line in concise(launched)) == 2
    trl_lint("--fix", cwd=launched)
    assert "ignore[" not in (launched / "r.yaml").read_text("utf-8") + (launched / "launch.sh").read_text("utf-8")


# Rules and severities of a team's own ------------------------------------------------------------------------------------


@pytest.fixture
def team(project: Path) -> Path:
    write(project, "pyproject.toml", '[tool.trl-lint]\nrules = ["lint/rules"]\n')
    write(project, "lint/rules/acme/acme-seed.md", PAGE)
    return project


def test_rules_of_a_project(team: Path) -> None:
    assert "train.py:3:8: warning[acme-seed] no seed is given" in concise(team)
    assert len(concise(team, "--select", "acme")) == len(concise(team, "--select", "acme-seed")) == 1
    assert concise(team, "--ignore", "acme,api") == []
    assert trl_lint("explain", "acme-seed", cwd=team).stdout == PAGE
    assert "  acme-seed " in trl_lint("rules", cwd=team).stdout
    # Another page, and a changed one, count at once.
    write(team, "lint/rules/acme/acme-seed.md", PAGE.replace("no seed is given", "a run without a seed"))
    write(team, "lint/rules/acme/acme-more.md", PAGE)
    assert sum("acme" in line for line in concise(team)) == 2
    assert any("a run without a seed" in line for line in concise(team))
    assert trl_lint("--unsafe-fixes", "--select", "acme-seed", cwd=team).returncode == 0
    assert "seed=1" in (team / "train.py").read_text("utf-8")


def test_rules_of_a_project_are_not_those_of_its_neighbour(team: Path) -> None:
    write(team, "deep/pyproject.toml", "[tool.trl-lint]\npossible = false\n")
    write(team, "deep/train.py", BAD)
    assert [line.partition(":")[0] for line in concise(team) if "acme" in line] == ["train.py"]
    write(team, "pyproject.toml", "[project]\nname = 'x'\n")
    write(team, "deep/pyproject.toml", '[tool.trl-lint]\nrules = ["../lint/rules"]\n')
    assert [line.partition(":")[0] for line in concise(team) if "acme" in line] == ["deep/train.py"]


@pytest.mark.parametrize(
    ("page", "text", "error"),
    [
        ("acme/seed.md", PAGE, "rules/acme/seed.md:1: a rule of your own carries its group's name; call the page acme-seed.md"),
        ("vllm/vllm-x.md", PAGE, "rules/vllm/vllm-x.md:1: the group vllm is taken; call the folder by a name of your own"),
        ("ignores/ignores-x.md", PAGE, "rules/ignores/ignores-x.md:1: the group ignores is taken"),
        ("acme/acme-x.md", PAGE.replace("given(seed)", "given(sead)"), "rules/acme/acme-x.md:5: not every config has no field sead"),
        ("acme/acme-x.md", "# x\n", "rules/acme/acme-x.md:1: the page has no ```toml block"),
    ],
)  # fmt: skip
def test_a_page_that_is_wrong(team: Path, page: str, text: str, error: str) -> None:
    write(team, f"lint/rules/{page}", text)
    done = trl_lint(cwd=team)
    assert done.returncode == 2
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_of_rules_that_is_not_there(team: Path) -> None:
    write(team, "pyproject.toml", '[tool.trl-lint]\n\nrules = ["nowhere"]\n')
    done = trl_lint(cwd=team)
    assert done.returncode == 2
    assert done.stderr == f"trl-lint: pyproject.toml:3: rules: {team / 'nowhere'}: No such file or directory\n"


def test_severities(project: Path) -> None:
    write(project, "tests/train.py", BAD)
    settings = '[tool.trl-lint]\nseverity = { "unknown-config-field" = "warning", "api" = "note" }\n'
    write(project, "pyproject.toml", settings)
    assert [line.split()[1] for line in concise(project)] == ["warning[unknown-config-field]"] * 2
    write(project, "pyproject.toml", settings + '[tool.trl-lint.per-path."tests/**"]\nseverity = { "api" = "note" }\n')
    assert [line.split()[1].partition("[")[0] for line in concise(project)] == ["note", "warning"]
    assert trl_lint("tests", cwd=project).returncode == 0
    assert trl_lint("train.py", cwd=project).returncode == 1
    assert trl_lint("train.py", "--fail-on", "error", cwd=project).returncode == 0


def test_rules_left_out_by_path(project: Path) -> None:
    write(project, "tests/train.py", BAD)
    write(project, "pyproject.toml", '[tool.trl-lint.per-path."tests/**"]\nignore = ["api"]\n')
    assert [line.partition(":")[0] for line in concise(project)] == ["train.py"]
    assert concise(project / "tests") == []
    trl_lint("--fix", cwd=project)
    assert (project / "tests" / "train.py").read_text("utf-8") == BAD


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ('severity = { "nosuch" = "note" }', "pyproject.toml:2: there is no rule or group 'nosuch'"),
        ('[tool.trl-lint.per-path."a"]\nignore = ["vlm"]', "pyproject.toml:2: there is no rule or group 'vlm'; did you mean 'vllm'?"),
        ('ignore = ["vlm"]', "pyproject.toml:2: there is no rule or group 'vlm'; did you mean 'vllm'?"),
    ],
)  # fmt: skip
def test_names_that_no_rule_has(project: Path, settings: str, error: str) -> None:
    write(project, "pyproject.toml", f"[tool.trl-lint]\n{settings}\n")
    done = trl_lint(cwd=project)
    assert done.returncode == 2
    assert error in done.stderr


def test_settings_that_are_wrong_are_said_without_any_training(project: Path) -> None:
    (project / "train.py").unlink()
    write(project, "pyproject.toml", "[tool.trl-lint]\nselct = []\n")
    done = trl_lint("--output-format", "json", cwd=project)
    assert done.returncode == 2
    assert done.stderr.startswith("trl-lint: pyproject.toml:2: unknown key 'selct'")


def test_a_selection_does_not_make_the_settings_wrong(project: Path) -> None:
    write(project, "pyproject.toml", '[tool.trl-lint]\nignore = ["liger"]\n')
    assert len(concise(project, "--select", "api")) == 1


# The rulebook as data ----------------------------------------------------------------------------------------------------


def test_rules_as_json(team: Path) -> None:
    rules = {rule["name"]: rule for rule in json.loads(trl_lint("rules", "--output-format", "json", cwd=team).stdout)}
    assert rules["acme-seed"] == {
        "name": "acme-seed",
        "group": "acme",
        "title": "Runs of ours state their seed",
        "severity": "warning",
        "fixable": True,
        "gain": 0,
        "methods": None,
        "page": "rules/acme/acme-seed.md",
        "variants": [
            {
                "trl": "",
                "severity": "warning",
                "message": "no seed is given",
                "fixes": [{"title": "say seed=1", "effect": "training", "needs": [], "automatic": True}],
            }
        ],
    }
    assert rules["online-without-vllm"]["group"] == "vllm"
    for name in ("bare-ignore", "unused-ignore"):
        assert rules[name]["group"] == "ignores"
        assert trl_lint("explain", name, cwd=team).stdout.startswith("# ")
