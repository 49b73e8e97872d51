"""What docs/images.md shows runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from image_folders import make_folder

PAGE = Path(__file__).parents[5] / "docs" / "images.md"
_NOT_RUN = "<!-- not run"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "train")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"torch": torch}
    examples = re.findall(r"(<!--[^\n]*-->\n)?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) > 5
    for comment, code in examples:
        if not comment.startswith(_NOT_RUN):
            exec(compile(code, str(PAGE), "exec"), names)
    assert len(list(names["loader"])) == 2
    assert names["kept"][0][0].shape == (3, 224, 224)
