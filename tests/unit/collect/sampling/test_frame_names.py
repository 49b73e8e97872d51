"""Whatever makes the batches, and wherever a look falls: no function of unstarve is named."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import unstarve
from image_folders import make_folder
from unstarve.collect.sampling import frame_names
from unstarve.collect.sampling.frame_names import Name, name_of_callable, name_of_dataset
from unstarve.collect.sampling.stack_sampler import _place
from unstarve.launch.hooks import detach

OURS = str(Path(unstarve.__file__).parent)
PUBLIC = {f"unstarve.{name}" for name in unstarve.__all__}
ROWS = torch.arange(32.0).reshape(16, 2)


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return ROWS[index]


class Batches(Rows):
    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [ROWS[index] for index in indices]


class InC(list[Any]):
    """A dataset without a line of Python."""


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from ROWS


class StreamInC(IterableDataset[Any]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(list(ROWS))


def images(folder: Path) -> unstarve.ImageFolderDataset:
    return unstarve.ImageFolderDataset(make_folder(folder / "images"), size=16)


MAKERS: dict[str, tuple[Callable[[Path, int], Iterable[Any]], set[str]]] = {
    "a list": (lambda _, w: DataLoader(InC(ROWS), 4, num_workers=w), {"InC.__getitem__"}),
    "a tensor dataset": (
        lambda _, w: DataLoader(TensorDataset(ROWS), 4, num_workers=w),
        {"TensorDataset.__getitem__"},
    ),
    "a part of a dataset": (
        lambda _, w: DataLoader(Subset(Rows(), range(8)), 4, num_workers=w),
        {"Rows.__getitem__"},
    ),
    "samples": (lambda _, w: DataLoader(Rows(), 4, num_workers=w), {"Rows.__getitem__", "default_collate"}),
    "single samples": (
        lambda _, w: DataLoader(Rows(), batch_size=None, num_workers=w),
        {"Rows.__getitem__", "default_convert"},
    ),
    "whole batches": (lambda _, w: DataLoader(Batches(), 4, num_workers=w), {"Batches.__getitems__"}),
    "a collate function in C": (
        lambda _, w: DataLoader(Rows(), 4, num_workers=w, collate_fn=torch.stack),
        {"Rows.__getitem__", "stack"},
    ),
    "a stream": (lambda _, w: DataLoader(Stream(), 4, num_workers=w), {"Stream.__iter__"}),
    "a stream in C": (lambda _, w: DataLoader(StreamInC(), 4, num_workers=w), {"StreamInC.__iter__"}),
    "an unknown loader": (lambda _, w: unstarve.watch([ROWS, ROWS]), set()),
    "views": (lambda _, w: unstarve.DataLoader(TensorDataset(ROWS), 4, engine="views"), set()),
    "gather": (lambda _, w: unstarve.DataLoader(TensorDataset(ROWS), 4, engine="gather"), set()),
    "threads": (
        lambda folder, w: unstarve.DataLoader(images(folder), 4, num_workers=max(w, 1), engine="threads"),
        set(),
    ),
    "ring": (
        lambda _, w: unstarve.DataLoader(Rows(), 4, num_workers=max(w, 1), engine="ring"),
        {"Rows.__getitem__", "unstarve.DataLoader"},
    ),
    "stock": (
        lambda _, w: unstarve.DataLoader(Rows(), 4, num_workers=w, engine="stock"),
        {"Rows.__getitem__"},
    ),
    "a cache": (
        lambda _, w: DataLoader(unstarve.CachedDataset(Rows(), fill="lazy"), 4, num_workers=w),
        {"Rows.__getitem__", "unstarve.CachedDataset"},
    ),
    "images": (
        lambda folder, w: DataLoader(images(folder), 4, num_workers=w),
        {"unstarve.ImageFolderDataset"},
    ),
    "samples ahead of time": (
        lambda _, w: DataLoader(unstarve.AsyncPrefetchDataset(Rows()), 4, num_workers=w),
        {"unstarve.AsyncPrefetchDataset"},
    ),
}


class Looks:
    """Looks at every call of the thread that turns it on, and of the workers that are forked from it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._seen: set[tuple[str, str, str]] = set()

    def __call__(self, frame: FrameType, _event: str, _argument: Any) -> None:
        key = _place(frame, True, runs_python=True)
        if key is not None and key[:3] not in self._seen:
            self._seen.add(key[:3])
            os.write(self._fd, (json.dumps(key[:3]) + "\n").encode())  # a worker ends without notice

    def found(self) -> list[tuple[str, str, str]]:
        os.close(self._fd)
        return [tuple(json.loads(line)) for line in self._path.read_text().splitlines()]


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    yield
    detach()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("case", MAKERS)
@pytest.mark.filterwarnings("ignore:AsyncPrefetchDataset fetches without threads")
def test_no_function_of_ours_is_named(
    case: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a profiler's function removes from a frame's variables is gone for the function that it watches.
    monkeypatch.setattr(frame_names, "values_in", lambda frame, names: [frame.f_locals[n] for n in names])
    make, expected = MAKERS[case]
    looks = Looks(tmp_path / "looks")
    with unstarve.recording(tmp_path / "a.unstarve") as recorded:
        loader = make(tmp_path, workers)
        sys.setprofile(looks)
        try:
            for _ in range(2):
                for _batch in loader:
                    pass
        finally:
            sys.setprofile(None)
    found = looks.found()
    assert [one for one in found if one[2].startswith(OURS)] == []
    public = {function for _, function, file in found if file == "unstarve"}
    assert public <= PUBLIC
    made = {function for place, function, _ in found if place in ("fetch", "collate")}
    assert expected <= made | public
    assert not any(cost.file.startswith(OURS) for cost in recorded.diagnosis.functions)


def test_a_function_in_c_has_its_modules_name_for_a_file() -> None:
    assert name_of_dataset([1]) == Name("list.__getitem__", "builtins", 0)
    assert name_of_callable(len) == Name("len", "builtins", 0)
    assert name_of_callable(dict) == Name("dict", "builtins", 0)


def test_a_python_function_is_where_its_source_is() -> None:
    code = Rows.__getitem__.__code__
    here = Name("Rows.__getitem__", __file__, code.co_firstlineno)
    assert name_of_dataset(Rows()) == here
    assert name_of_callable(Rows().__getitem__) == here
    assert name_of_callable(functools.partial(Rows.__getitem__, Rows())) == here


def test_an_object_that_is_called_has_the_name_of_its_class() -> None:
    class Pad:
        def __call__(self, samples: list[Any]) -> list[Any]:
            return samples

    name = name_of_callable(Pad())
    assert name.function.endswith("Pad.__call__")
    assert name.file == __file__


def test_the_step_of_a_lab_is_the_learners_code() -> None:
    """Otherwise a training that computes would seem to spend its time in the Python of its loop."""
    assert not frame_names.kind_of("unstarve.labs.step") & frame_names.OURS
    assert frame_names.kind_of("unstarve.labs.workload") & frame_names.OURS
