"""Saved settings reach loaders at construction, by where they are made, and nothing else changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data import dataloader as stock

from image_folders import make_folder
from torchvision_here import torchvision_here
from unstarve.collect.describe import loader_config
from unstarve.collect.loader_origin import creation
from unstarve.fixes.datasets.images import gpu_decoder
from unstarve.fixes.loader.engines.thread_iterator import ThreadIterator
from unstarve.model import Place, SavedLoader
from unstarve.steer.saved_settings import Twins, create_with_saved, digest, iterate_with_parts, place_of

# torch warns of more workers than the machine has cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def apply(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Save settings for this file's loaders; the problems that come up."""
    monkeypatch.setattr(stock.DataLoader, "__iter__", iterate_with_parts(stock.DataLoader.__iter__))

    def apply(*saved: SavedLoader) -> list[str]:
        problems: list[str] = []
        wrapper = create_with_saved(stock.DataLoader.__init__, saved, problems.append)
        monkeypatch.setattr(stock.DataLoader, "__init__", wrapper)
        return problems

    return apply


def here(line_of: Callable[..., Any], name: str, **settings: int | bool) -> SavedLoader:
    """Settings for the loader that a function of this file assigns to `name`."""
    lines = Path(__file__).read_text().splitlines()
    first = line_of.__code__.co_firstlineno
    line = next(n for n in range(first, len(lines)) if lines[n].strip().startswith(f"{name} ="))
    return SavedLoader(Place(__file__, line + 1, name=name), settings)


def make(**arguments: Any) -> tuple[DataLoader[Any], DataLoader[Any]]:
    train = DataLoader([1, 2, 3, 4], batch_size=2, **arguments)
    other = DataLoader([1, 2, 3, 4], 2, False, None, None, 1)
    return train, other


def test_the_loader_of_that_place_has_them_and_others_do_not(apply: Callable[..., list[str]]) -> None:
    assert apply(here(make, "train", num_workers=3, prefetch_factor=5, pin_memory=False)) == []
    train, other = make()
    assert (train.num_workers, train.prefetch_factor, train.batch_size) == (3, 5, 2)
    assert (other.num_workers, other.prefetch_factor) == (1, 2)
    assert loader_config(train)["applied"] == "num_workers 0 → 3, prefetch_factor None → 5"
    assert loader_config(train)["applied_entry"] == 0
    assert "applied" not in loader_config(other)


def test_arguments_given_by_position_are_changed(apply: Callable[..., list[str]]) -> None:
    apply(here(make, "other", num_workers=2))
    assert make()[1].num_workers == 2


def test_without_workers_what_needs_them_is_unset(apply: Callable[..., list[str]]) -> None:
    problems = apply(here(make, "train", num_workers=0))
    train, _ = make(num_workers=2, prefetch_factor=3, persistent_workers=True, timeout=5)
    assert (train.num_workers, train.prefetch_factor, train.persistent_workers, train.timeout) == (
        0,
        None,
        False,
        0,
    )
    assert problems == []


def test_prefetching_for_a_loader_without_workers_changes_nothing(apply: Callable[..., list[str]]) -> None:
    apply(here(make, "train", prefetch_factor=4))
    train, _ = make()
    assert (train.num_workers, train.prefetch_factor) == (0, None)
    assert loader_config(train)["applied"] == "unchanged"


def test_the_scripts_own_mistake_stays_its_own(apply: Callable[..., list[str]]) -> None:
    problems = apply(here(make, "train", num_workers=1))
    with pytest.raises(TypeError, match="colour"):
        make(colour=3)
    assert problems == []


def test_what_torch_refuses_is_told_and_the_scripts_own_arguments_stand(
    apply: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = stock.DataLoader.__init__

    @functools.wraps(original)
    def picky(self: Any, *args: Any, **kwargs: Any) -> None:
        self.half_made = True
        if kwargs.get("num_workers") == 7:
            raise ValueError("seven is too many")
        original(self, *args, **kwargs)

    monkeypatch.setattr(stock.DataLoader, "__init__", picky)
    problems = apply(here(make, "train", num_workers=7))
    train, _ = make(num_workers=1)
    assert train.num_workers == 1
    assert problems == ["saved settings were not applied to a loader: seven is too many"]
    assert "applied" not in loader_config(train)


def make_images(root: Path, *steps: Any, **arguments: Any) -> tuple[DataLoader[Any], DataLoader[Any]]:
    vision = torchvision_here()
    transforms = vision.transforms
    crop = transforms.Compose([transforms.RandomResizedCrop(16), *steps, transforms.ToTensor()])
    folder = vision.datasets.ImageFolder(make_folder(root, count=12, classes=12), crop)
    imaged = DataLoader(folder, batch_size=5, **arguments)
    beside = DataLoader(folder, batch_size=5)
    return imaged, beside


def test_images_are_read_by_unstarve_and_the_dataset_stays_the_scripts(
    apply: Callable[..., list[str]], tmp_path: Path
) -> None:
    problems = apply(here(make_images, "imaged", num_workers=2, images=True))
    imaged, beside = make_images(tmp_path)
    assert type(imaged.dataset).__name__ == "ImageFolder"
    epochs = [iter(imaged), iter(imaged)]
    assert all(isinstance(epoch, ThreadIterator) for epoch in epochs)
    assert not isinstance(iter(beside), ThreadIterator)
    for epoch in epochs:
        assert [target for _, targets in epoch for target in targets.tolist()] == list(range(12))
    assert loader_config(imaged)["engine"] == "threads"
    assert loader_config(imaged)["applied"] == "images read by unstarve, num_workers 0 → 2"
    assert problems == []


def test_what_needs_a_gpu_is_left_to_the_script_where_there_is_none(
    apply: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = apply(here(make_images, "imaged", num_workers=2, gpu_images=True))
    monkeypatch.setattr(gpu_decoder, "why_no_gpu", lambda: "there is no CUDA device")
    imaged, _ = make_images(tmp_path)
    assert not isinstance(iter(imaged), ThreadIterator)
    assert "the images cannot be decoded on the GPU: there is no CUDA device" in problems[0]
    monkeypatch.setattr(gpu_decoder, "why_no_gpu", lambda: None)
    imaged, _ = make_images(tmp_path / "again")
    assert loader_config(imaged)["applied"] == "images decoded by the GPU, num_workers 0 → 2"


def test_images_that_unstarve_cannot_read_are_told_and_left_to_the_script(
    apply: Callable[..., list[str]], tmp_path: Path
) -> None:
    problems = apply(here(make_images, "imaged", num_workers=2, images=True))
    imaged, _ = make_images(tmp_path, torchvision_here().transforms.ColorJitter())
    assert imaged.num_workers == 0
    assert not isinstance(iter(imaged), ThreadIterator)
    (problem,) = problems
    assert "ColorJitter" in problem
    assert "applied" not in loader_config(imaged)


class Counted(Dataset[Any]):
    def __init__(self) -> None:
        self.fetched = 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        self.fetched += 1
        return torch.full((2,), float(index)), index


def make_counted() -> tuple[DataLoader[Any]]:
    counted = DataLoader(Counted(), batch_size=2, shuffle=True)
    return (counted,)


def batches(loader: DataLoader[Any], epochs: int = 3) -> list[Any]:
    torch.manual_seed(3)
    return [[x.tolist(), y.tolist()] for _ in range(epochs) for x, y in loader]


def test_samples_are_kept_and_the_dataset_stays_the_scripts(apply: Callable[..., list[str]]) -> None:
    plain = batches(*make_counted())
    problems = apply(here(make_counted, "counted", cached=True))
    (loader,) = make_counted()
    assert batches(loader) == plain
    assert isinstance(loader.dataset, Counted)
    fetched = loader.dataset.fetched
    assert batches(loader) == plain
    assert loader.dataset.fetched == fetched
    assert loader_config(loader)["applied"] == "samples kept in memory, unchanged"
    assert problems == []


def make_rows() -> tuple[DataLoader[Any]]:
    rows = DataLoader(TensorDataset(torch.arange(12).reshape(6, 2), torch.arange(6)), 2, shuffle=True)
    return (rows,)


def test_rows_in_memory_are_gathered(apply: Callable[..., list[str]]) -> None:
    plain = batches(*make_rows())
    assert apply(here(make_rows, "rows", gather=True)) == []
    (loader,) = make_rows()
    assert batches(loader) == plain
    assert loader_config(loader)["engine"] == "gather"


def test_what_cannot_be_kept_is_told_and_left_to_the_script(apply: Callable[..., list[str]]) -> None:
    problems = apply(here(make_rows, "rows", cached=True))
    assert len(batches(*make_rows())) == 9
    (problem,) = problems
    assert "in memory, or are read by unstarve, already" in problem


class Mine(DataLoader[Any]):
    def __init__(self, data: Any) -> None:
        self.kept = "mine"
        super().__init__(data, num_workers=1)


def test_a_subclass_is_changed_where_it_calls_torch(apply: Callable[..., list[str]]) -> None:
    line = next(
        n
        for n, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "super().__init__(data, num" in text
    )
    apply(SavedLoader(Place(__file__, line), {"num_workers": 2}))
    mine = Mine([1, 2])
    assert (mine.num_workers, mine.kept) == (2, "mine")


def where() -> Place:
    return place_of(
        creation(), "where", [1, 2],
    )  # fmt: skip


def test_a_place_is_known_by_its_function_its_variable_and_its_call() -> None:
    place = place_of(creation(), "DataLoader", [1, 2])
    assert (place.file, place.name, place.dataset) == (__file__, "place", "list[2]")
    assert place.function == "test_a_place_is_known_by_its_function_its_variable_and_its_call"
    assert place.call == digest('place_of(creation(), "DataLoader", [1,  2])')
    spread = where()
    assert spread.call == digest('place_of(creation(), "where", [1, 2],)')
    assert spread.name is None
    assert spread.span is not None
    assert spread.span.end_line == spread.span.line + 2


def test_loaders_of_equal_datasets_are_numbered_while_they_exist() -> None:
    twins, place = Twins(), Place("train.py", 3, dataset="list[2]")
    first, second = [1, 2], [3, 4]
    loaders = [DataLoader(first), DataLoader(second), DataLoader(first)]
    datasets = [loader.dataset for loader in loaders]
    assert [twins.number(place, *pair) for pair in zip(loaders, datasets, strict=True)] == [1, 2, 1]
    del loaders[1]
    assert twins.number(place, loaders[0], [5, 6]) == 2
    assert twins.number(Place("train.py", 4), loaders[0], first) == 1
