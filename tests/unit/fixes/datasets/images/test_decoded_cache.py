"""Decoded images are kept: decoded once, for all workers, and for the next run."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import unstarve
from image_folders import break_image, make_folder
from sample_images import image
from unstarve.errors import CacheTooLargeError
from unstarve.fixes.datasets.images import image_codec


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "images", 20)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images were decoded in this process, one entry each."""
    count: list[int] = []
    decode = image_codec.decode_whole

    def counted(image: Any, *, upright: bool) -> torch.Tensor:
        count.append(1)
        return decode(image, upright=upright)

    monkeypatch.setattr(image_codec, "decode_whole", counted)
    return count


def epoch(loader: Any, seed: int = 2) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.cat([images for images, _ in loader])


@pytest.mark.parametrize("crop", ["random_resized", "center", None])
def test_kept_images_are_cut_as_decoded_ones(root: Path, crop: Any) -> None:
    plain = unstarve.ImageFolderDataset(root, 24, crop)
    kept = unstarve.ImageFolderDataset(root, 24, crop, cache="ram")
    expected = epoch(DataLoader(plain, batch_size=4))
    for _ in range(2):
        assert (epoch(DataLoader(kept, batch_size=4)) - expected).abs().mean() < 1 / 255


def test_each_is_decoded_once(root: Path, decoded: list[int]) -> None:
    dataset = unstarve.ImageFolderDataset(root, size=24, cache="ram")
    loader = unstarve.DataLoader(dataset, batch_size=4, num_workers=2)
    for _ in range(3):
        list(loader)
    assert len(decoded) == 20
    assert "in memory" in repr(dataset)


def test_worker_processes_fill_one_copy(root: Path, decoded: list[int]) -> None:
    dataset = unstarve.ImageFolderDataset(root, size=24, cache="ram")
    list(DataLoader(dataset, batch_size=4, num_workers=2))
    here = len(decoded)
    list(DataLoader(dataset, batch_size=4))
    assert len(decoded) == here


def test_the_next_run_finds_the_file(root: Path, tmp_path: Path, decoded: list[int]) -> None:
    options: dict[str, Any] = {"size": 24, "cache": "disk", "cache_dir": tmp_path / "cache"}
    first = epoch(DataLoader(unstarve.ImageFolderDataset(root, **options), batch_size=4))
    gc.collect()  # the file gets its name when nobody fills it any more
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".cache"]
    decoded.clear()
    again = unstarve.ImageFolderDataset(root, **options)
    probed = len(decoded)
    assert torch.equal(epoch(DataLoader(again, batch_size=4)), first)
    assert len(decoded) == probed
    assert str(tmp_path / "cache") in repr(again)


@pytest.mark.filterwarnings("ignore:.*cannot be decoded.*:RuntimeWarning")
def test_a_mended_image_is_noticed(root: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "size": 24,
        "cache": "disk",
        "cache_dir": tmp_path / "cache",
        "on_error": "skip",
    }
    dataset = unstarve.ImageFolderDataset(root, **options)
    path = Path(dataset.samples[3][0])
    good = path.read_bytes()
    break_image(path)
    dataset = unstarve.ImageFolderDataset(root, key="mine", **options)
    assert len(epoch(DataLoader(dataset, batch_size=10))) == 19
    path.write_bytes(good)
    assert len(epoch(DataLoader(dataset, batch_size=10))) == 20


def test_a_budget_is_kept(root: Path, decoded: list[int]) -> None:
    with pytest.raises(CacheTooLargeError, match="20 samples"):
        unstarve.ImageFolderDataset(root, cache="ram", budget="20KB")
    dataset = unstarve.ImageFolderDataset(root, size=24, cache="ram", budget="50KB", over_budget="partial")
    loader = DataLoader(dataset, batch_size=4)
    expected = epoch(DataLoader(unstarve.ImageFolderDataset(root, size=24), batch_size=4))
    for _ in range(2):
        assert (epoch(loader) - expected).abs().mean() < 1 / 255
    assert "of them in memory" in repr(dataset)


@pytest.mark.parametrize("key", [None, "mine"])
def test_images_that_are_turned_and_as_stored_are_kept_apart(tmp_path: Path, key: str | None) -> None:
    root = tmp_path / "images"
    (root / "class").mkdir(parents=True)
    (root / "class" / "turned.jpg").write_bytes(image(40, 60, orientation=3))
    made = []
    for _ in range(2):
        for exif in (True, False):
            kept = unstarve.ImageFolderDataset(
                root, (40, 60), None, exif=exif, cache="disk", cache_dir=tmp_path / "kept", key=key
            )
            made.append(kept[0][0])
    turned, stored, *again = made
    assert (turned - stored).abs().mean() > 0.05
    assert (turned - stored.flip(1, 2)).abs().mean() < 1 / 255
    assert torch.equal(turned, again[0])
    assert torch.equal(stored, again[1])
