"""What is believed, and from where, for project trees written on the spot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from trl_lint import settings
from trl_lint.facts import Fact, Facts, FactsError, Hardware, Overrides, describe, forget, gather
from trl_lint.facts.environment import read_environment


@pytest.fixture(autouse=True)
def _nothing_activated(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)


@dataclass
class Project:
    root: Path
    files: dict[str, str] = field(default_factory=dict)

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        forget()
        settings.forget()

    def environment(self, name: str, **versions: str) -> Path:
        site = self.root / name / "lib" / "python3.12" / "site-packages"
        site.mkdir(parents=True)
        (self.root / name / "pyvenv.cfg").write_text("home = /usr/bin\n")
        for package, version in versions.items():
            (site / f"{package}-{version}.dist-info").mkdir()
            (site / package).mkdir()
            (site / package / "__init__.py").write_text("")
        return self.root / name

    def facts(self, path: str = "train.py", text: str = "import trl\n", **overrides: object) -> Facts:
        self.write({path: text})
        file = self.root / path
        given = Overrides(**overrides)  # type: ignore[arg-type]
        return gather(
            str(file), head=file.read_bytes(), root=str(self.root), overrides=given, settings=settings.load(str(file))
        )

    def trl(self, path: str = "train.py", text: str = "import trl\n", **overrides: object) -> tuple[str, str] | None:
        """Version, range or ref of TRL, and its origin."""
        fact = self.facts(path, text, **overrides).packages.get("trl")
        return (fact.version or fact.specifier or fact.commit or "any", fact.origin) if fact else None


@pytest.fixture
def project(tmp_path: Path) -> Project:
    # A root of its own below tmp_path, so that folders above it show whether the walk stops.
    root = tmp_path / "project"
    root.mkdir()
    return Project(root)


UV_LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "accelerate"
version = "1.4.0"

[[package]]
name = "trl"
version = "0.19.1"
source = { registry = "https://index.example/simple" }
dependencies = [
    { name = "accelerate" },
]
"""
POETRY_LOCK = """[[package]]
name = "trl"
version = "0.19.2"
description = "x"

[package.dependencies]
accelerate = ">=1.4.0"

[metadata]
lock-version = "2.0"
"""
PDM_LOCK = """[metadata]
groups = ["default"]

[[package]]
name = "trl"
version = "0.19.3"
summary = "x"
"""
PYLOCK = """lock-version = "1.0"

[[packages]]
name = "trl"
version = "0.19.4"
"""
SETUP_PY = """from setuptools import setup
_deps = [
    "accelerate>=1.4.0",
    "trl[vllm]==0.18.0",
]
deps = {d.split("==")[0]: d for d in _deps}
setup(name="mine", packages=["trl"], install_requires=[deps["trl[vllm]"]])
"""
CONDA = """name: train
dependencies:
  - python=3.12
  - conda-forge::trl=0.17
  - pytorch==2.6.0
  - pip:
      - vllm==0.8.5
      - git+https://github.com/huggingface/peft@v0.15.0
"""


# One kind of file ----------------------------------------------------------------------------------------------------

FILES = [
    ("uv.lock", UV_LOCK, "0.19.1", "uv.lock:9"),
    ("poetry.lock", POETRY_LOCK, "0.19.2", "poetry.lock:2"),
    ("pdm.lock", PDM_LOCK, "0.19.3", "pdm.lock:5"),
    ("pylock.toml", PYLOCK, "0.19.4", "pylock.toml:4"),
    ("pylock.train.toml", PYLOCK, "0.19.4", "pylock.train.toml:4"),
    ("requirements.txt", "torch\ntrl==0.18.1  # fast-moving\n", "0.18.1", "requirements.txt:2"),
    ("requirements.txt", "trl[vllm,peft]==1.5.0\n", "1.5.0", "requirements.txt:1"),
    (
        "requirements.txt",
        "trl==0.18.1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n",
        "0.18.1",
        "requirements.txt:1",
    ),
    ("requirements.txt", "TRL >= 0.16, <1.0\n", ">=0.16,<1.0", "requirements.txt:1"),
    ("requirements.txt", "trl==1.*\n", "==1.*", "requirements.txt:1"),
    ("requirements.txt", "trl==1.0.0rc1\n", "1.0.0rc1", "requirements.txt:1"),
    ("requirements.txt", "trl\n", "any", "requirements.txt:1"),
    ("requirements.txt", "trl>=0.16\ntrl<1.0\n", ">=0.16,<1.0", "requirements.txt:1, requirements.txt:2"),
    ("requirements.txt", "trl==0.9.6; python_version < '3'\ntrl==0.19.0\n", "0.19.0", "requirements.txt:2"),
    (
        "requirements.txt",
        "trl==0.9.6; sys_platform == 'win32'\ntrl==0.19.0; sys_platform == 'linux'\n",
        "0.19.0",
        "requirements.txt:2",
    ),
    ("requirements.txt", "trl==0.9.6; sys_platform == 'darwin'\n", "0.9.6", "requirements.txt:1"),
    ("requirements-train.txt", "trl==0.18.1\n", "0.18.1", "requirements-train.txt:1"),
    ("requirements/base.txt", "trl==0.18.1\n", "0.18.1", "requirements/base.txt:1"),
    (
        "pyproject.toml",
        '[project]\nname = "trl-play"\ndependencies = [\n  "trl>=0.16",\n]\n',
        ">=0.16",
        "pyproject.toml:4",
    ),
    ("pyproject.toml", '[project.optional-dependencies]\nrl = ["trl==0.16.0"]\n', "0.16.0", "pyproject.toml:2"),
    (
        "pyproject.toml",
        '[dependency-groups]\na = ["trl==0.16.0", {include-group = "b"}]\n',
        "0.16.0",
        "pyproject.toml:2",
    ),
    (
        "pyproject.toml",
        '[tool.poetry.dependencies]\npython = "^3.10"\ntrl = "^0.16"\n',
        ">=0.16,<0.17",
        "pyproject.toml:3",
    ),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntrl = "~1.2.3"\n', ">=1.2.3,<1.3", "pyproject.toml:2"),
    (
        "pyproject.toml",
        '[tool.poetry.dependencies]\ntrl = {version = "^1.2", extras = ["vllm"]}\n',
        ">=1.2,<2",
        "pyproject.toml:2",
    ),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntrl = "1.2.3"\n', "1.2.3", "pyproject.toml:2"),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntrl = "^0.9 || ^1.0"\n', "any", "pyproject.toml:2"),
    ("pyproject.toml", '[tool.poetry.group.rl.dependencies]\ntrl = "*"\n', "any", "pyproject.toml:2"),
    ("pyproject.toml", '[tool.uv]\ndev-dependencies = ["trl~=1.2"]\n', "~=1.2", "pyproject.toml:2"),
    (
        "pyproject.toml",
        '[project]\nname = "m"\ndependencies = ["trl"]\n[tool.uv.sources]\ntrl = { git = "https://x/trl", tag = "v1.9.0" }\n',
        "1.9.0",
        "pyproject.toml:3",
    ),
    ("setup.cfg", "[options]\ninstall_requires =\n    torch\n    trl>=0.16\n", ">=0.16", "setup.cfg:4"),
    ("setup.cfg", "[options.extras_require]\nrl =\n    trl==0.16.0\n", "0.16.0", "setup.cfg:3"),
    ("setup.py", SETUP_PY, "0.18.0", "setup.py:4"),
    ("environment.yml", CONDA, "==0.17.*", "environment.yml:4"),
    ("environment.yaml", "dependencies:\n- trl==0.17.0\n", "0.17.0", "environment.yaml:2"),
    ("environment.yml", "dependencies:\n- trl>=0.17\n", ">=0.17", "environment.yml:2"),
    (
        "Dockerfile",
        "FROM x\nRUN apt-get update \\\n && pip install -U -i https://i torch trl==0.9.6 > log\n",
        "0.9.6",
        "Dockerfile:2",
    ),
    ("Dockerfile", "RUN pip install trl\nRUN uv pip install --system 'trl[vllm]>=0.9'\n", ">=0.9", "Dockerfile:2"),
    ("Dockerfile", "RUN pip install trl==0.9.6 && pip3 install trl==0.9.4\n", "0.9.4", "Dockerfile:1"),
    ("train.Dockerfile", "# RUN pip install trl==0.9.6\nRUN pip install trl==0.9.4\n", "0.9.4", "train.Dockerfile:2"),
]


@pytest.mark.parametrize(("name", "text", "version", "origin"), FILES)
def test_each_kind_of_file(project: Project, name: str, text: str, version: str, origin: str) -> None:
    project.write({name: text})
    facts = project.facts()
    assert not [note for note in facts.notes if "ignored" in note]
    assert project.trl() == (version, origin)


SILENT = [
    ("requirements.txt", "torch==2.6.0\n-e .\n--index-url https://x\n./wheels/x.whl\n"),
    ("requirements.txt", "trl==0.9.6; python_version < '3'\n"),
    ("setup.py", 'setup(name="mine", packages=["trl"], keywords=["trl==1.0"])\n'),
    ("Dockerfile", "ARG V\nRUN pip install trl==${V}\n"),
    ("Dockerfile", "# pip install trl==0.9.6\n"),
    ("notes.txt", "trl==0.9.6\n"),
    ("pyproject.toml", '[project]\nname = "mine"\ndescription = "trl==0.9.6"\n'),
    ("docs/requirements.txt", "trl==0.9.6\n"),
]


@pytest.mark.parametrize(("name", "text"), SILENT)
def test_files_that_say_nothing_of_trl(project: Project, name: str, text: str) -> None:
    project.write({name: text})
    facts = project.facts()
    assert "trl" not in facts.packages
    assert facts.notes == ()


def test_other_packages_come_along(project: Project) -> None:
    project.write({"environment.yml": CONDA})
    packages = project.facts().packages
    assert packages["torch"].version == "2.6.0"
    assert packages["vllm"] == Fact("vllm", "==0.8.5", "0.8.5", "declared", "environment.yml:7")
    assert packages["peft"].version == "0.15.0"


def test_includes_and_constraints(project: Project) -> None:
    project.write(
        {
            "requirements.txt": "-r deps/base.txt\n-c constraints.txt\ntrl\n-r missing.txt\n",
            "deps/base.txt": "-r ../requirements.txt\nvllm>=0.8\n",
            "constraints.txt": "trl==0.18.0\nvllm<0.9\n",
        }
    )
    facts = project.facts()
    assert (facts.packages["trl"].version, facts.packages["trl"].origin) == ("0.18.0", "constraints.txt:1")
    assert facts.packages["vllm"].specifier == ">=0.8,<0.9"
    assert facts.notes == ("requirements.txt:4: cannot read missing.txt: No such file or directory; ignored",)


def test_a_lock_that_forks_gives_a_range(project: Project) -> None:
    entry = '[[package]]\nname = "torch"\nversion = "{}"\nresolution-markers = ["{}"]\n'
    forks = entry.format("2.5.1", "python_full_version < '3.12'") + entry.format(
        "2.6.0", "python_full_version >= '3.12'"
    )
    project.write({"uv.lock": forks + entry.format("2.2.0", "sys_platform == 'darwin'")})
    torch = project.facts().packages["torch"]
    assert (torch.specifier, torch.version) == (">=2.5.1,<=2.6.0", None)


def test_requirements_of_powershell(project: Project) -> None:
    (project.root / "requirements.txt").write_bytes("torch==2.6.0\r\ntrl==0.18.0\r\n".encode("utf-16"))
    assert project.trl() == ("0.18.0", "requirements.txt:2")


# Git pins ------------------------------------------------------------------------------------------------------------

GIT = "git+https://github.com/huggingface/trl"
PINS = [
    (f"trl @ {GIT}@v1.9.0", "==1.9.0", "1.9.0", "v1.9.0"),
    (f"{GIT}.git@v1.9.0#egg=trl", "==1.9.0", "1.9.0", "v1.9.0"),
    (f"-e {GIT}@v1.9.0#egg=trl", "==1.9.0", "1.9.0", "v1.9.0"),
    (f"trl[vllm] @ {GIT}.git@main", "", None, "main"),
    (f"{GIT}", "", None, "HEAD"),
    (f"trl @ {GIT}@d3da6b9bbf38104c8b5e1acc86f83541f9a502d1", "", None, "d3da6b9bbf38104c8b5e1acc86f83541f9a502d1"),
    (f"trl @ {GIT}@2024", "", None, "2024"),
    (f"trl @ {GIT}@v0.9-release", "==0.9.*", None, "v0.9-release"),
    (f"trl @ {GIT}@refs/pull/12/head", "", None, "refs/pull/12/head"),
    ("trl @ https://github.com/huggingface/trl/archive/refs/tags/v0.9.6.zip", "==0.9.6", "0.9.6", "v0.9.6"),
    ("trl @ https://x.org/trl-0.9.6-py3-none-any.whl", "==0.9.6", "0.9.6", "0.9.6"),
    ("git+ssh://git@github.com/huggingface/trl.git@v1.9.0", "==1.9.0", "1.9.0", "v1.9.0"),
]


@pytest.mark.parametrize(("line", "specifier", "version", "commit"), PINS)
def test_git_pins(project: Project, line: str, specifier: str, version: str | None, commit: str) -> None:
    project.write({"requirements.txt": line + "\n"})
    facts = project.facts()
    assert facts.packages["trl"] == Fact("trl", specifier, version, "declared", "requirements.txt:1", commit)
    unresolved = f"requirements.txt:1: trl is a git build ({commit}): judged as the newest release known"
    assert facts.notes == (() if specifier else (unresolved,))


LOCKED_COMMITS = [
    (
        "uv.lock",
        '[[package]]\nname = "trl"\nversion = "0.20.0.dev0"\nsource = { git = "https://x/trl?rev=main#abc123" }\n',
    ),
    (
        "poetry.lock",
        '[[package]]\nname = "trl"\nversion = "0.20.0.dev0"\n[package.source]\ntype = "git"\nresolved_reference = "abc123"\n',
    ),
    (
        "pdm.lock",
        '[[package]]\nname = "trl"\nversion = "0.20.0.dev0"\ngit = "https://x/trl"\nref = "main"\nrevision = "abc123"\n',
    ),
]


@pytest.mark.parametrize(("name", "text"), LOCKED_COMMITS)
def test_locked_commits(project: Project, name: str, text: str) -> None:
    project.write({name: text})
    trl = project.facts().packages["trl"]
    assert (trl.version, trl.commit) == ("0.20.0.dev0", "abc123")


def test_a_locked_commit_without_version(project: Project) -> None:
    project.write(
        {"pylock.toml": '[[packages]]\nname = "trl"\nvcs = { type = "git", url = "u", commit-id = "abc123" }\n'}
    )
    trl = project.facts().packages["trl"]
    assert (trl.version, trl.specifier, trl.commit) == (None, "", "abc123")


# Precedence ----------------------------------------------------------------------------------------------------------

BLOCK = '# /// script\n# dependencies = [\n#   "trl>=1.3",\n# ]\n# ///\nimport trl\n'
COMMENT = "# trl-lint: facts trl==1.2.0\n"
TABLE = '[project]\nname = "m"\ndependencies = ["trl>=0.12"]\n[tool.trl-lint]\ntrl = "1.4.0"\n'


def test_precedence_from_the_command_line_down(project: Project) -> None:
    project.write({"pyproject.toml": TABLE, "uv.lock": UV_LOCK})
    project.environment(".venv", trl="0.19.1")
    assert project.trl(text=COMMENT + BLOCK, packages={"trl": "1.1.0"}) == ("1.1.0", "--trl")
    assert project.trl(text=COMMENT + BLOCK) == ("1.2.0", "train.py:1")
    assert project.trl(text=BLOCK) == (">=1.3", "train.py:3")
    assert project.trl() == ("1.4.0", "[tool.trl-lint]")


PAIRS = [
    ({"uv.lock": UV_LOCK, "poetry.lock": POETRY_LOCK}, None, ("0.19.1", "uv.lock:9")),
    ({"poetry.lock": POETRY_LOCK, "pdm.lock": PDM_LOCK}, None, ("0.19.2", "poetry.lock:2")),
    ({"pdm.lock": PDM_LOCK, "pylock.toml": PYLOCK}, None, ("0.19.3", "pdm.lock:5")),
    ({"pylock.toml": PYLOCK, "requirements.txt": "trl==0.1"}, None, ("0.19.4", "pylock.toml:4")),
    (
        {"requirements.txt": "trl==0.16.0", "requirements-dev.txt": "trl==0.17.0"},
        None,
        ("0.16.0", "requirements.txt:1"),
    ),
    ({"requirements.txt": "trl>=0.16", "setup.py": SETUP_PY}, None, ("0.18.0", "setup.py:4")),
    ({"requirements.txt": "trl==0.16.0"}, "0.17.0", ("0.16.0", "requirements.txt:1")),
    ({"requirements.txt": "trl>=0.16"}, "0.17.0", ("0.17.0", ".venv")),
    ({"requirements.txt": "trl>=0.16"}, "0.15.0", (">=0.16", "requirements.txt:1")),
    ({"requirements.txt": "trl"}, "0.15.0", ("0.15.0", ".venv")),
    ({}, "0.15.0", ("0.15.0", ".venv")),
    ({"requirements.txt": f"trl @ {GIT}"}, "1.10.0.dev0", ("1.10.0.dev0", ".venv")),
    (
        {"requirements.txt": "trl>=0.16", "setup.cfg": "[options]\ninstall_requires = trl<1.0\n"},
        "1.2.0",
        (">=0.16", "requirements.txt:1"),
    ),
    (
        {"requirements.txt": "trl", "setup.cfg": "[options]\ninstall_requires = trl<1.0\n"},
        None,
        ("<1.0", "setup.cfg:2"),
    ),
]


@pytest.mark.parametrize(("files", "installed", "believed"), PAIRS)
def test_precedence_within_a_folder(
    project: Project, files: dict[str, str], installed: str | None, believed: tuple[str, str]
) -> None:
    project.write(files)
    if installed:
        project.environment(".venv", trl=installed)
    assert project.trl() == believed


def test_the_nearest_folder_wins(project: Project) -> None:
    project.write({"uv.lock": UV_LOCK, "examples/requirements.txt": "trl>=0.9\n", "other/requirements.txt": "trl\n"})
    assert project.trl("examples/deep/train.py") == (">=0.9", "examples/requirements.txt:1")
    assert project.trl("other/train.py") == ("0.19.1", "uv.lock:9")
    assert project.trl("train.py") == ("0.19.1", "uv.lock:9")


def test_the_walk_stops_at_the_root_and_at_git(project: Project) -> None:
    (project.root.parent / "requirements.txt").write_text("trl==0.1.0\n")
    project.write({"requirements.txt": "trl==0.2.0\n", "sub/.git/HEAD": "x"})
    assert project.trl("sub/train.py") is None
    project.write({"requirements.txt": "torch\n", "plain/x": ""})
    assert Project(project.root / "plain").trl() is None


def test_members_of_a_workspace_are_locked_by_its_lock(project: Project) -> None:
    member = '[[package]]\nname = "a"\nversion = "0.1.0"\nsource = { editable = "packages/a" }\n'
    project.write(
        {
            "uv.lock": UV_LOCK + member,
            "packages/a/pyproject.toml": '[project]\nname = "a"\ndependencies = ["trl>=0.16"]\n',
            "packages/b/pyproject.toml": '[project]\nname = "b"\ndependencies = ["trl>=0.16"]\n',
        }
    )
    assert project.trl("packages/a/src/train.py") == ("0.19.1", "uv.lock:9")
    assert project.trl("packages/b/src/train.py") == (">=0.16", "packages/b/pyproject.toml:3")


def test_disagreements_are_said(project: Project) -> None:
    project.write(
        {
            "uv.lock": UV_LOCK,
            "requirements.txt": "trl==0.18.0\n",
            "pyproject.toml": '[project]\nname = "m"\ndependencies = ["trl>=0.20"]\n',
        }
    )
    assert project.facts().notes == (
        "uv.lock:9 says trl==0.19.1 and requirements.txt:1 says trl==0.18.0; the first is used",
        "uv.lock:9 pins trl 0.19.1, which pyproject.toml:3 (>=0.20) does not allow; the pin is used",
    )


# The script block and notebooks --------------------------------------------------------------------------------------

SCRIPTS = [
    (BLOCK, (">=1.3", "train.py:3")),
    (BLOCK.replace("\n", "\r\n"), (">=1.3", "train.py:3")),
    (BLOCK.replace("trl>=1.3", "trl==1.3.0"), ("1.3.0", "train.py:3")),
    # A script with a block of its own runs in an environment of its own: the project's pin says nothing about it.
    (BLOCK.replace("trl>=1.3", "trl"), ("", "train.py:3")),
    (BLOCK.replace("trl>=1.3", "peft"), ("0.16.0", "requirements.txt:1")),
    (
        BLOCK.replace("# ]", '# ]\n# [tool.uv.sources]\n# trl = { git = "https://x/trl", tag = "v1.9.0" }'),
        ("1.9.0", "train.py:3"),
    ),
    (BLOCK.replace('"trl>=1.3"', '"trl>=1.3'), ("0.16.0", "requirements.txt:1")),
]


@pytest.mark.parametrize(("text", "believed"), SCRIPTS)
def test_script_blocks(project: Project, text: str, believed: tuple[str, str]) -> None:
    project.write({"requirements.txt": "trl==0.16.0\n"})
    (project.root / "train.py").write_bytes(text.encode())
    file = project.root / "train.py"
    facts = gather(
        str(file), head=text.encode(), root=str(project.root), overrides=Overrides(), settings=settings.Settings()
    )
    trl = facts.packages["trl"]
    assert (trl.version or trl.specifier, trl.origin) == believed


def test_a_malformed_script_block_is_a_note(project: Project) -> None:
    (note,) = project.facts(text=BLOCK.replace('"trl>=1.3"', '"trl>=1.3')).notes
    assert note.startswith("train.py:1: the script block is no TOML: ")


def notebook(*cells: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]})


NOTEBOOKS = [
    (("import os", "!pip install -qU trl==0.15.2 peft"), ("0.15.2", "n.ipynb, cell 2")),
    (("%pip install 'trl[vllm]>=0.15'",), (">=0.15", "n.ipynb, cell 1")),
    (("%%bash\npip install trl==0.15.2",), ("0.15.2", "n.ipynb, cell 1")),
    (("%%capture\n!uv pip install \\\n  trl==0.15.2",), ("0.15.2", "n.ipynb, cell 1")),
    (("if colab:\n    !pip install trl==0.15.1", "!pip install --upgrade trl==0.15.2"), ("0.15.2", "n.ipynb, cell 2")),
    (("!pip install trl==0.15.2", "!pip install trl"), ("0.15.2", "n.ipynb, cell 1")),
    (("# !pip install trl==0.15.2",), None),
    (("print('pip install trl==0.15.2')",), None),
    (("!pip install trl=={version}",), None),
    (("# trl-lint: facts trl==0.16.0\n", "!pip install trl==0.15.2"), ("0.16.0", "n.ipynb, cell 1")),
]


@pytest.mark.parametrize(("cells", "believed"), NOTEBOOKS)
def test_notebooks(project: Project, cells: tuple[str, ...], believed: tuple[str, str] | None) -> None:
    assert project.trl("n.ipynb", notebook(*cells)) == believed
    assert project.facts("n.ipynb", notebook(*cells)).notes == ()


def test_a_broken_notebook_says_nothing(project: Project) -> None:
    assert project.trl("n.ipynb", "{ trl-lint: pip install trl==1.0") is None


# The comment ---------------------------------------------------------------------------------------------------------


def test_comment_grammar(project: Project) -> None:
    facts = project.facts(
        text="#!/usr/bin/env python\n# Copyright\n\n"
        "# trl-lint: facts trl==0.18.0 vllm>=0.8,<0.9 flash-attn=installed kernels=not-installed accelerate==1.4.0\n"
        "# trl-lint: facts gpu=A100-80GB n_gpu=4 num_processes=3 nodes=2 zero_stage=3\n"
        '# trl-lint: facts accelerate="distributed_type: FSDP, fsdp_version: 2"\n'
        '# trl-lint: facts launch="accelerate launch --num_processes 4 train.py" server="trl vllm-serve --model M"\n'
        "import trl\n"
        "# trl-lint: facts trl==9.9.9\n"
    )
    assert facts.notes == ()
    assert facts.packages == {
        "accelerate": Fact("accelerate", "==1.4.0", "1.4.0", "declared", "train.py:4"),
        "flash-attn": Fact("flash-attn", "", None, "installed", "train.py:4"),
        "kernels": Fact("kernels", "", None, "not-installed", "train.py:4"),
        "trl": Fact("trl", "==0.18.0", "0.18.0", "declared", "train.py:4"),
        "vllm": Fact("vllm", ">=0.8,<0.9", None, "declared", "train.py:4"),
    }
    assert facts.hardware == Hardware("A100-80GB", 4, "train.py:5")
    assert (facts.processes, facts.processes_origin, facts.nodes, facts.zero_stage) == (3, "train.py:5", 2, 3)
    assert facts.accelerate == "distributed_type: FSDP, fsdp_version: 2"
    assert facts.launch is not None
    assert facts.launch.text == "accelerate launch --num_processes 4 train.py"
    assert facts.launch.before.endswith(b'"distributed_type: FSDP, fsdp_version: 2"\n# trl-lint: facts launch="')
    assert facts.server is not None
    assert facts.server.text == "trl vllm-serve --model M"
    assert facts.server.before.endswith(b' server="')


COMMENT_NOTES = [
    ("model_size=1.4B", "train.py:1: nothing here uses 'model_size'; ignored"),
    ("colour=red", "train.py:1: nothing here uses 'colour'; ignored"),
    ("vllm=0.8.5", "train.py:1: 'vllm=0.8.5' states no version; write vllm==0.8.5; ignored"),
    ("n_gpu=four", "train.py:1: n_gpu wants a number, not 'four'; ignored"),
    ("trl", "train.py:1: 'trl' is neither key=value nor package==version; ignored"),
    ("trl==new", "train.py:1: '==new' is neither a version of trl nor a range of versions; ignored"),
    ('launch="accelerate', "train.py:1: cannot read the facts comment: no closing quotation; the line is ignored"),
]


@pytest.mark.parametrize(("item", "note"), COMMENT_NOTES)
def test_comment_items_that_cannot_be_used(project: Project, item: str, note: str) -> None:
    facts = project.facts(text=f"# trl-lint: facts {item}\n")
    assert facts.notes == (note,)
    assert facts.packages == {}


@pytest.mark.parametrize("name", ["run.sh", "recipe.yaml", "train.py"])
def test_comments_of_every_kind_of_file(project: Project, name: str) -> None:
    assert project.trl(name, "\ufeff# trl-lint: facts trl==0.18.0\r\n") == ("0.18.0", f"{name}:1")


def test_an_installed_package_keeps_the_version_that_a_lock_tells(project: Project) -> None:
    project.write({"requirements.txt": "vllm==0.8.5\n"})
    facts = project.facts(text="# trl-lint: facts vllm=installed\n")
    assert facts.packages["vllm"] == Fact("vllm", "==0.8.5", "0.8.5", "installed", "train.py:1, requirements.txt:1")
    gone = project.facts(text="# trl-lint: facts vllm=not-installed\n")
    assert gone.packages["vllm"] == Fact("vllm", "", None, "not-installed", "train.py:1")


HARDWARE = [
    ("", None, None),
    ("", "a100:8", Hardware("a100", 8, "--gpu")),
    ("gpu=H100 n_gpu=4", "a100", Hardware("a100", None, "--gpu")),
    ("n_gpu=4", "a100", Hardware("a100", 4, "--gpu, train.py:1")),
    ("gpu=H100", None, Hardware("H100", None, "train.py:1")),
    ("n_gpu=2", None, Hardware(None, 2, "train.py:1")),
    ("gpu=none", None, Hardware("none", 0, "train.py:1")),
    ("n_gpu=0", None, Hardware("none", 0, "train.py:1")),
    ("gpu=none(mps) n_gpu=0", None, Hardware("none(mps)", 0, "train.py:1")),
    ("gpu=QuadroRTX6000-24GB(sm_75) n_gpu=1", None, Hardware("QuadroRTX6000-24GB(sm_75)", 1, "train.py:1")),
]


@pytest.mark.parametrize(("items", "given", "hardware"), HARDWARE)
def test_hardware(project: Project, items: str, given: str | None, hardware: Hardware | None) -> None:
    assert project.facts(text=f"# trl-lint: facts {items}\n", gpu=given).hardware == hardware


def test_hardware_of_the_settings(project: Project) -> None:
    project.write({"pyproject.toml": '[tool.trl-lint]\ngpu = "h100:8"\n'})
    assert project.facts().hardware == Hardware("h100", 8, "[tool.trl-lint]")
    assert project.facts(text="# trl-lint: facts n_gpu=4\n").hardware == Hardware(
        "h100", 4, "train.py:1, [tool.trl-lint]"
    )


# Environments --------------------------------------------------------------------------------------------------------


def test_the_environment_beside_the_project(project: Project) -> None:
    project.write({"requirements.txt": "trl>=0.16\nvllm>=0.9\n"})
    environment = project.environment(".venv", trl="0.19.1", vllm="0.8.5", transformers="4.52.0", left_pad="1.0")
    facts = project.facts("a/b/train.py")
    assert facts.packages == {
        "transformers": Fact("transformers", "==4.52.0", "4.52.0", "installed", ".venv"),
        "trl": Fact("trl", "==0.19.1", "0.19.1", "installed", ".venv"),
        "vllm": Fact("vllm", ">=0.9", None, "declared", "requirements.txt:2"),
    }
    assert facts.notes == (".venv holds vllm 0.8.5, which requirements.txt:2 (>=0.9) does not allow: not used",)
    assert facts.source_tree == str(environment / "lib/python3.12/site-packages")
    assert facts.source_version == "0.19.1"


def test_an_environment_with_another_trl_is_not_the_one_that_trains(project: Project) -> None:
    project.write({"requirements.txt": "trl==0.18.0\n"})
    project.environment(".venv", trl="0.19.1", vllm="0.8.5")
    facts = project.facts()
    assert set(facts.packages) == {"trl"}
    assert facts.source_tree is None
    assert facts.notes == (".venv holds trl 0.19.1, which requirements.txt:1 (==0.18.0) does not allow: not used",)
    assert project.facts(text="# trl-lint: facts trl==0.18.0\n").notes == ()


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_activated_environments(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    outside = Project(tmp_path).environment("outside", trl="0.19.1")
    monkeypatch.setenv(variable, str(outside))
    assert project.trl() == ("0.19.1", f"{variable} ({outside})")
    project.write({"requirements.txt": "trl==0.18.0\n", "x/.git/HEAD": ""})
    assert project.facts("x/train.py").packages["trl"].version == "0.19.1"


def test_an_environment_without_trl_says_nothing(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(Project(tmp_path).environment("tools", transformers="4.52.0")))
    assert project.facts().packages == {}


@pytest.mark.parametrize("named", ["", "bin", "bin/python", "lib/python3.12/site-packages"])
def test_the_environment_named_by_hand(project: Project, tmp_path: Path, named: str) -> None:
    project.environment(".venv", trl="0.1.0")
    environment = Project(tmp_path).environment("chosen", trl="0.19.1")
    (environment / "bin").mkdir()
    # As venv makes it: a link to an interpreter elsewhere.
    (environment / "bin" / "python").symlink_to(sys.executable)
    path = str(environment / named)
    assert project.trl(python=path) == ("0.19.1", f"--python {path}")


def test_environments_named_by_hand_that_are_none(project: Project) -> None:
    with pytest.raises(FactsError, match="--python: /no/such is neither an interpreter"):
        project.facts(python="/no/such")
    project.write({"pyproject.toml": '[tool.trl-lint]\npython = "gone/bin/python"\n'})
    (note,) = project.facts().notes
    gone = project.root / "gone/bin/python"
    place = settings.load(str(project.root)).origins["python"]
    assert note == f"{place} ({gone}) is neither an interpreter nor the folder of an environment; ignored"


def test_editable_and_git_installs(project: Project) -> None:
    project.write({"checkout/trl/__init__.py": ""})
    environment = project.environment(".venv", trl="1.10.0.dev0")
    record = environment / "lib/python3.12/site-packages/trl-1.10.0.dev0.dist-info/direct_url.json"
    record.write_text(json.dumps({"url": (project.root / "checkout").as_uri(), "dir_info": {"editable": True}}))
    assert project.facts().source_tree == str(project.root / "checkout")
    other = project.environment("b/.venv", trl="1.10.0.dev0")
    record = other / "lib/python3.12/site-packages/trl-1.10.0.dev0.dist-info/direct_url.json"
    record.write_text(json.dumps({"url": "https://x/trl", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}))
    assert project.facts("b/train.py").packages["trl"].commit == "abc123"


# TRL's own repository ------------------------------------------------------------------------------------------------

OWN = {
    "pyproject.toml": '[project]\nname = "trl"\ndynamic = ["version"]\ndependencies = ["transformers>=4.56.2"]\n',
    "VERSION": "1.10.0.dev0",
    "trl/__init__.py": "",
}


def test_trl_is_judged_as_itself(project: Project) -> None:
    project.write(OWN)
    facts = project.facts("examples/scripts/dpo.py", '# /// script\n# dependencies = ["trl==0.1.0", "peft"]\n# ///\n')
    assert facts.packages["trl"] == Fact(
        "trl", "==1.10.0.dev0", "1.10.0.dev0", "declared", "this repository (1.10.0.dev0)"
    )
    assert facts.packages["peft"].origin == "examples/scripts/dpo.py:2"
    assert (facts.source_tree, facts.source_version) == (str(project.root), "1.10.0.dev0")
    by_hand = project.facts("examples/scripts/dpo.py", packages={"trl": "1.8.0"})
    assert (by_hand.packages["trl"].version, by_hand.source_tree) == ("1.8.0", None)


VERSIONS = [
    {"VERSION": "", "trl/VERSION": "1.9.0\n"},
    {"VERSION": "", "pyproject.toml": '[project]\nname = "trl"\nversion = "1.9.0"\n'},
    {"VERSION": "", "trl/__init__.py": '__version__ = "1.9.0"\n'},
    {"VERSION": "1.9.0\n", "pyproject.toml": "[build-system]\n", "setup.cfg": "[metadata]\nname = trl\n"},
    {"VERSION": "1.9.0\n", "pyproject.toml": "[build-system]\n", "setup.py": 'setup(\n    name="trl",\n)\n'},
]


@pytest.mark.parametrize("files", VERSIONS)
def test_where_trl_keeps_its_version(project: Project, files: dict[str, str]) -> None:
    project.write(OWN | files)
    assert project.trl() == ("1.9.0", "this repository (1.9.0)")


def test_a_folder_called_trl_is_not_its_repository(project: Project) -> None:
    project.write({"pyproject.toml": '[project]\nname = "trl-play"\n', "trl/__init__.py": "", "VERSION": "1.0"})
    assert project.trl() is None


def test_an_editable_install_of_the_repository_may_be_of_an_older_day(project: Project) -> None:
    project.write(OWN)
    environment = project.environment(".venv", trl="1.9.0.dev0", transformers="4.57.0")
    record = environment / "lib/python3.12/site-packages/trl-1.9.0.dev0.dist-info/direct_url.json"
    record.write_text(json.dumps({"url": project.root.as_uri(), "dir_info": {"editable": True}}))
    facts = project.facts()
    assert facts.packages["trl"].version == "1.10.0.dev0"
    assert facts.packages["transformers"].version == "4.57.0"


# Files that cannot be read -------------------------------------------------------------------------------------------

BROKEN = [
    (
        "pyproject.toml",
        '[project]\nname = "m"\ndependencies = ["trl"\n[x]\n',
        "pyproject.toml:4: no TOML: Unclosed array; ignored",
    ),
    (
        "uv.lock",
        '[[package]]\nname = "trl"\nversion = \n',
        "uv.lock:2: the entry of trl is no TOML: Invalid value; ignored",
    ),
    (
        "uv.lock",
        '<<<<<<< HEAD\n[[package]]\nname = "trl"\nversion = "1.0"\n',
        "uv.lock:1: an unresolved merge conflict; ignored",
    ),
    ("requirements.txt", "torch\ntrl==\n", "requirements.txt:2: "),
    ("requirements.txt", "<<<<<<< HEAD\n", "requirements.txt:1: '<<<<<<< HEAD' is no requirement; ignored"),
    ("setup.py", "setup(install_requires=['trl'\n", "setup.py:1: no Python that can be parsed; ignored"),
    ("setup.cfg", "install_requires = trl\n", "setup.cfg:1: no configuration file that configparser reads; ignored"),
    ("environment.yml", "dependencies:\n  - trl: [\n", "environment.yml:3: no YAML that can be parsed; ignored"),
    (
        "pyproject.toml",
        '[tool.poetry.dependencies]\ntrl = "^new"\n',
        "pyproject.toml:2: '^new' is no version constraint of trl; ignored",
    ),
    ("environment.yml", "- a\n- b\n", None),
    ("environment.yml", "", None),
    ("pyproject.toml", 'project = "x"\ntool = 3\ndependency-groups = ["trl"]\n', None),
    ("uv.lock", "\x00\x01", None),
    ("pyproject.toml", "x = " + "[" * 100_000, "pyproject.toml: cannot be read: nested too deeply; ignored"),
]


@pytest.mark.parametrize(("name", "text", "note"), BROKEN)
def test_malformed_files_are_notes(project: Project, name: str, text: str, note: str | None) -> None:
    project.write({name: text})
    facts = project.facts()
    assert [said[: len(note or "")] for said in facts.notes] == ([note] if note else [])
    assert "trl" not in facts.packages


def test_unreadable_files_are_notes(project: Project) -> None:
    (project.root / "requirements.txt").symlink_to("nowhere")
    assert project.facts().notes == ("requirements.txt: cannot be read: No such file or directory; ignored",)


def test_an_override_that_is_no_version_is_an_error(project: Project) -> None:
    with pytest.raises(FactsError, match="--vllm: 'latest' is neither a version of vllm nor a range of versions"):
        project.facts(packages={"vllm": "latest"})
    project.write({"pyproject.toml": '[tool.trl-lint]\ntrl = "latest"\n'})
    with pytest.raises(FactsError, match=r"pyproject\.toml:2: 'latest'"):
        project.facts()


# The rest ------------------------------------------------------------------------------------------------------------


def test_describe(project: Project) -> None:
    project.write({"requirements.txt": f"vllm>=0.8\npeft\ntransformers @ {GIT}@main\n"})
    facts = project.facts(
        text="# trl-lint: facts trl==0.18.0 kernels=not-installed flash-attn=installed gpu=H100:8 nodes=2 x=1\n"
    )
    assert describe(facts) == [
        "trl 0.18.0 (train.py:1)",
        "flash-attn installed (train.py:1)",
        "kernels not installed (train.py:1)",
        "peft any release (requirements.txt:2)",
        "transformers git build main (requirements.txt:3)",
        "vllm >=0.8 (requirements.txt:1)",
        "gpu H100 x 8 (train.py:1)",
        "nodes 2",
        "note: train.py:1: nothing here uses 'x'; ignored",
        "note: requirements.txt:3: transformers is a git build (main): judged as the newest release known",
    ]
    assert describe(Facts(packages={})) == ["trl: any release (nothing says which)"]


def test_nothing_heavy_is_imported_for_a_project_that_says_nothing(project: Project) -> None:
    project.write({"train.py": "import trl\n", "README.md": ""})
    code = (
        "import sys, trl_lint.facts as f, trl_lint.settings as s\n"
        f"f.gather({str(project.root / 'train.py')!r}, head=b'import trl', root={str(project.root)!r},"
        " overrides=f.Overrides(), settings=s.load(sys.argv[0] or '.'))\n"
        "heavy = {'packaging', 'tomllib', 'yaml', 'importlib.metadata', 'json', 'shlex', 'configparser', 'difflib'}\n"
        "heavy |= {'trl_lint.facts.locks', 'trl_lint.facts.manifests', 'trl_lint.facts.environment'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # -S: site may import importlib.metadata for editable installs, before any of our code runs.
    run = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=project.root,
        check=True,
    )
    assert run.stdout.strip() == "[]"


def test_a_script_block_shuts_out_what_the_project_pins(project: Project) -> None:
    project.write({"requirements.txt": "trl==0.16.0\nvllm==0.8.1\n"})
    file = project.root / "train.py"
    file.write_bytes(BLOCK.encode())
    found = gather(
        str(file), head=BLOCK.encode(), root=str(project.root), overrides=Overrides(), settings=settings.Settings()
    )
    assert found.packages["vllm"].state == "not-installed"  # the block is the whole environment


HEADED = '# /// script\n# dependencies = ["trl>=1.0", "peft"]\n# ///\n'


def test_a_header_that_the_launcher_does_not_read(project: Project) -> None:
    file = project.root / "train.py"

    def believed(*, header: bool) -> Facts:
        return gather(
            str(file), head=HEADED.encode(), root=str(project.root), overrides=Overrides(), settings=settings.Settings(),
            header=header,
        )  # fmt: skip

    project.write({"train.py": HEADED, "requirements.txt": "trl==0.18.0\nvllm==0.8.5\n"})
    assert believed(header=True).packages["trl"].specifier == ">=1.0"
    assert believed(header=False).packages["trl"].version == "0.18.0"
    assert believed(header=False).packages["vllm"].version == "0.8.5"
    # Where the project says nothing of TRL, what the script asks for is the best there is; the rest may be there or not.
    project.write({"requirements.txt": "vllm==0.8.5\n"})
    assert believed(header=False).packages["trl"].specifier == ">=1.0"
    assert believed(header=False).packages["vllm"].version == "0.8.5"
    project.write({"requirements.txt": "trl[vllm]\n"})
    assert believed(header=False).packages["trl"].extras == ("vllm",)


@pytest.mark.parametrize(
    ("cells", "state"),
    [
        (("!pip install -q trl peft bitsandbytes",), "not-installed"),
        (("!pip install trl[vllm]",), None),
        (("!pip install trl", "# vLLM is there already"), None),
        (("!pip install trl -r more.txt",), None),
        (("!pip install trl\n!pip install -e .",), None),
        (("!pip install peft",), None),
    ],
)
def test_a_notebook_that_installs_all_but_vllm(project: Project, cells: tuple[str, ...], state: str | None) -> None:
    fact = project.facts("n.ipynb", notebook(*cells)).packages.get("vllm")
    assert (fact.state if fact is not None else None) == state


def test_prose_and_pictures_are_no_code_that_speaks_of_vllm(project: Project) -> None:
    picture = {"cell_type": "markdown", "source": "![](data:image/png;base64,AvLLmA==) Like the vLLM recipe"}
    text = json.dumps({"cells": [picture, {"cell_type": "code", "source": "!pip install trl"}]})
    assert project.facts("n.ipynb", text).packages["vllm"].state == "not-installed"


def test_our_own_environment_holds_what_pythonpath_adds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trl-1.16.0.dist-info").mkdir()
    (tmp_path / "liger_kernel-0.8.5.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    read_environment.cache_clear()
    own = read_environment(sys.prefix)
    assert own is not None
    assert (own.versions["trl"], own.versions["liger-kernel"]) == ("1.16.0", "0.8.5")
    read_environment.cache_clear()
