"""Loaders as careful people write them: the checks have nothing to say."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.checked import findings, first_batches
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)


class Flip:
    """Draws from torch's global generator, which torch seeds in each worker."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image.flip(-1) if torch.rand(()) < 0.5 else image + np.random.rand() + random.random()


class Folder(Dataset[Any]):
    """Opens a file for each sample."""

    def __init__(self, root: Path, transform: Any = None) -> None:
        self.samples = [(str(path), index % 2) for index, path in enumerate(sorted(root.iterdir()))]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        image = torch.from_numpy(np.fromfile(path, dtype=np.uint8).reshape(3, 4, 4)).float()
        return (self.transform(image) if self.transform else image), label


class Split(IterableDataset[Any]):
    def __init__(self, shards: list[list[int]], seed: int = 0) -> None:
        self.shards, self.seed = shards, seed

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        shards = list(self.shards)
        random.Random(self.seed).shuffle(shards)
        for shard in shards[worker::workers]:
            yield from (torch.tensor(value) for value in shard)


class Stage:
    """One stage of a pipeline, as webdataset has them."""

    def __init__(self, source: Any, function: Callable[[Any], Iterator[Any]]) -> None:
        self.source, self.function = source, function

    def __iter__(self) -> Iterator[Any]:
        return self.function(iter(self.source))


def split_by_worker(source: Iterator[Any]) -> Iterator[Any]:
    info = get_worker_info()
    for index, shard in enumerate(source):
        if info is None or index % info.num_workers == info.id:
            yield shard


def samples_of(shards: Iterator[Any]) -> Iterator[Any]:
    for shard in shards:
        yield from ({"x": torch.tensor([shard, index])} for index in range(8))


class Pipeline(IterableDataset[Any]):
    def __init__(self, *stages: Any) -> None:
        self.stages = stages

    def __iter__(self) -> Iterator[Any]:
        return iter(self.stages[-1])


class Rows(Dataset[Any]):
    """Columns in memory, rows as dicts, several at once: as Hugging Face's datasets."""

    def __init__(self) -> None:
        self.columns = {"input_ids": np.arange(160).reshape(40, 4), "label": np.arange(40)}
        self._fingerprint, self._format = "a1b2", None

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self.columns.items()}

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]


class Lazy(Rows):
    """Opens its file in the worker, on first use."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self._file = path, None

    @property
    def file(self) -> Any:
        if self._file is None:
            self._file = np.memmap(self.path, dtype=np.uint8, mode="r")
        return self._file

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.from_numpy(self.file[index : index + 2].copy())}


def seed_worker(worker_id: int) -> None:
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def padded(samples: list[Any], length: int) -> Any:
    return torch.nn.functional.pad(default_collate([sample["input_ids"] for sample in samples]), (0, length))


def tensors(folder: Path) -> DataLoader[Any]:
    return DataLoader(
        TensorDataset(torch.randn(40, 3), torch.arange(40)), batch_size=8, shuffle=True, num_workers=2
    )


def images(folder: Path) -> DataLoader[Any]:
    return DataLoader(Folder(folder, Flip()), 4, shuffle=True, num_workers=2, worker_init_fn=seed_worker)


def split_stream(folder: Path) -> DataLoader[Any]:
    return DataLoader(Split([list(range(8 * i, 8 * i + 8)) for i in range(4)]), batch_size=4, num_workers=2)


def pipeline(folder: Path) -> DataLoader[Any]:
    shards = Stage(range(6), split_by_worker)
    return DataLoader(Pipeline(shards, Stage(shards, samples_of)), batch_size=4, num_workers=2)


def generator_in_sampler(folder: Path) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    return DataLoader(
        Rows(), 8, sampler=RandomSampler(Rows(), generator=generator), generator=generator, num_workers=2
    )


def rows(folder: Path) -> DataLoader[Any]:
    return DataLoader(Rows(), 8, shuffle=True, num_workers=2, drop_last=True)


def persistent(folder: Path) -> DataLoader[Any]:
    return DataLoader(
        Lazy(next(folder.iterdir())), 8, num_workers=2, persistent_workers=True, prefetch_factor=4
    )


def batch_sampler(folder: Path) -> DataLoader[Any]:
    weights = WeightedRandomSampler([1.0] * 40, 40)
    return DataLoader(Rows(), batch_sampler=BatchSampler(weights, 8, drop_last=False), num_workers=2)


def own_collate(folder: Path) -> DataLoader[Any]:
    return DataLoader(Rows(), 8, collate_fn=functools.partial(padded, length=2), num_workers=2)


def parts(folder: Path) -> DataLoader[Any]:
    part, _ = random_split(Rows(), [30, 10])
    return DataLoader(ConcatDataset([part, Subset(Rows(), range(5))]), 8, shuffle=True, num_workers=2)


def distributed(folder: Path) -> DataLoader[Any]:
    return DataLoader(Rows(), 8, sampler=DistributedSampler(Rows(), num_replicas=2, rank=0), num_workers=2)


def spawned(folder: Path) -> DataLoader[Any]:
    return DataLoader(Folder(folder, Flip()), 4, num_workers=1, multiprocessing_context="spawn")


def no_workers(folder: Path) -> DataLoader[Any]:
    return DataLoader(Folder(folder), batch_size=4, shuffle=True)


@pytest.mark.parametrize(
    "make",
    [
        *(tensors, images, split_stream, pipeline, generator_in_sampler, rows, persistent, batch_sampler),
        *(own_collate, parts, distributed, spawned, no_workers),
    ],
)
def test_nothing_is_found(make: Callable[[Path], DataLoader[Any]], tmp_path: Path) -> None:
    for index in range(12):
        (tmp_path / f"{index}.bin").write_bytes(bytes(range(index, index + 48)))
    loader = make(tmp_path)
    assert findings(loader) == []
    assert findings(loader, batches=first_batches(loader)) == []
