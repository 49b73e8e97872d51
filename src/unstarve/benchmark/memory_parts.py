"""Parts a, b and c: data in memory as one tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from unstarve.benchmark.bench_plan import Anew, BenchEntry, PartPlan, Sizes, faster, ours, public, stock
from unstarve.fixes.samples.gather import gather
from unstarve.model import Bar, Kind, Promise


@dataclass(frozen=True)
class Held:
    """Rows in memory, and how to load them."""

    rows: torch.Tensor
    batch_size: int
    shuffle: bool

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for loaders."""
        return {"batch_size": self.batch_size, "shuffle": self.shuffle}


class GatherAlone:
    """Only the copy of a batch's rows into reused memory."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def __iter__(self) -> Iterator[torch.Tensor]:
        rows, size = self._held.rows, self._held.batch_size
        batch = torch.empty((size, *rows.shape[1:]), dtype=rows.dtype)
        order = torch.randperm(len(rows)).numpy()
        for begin in range(0, len(rows), size):
            indices = order[begin : begin + size]
            yield gather(rows, indices, batch[: len(indices)])


def _rows(shuffle: bool) -> Callable[[Sizes, Path], Held]:
    def prepare(sizes: Sizes, _: Path) -> Held:
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(sizes.rows, sizes.columns, generator=generator)
        return Held(rows, sizes.row_batch, shuffle)

    return prepare


def _images(shuffle: bool) -> Callable[[Sizes, Path], Held]:
    def prepare(sizes: Sizes, _: Path) -> Held:
        generator = torch.Generator().manual_seed(0)
        images = torch.randint(256, (sizes.images, 3, 224, 224), dtype=torch.uint8, generator=generator)
        return Held(images, sizes.image_batch, shuffle)

    return prepare


def _cached_in_ours(held: Held) -> Any:
    return public("DataLoader")(public("CachedDataset")((held.rows,)), **held.options)


_OTHER_PARTS = (
    ours("CachedDataset, first epoch", lambda held: Anew(partial(_cached_in_ours, held))),
    ours(
        "AsyncPrefetchDataset, torch's",
        lambda held: DataLoader(public("AsyncPrefetchDataset")(TensorDataset(held.rows)), **held.options),
    ),
    ours(
        "AsyncPrefetchDataset, ours",
        lambda held: public("DataLoader")(
            public("AsyncPrefetchDataset")(TensorDataset(held.rows)), **held.options
        ),
        rival="AsyncPrefetchDataset, torch's",
    ),
    ours(
        "unstarve.DataLoader",
        lambda held: public("DataLoader")(TensorDataset(held.rows), **held.options),
        rival="torch.utils.data.DataLoader",
    ),
)
"""Our other ways to serve rows, for the one table whose sizes users choose."""


def _entries(in_torch: tuple[Bar, ...], in_ours: tuple[Bar, ...]) -> tuple[BenchEntry, ...]:
    return (
        stock(lambda held: DataLoader(TensorDataset(held.rows), **held.options)),
        ours(
            "CachedDataset, torch's",
            lambda held: DataLoader(public("CachedDataset")((held.rows,)), **held.options),
            *in_torch,
        ),
        ours(
            "CachedDataset, ours",
            _cached_in_ours,
            *in_ours,
            rival="CachedDataset, torch's",
        ),
    )


_SMALL = Bar(Promise.EXTRA_BYTES, 750_000)
_LIMIT = BenchEntry("gather alone", Kind.LIMIT, GatherAlone)


def _row_title(order: str) -> Callable[[Sizes], str]:
    return lambda s: f"randn({s.rows}, {s.columns}) in memory, batch {s.row_batch}, {order}"


def _image_title(order: str) -> Callable[[Sizes], str]:
    return lambda s: f"{s.images} images, 3×224×224 bytes, batch {s.image_batch}, {order}"


IN_MEMORY = (
    PartPlan(
        "a", "rows", _row_title("shuffled"), _rows(True),
        (*_entries((faster(3.5),), (faster(80), _SMALL)), *_OTHER_PARTS), memory=True,
    ),
    PartPlan(
        "b", "large-rows", _image_title("shuffled"), _images(True),
        (*_entries((), (faster(2), Bar(Promise.OVER_LIMIT, 0.15))), _LIMIT),
    ),
    PartPlan("c", "rows-in-order", _row_title("in order"), _rows(False), _entries((), (faster(50),))),
    PartPlan(
        "c", "large-rows-in-order", _image_title("in order"), _images(False), _entries((), (faster(500),)),
    ),
)  # fmt: skip
