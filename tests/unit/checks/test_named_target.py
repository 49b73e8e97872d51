"""What a name such as ``data.py:make`` stands for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unstarve.checks.named_target import resolve
from unstarve.errors import UsageError


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_data.py").write_text(
        "from torch.utils.data import DataLoader, Subset\n"
        "class Box:\n    loader = DataLoader([1])\n"
        "box, train_set, settings = Box(), Subset([1], [0]), {}\n"
        "def make():\n    return [box.loader]\n"
        "def needs(path):\n    pass\n"
        "def fails():\n    raise KeyError('its own')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "named_data", raising=False)


@pytest.mark.parametrize("place", ["named_data.py", "named_data", "./named_data.py"])
def test_attributes_are_found_and_functions_called(place: str) -> None:
    loader, name = resolve(f"{place}:box.loader")
    assert name == "loader"
    assert resolve(f"{place}:make") == ([loader], "make()")


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("named_data:third", "named_data has no third; it has train_set"),
        ("named_data:needs", r"needs\(\) cannot be called without arguments"),
        ("named_data:Box", "Box is a class"),
        ("nowhere.data:x", "no module nowhere.data in"),
        ("nowhere.py:x", "no file nowhere.py in"),
    ],
)
def test_what_is_wrong_with_a_name_is_a_sentence(target: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        resolve(target)


def test_the_users_own_error_is_raised_as_it_is() -> None:
    with pytest.raises(KeyError, match="its own"):
        resolve("named_data:fails")
