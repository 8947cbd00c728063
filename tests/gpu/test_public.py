"""Of a published script only the model's place and the data become others."""

from __future__ import annotations

from pathlib import Path

import pytest
from public import PUBLIC, project


@pytest.mark.parametrize("name", PUBLIC)
def test_the_folder_holds_what_the_script_asks_for(name: str, tmp_path: Path) -> None:
    public = PUBLIC[name]
    model = tmp_path / "model"
    model.mkdir()
    (tmp_path / "project").mkdir()
    # The published text is not ours to keep; these are the places of it that are changed.
    original = "\n".join(before for before, _ in public.edits) + "\nfp16=True\n"
    text = project(public, original, tmp_path / "project", model, cpu=False)
    assert text.count("from hub import load_dataset") == 1
    assert "fp16=True" in text
    assert not any(before in text for before, after in public.edits if before not in after)
    assert (tmp_path / "project" / "train.py").read_text() == text
    assert (tmp_path / "project" / public.model).resolve() == model
    assert {"hub.py", "texts.py", "pyproject.toml"} <= {path.name for path in (tmp_path / "project").iterdir()}
    with pytest.raises(ValueError, match="stands 0 times"):
        project(public, "print()", tmp_path, model, cpu=False)
