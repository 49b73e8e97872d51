"""Classes, files and errors are those of torchvision's ImageFolder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import unstarve
from image_folders import make_folder
from torchvision_here import torchvision_here
from unstarve.fixes.datasets.images.image_folder_dataset import find_images


def odd_folder(root: Path) -> Path:
    make_folder(root)
    (root / "a file.jpg").write_text("beside the classes")
    (root / "0" / "notes.txt").write_text("no image")
    (root / "1" / "UPPER.JPG").write_text("named like one")
    (root / "1" / ".hidden.png").write_text("hidden")
    (root / "Zebra" / "a" / "b").mkdir(parents=True)
    (root / "Zebra" / "a" / "b" / "1.webp").write_text("deep")
    (root / "Zebra" / "a.bmp").write_text("beside a folder of nearly its name")
    (root / "linked").symlink_to(root / "1")
    return root


@pytest.mark.parametrize("valid", [None, lambda path: "0" in path or "e" in path])
@pytest.mark.parametrize("as_path", [False, True])
def test_the_same_samples_in_the_same_order(
    tmp_path: Path, valid: Callable[[str], bool] | None, as_path: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    vision = torchvision_here()
    odd_folder(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    root = Path("data") if as_path else "./data"
    theirs = vision.datasets.ImageFolder(root, is_valid_file=valid)
    ours = unstarve.ImageFolderDataset(root, is_valid_file=valid)
    assert ours.samples == theirs.samples
    assert ours.imgs == theirs.imgs
    assert ours.targets == theirs.targets
    assert ours.classes == theirs.classes
    assert ours.class_to_idx == theirs.class_to_idx
    assert len(ours) == len(theirs)


def test_the_same_errors(tmp_path: Path) -> None:
    vision = torchvision_here()
    (tmp_path / "no classes").mkdir()
    (tmp_path / "empty ones" / "b").mkdir(parents=True)
    (tmp_path / "empty ones" / "a").mkdir(parents=True)
    for name in ("no classes", "empty ones", "not there"):
        with pytest.raises(FileNotFoundError) as theirs:
            vision.datasets.ImageFolder(tmp_path / name)
        with pytest.raises(FileNotFoundError) as ours:
            unstarve.ImageFolderDataset(tmp_path / name)
        assert str(ours.value) == str(theirs.value)


def test_empty_classes_may_be_allowed(tmp_path: Path) -> None:
    make_folder(tmp_path, 4)
    (tmp_path / "000").mkdir()
    found = find_images(tmp_path, allow_empty=True)
    assert found.classes == ["0", "000", "1"]
    assert set(found.targets) == {0, 2}


def test_a_folder_of_nothing_but_empty_classes_is_a_dataset_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    dataset = unstarve.ImageFolderDataset(tmp_path, allow_empty=True, on_error="skip", cache="ram")
    assert (len(dataset), dataset.samples, dataset.targets, dataset.failed) == (0, [], [], [])
