"""The fuzz entries run, and what breaks is noticed, kept and can be tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import entry
from tests.properties.texts import KINDS, texts


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_tried_from_a_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(min((t for t in texts(kind) if "trl" in t), key=len).encode())
    assert entry.main([kind, "--file", str(path)]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_are_files(kind: str, tmp_path: Path) -> None:
    entry.seeds(kind, tmp_path, 5)
    assert 1 < len(list(tmp_path.iterdir())) <= 5


def test_what_breaks_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(kind: str, data: bytes) -> None:
        raise AssertionError(kind)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entry, "tried", breaks)
    with pytest.raises(AssertionError, match="makefile"):
        entry.blind("makefile", 5, 0)
    assert (tmp_path / "crash-makefile").exists()
