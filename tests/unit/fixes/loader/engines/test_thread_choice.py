"""For which loaders the engine `threads` is chosen, and what it says about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, Subset

import unstarve
from thread_rows import OneByOne, Rows, ours
from unstarve.fixes.loader.engines import thread_engine
from unstarve.fixes.loader.engines.read_ahead import THREADS


class Stream(IterableDataset[int]):
    releases_gil = True

    def read_batch(self, indices: Any) -> Any: ...
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Held(Rows):
    releases_gil = False


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "stream": (Stream, {}, "IterableDataset"),
    "no read_batch": (lambda: list(range(5)), {}, "no read_batch"),
    "holds the GIL": (Held, {}, "no read_batch that releases the GIL"),
    "part of such": (lambda: Subset(Held(), [1]), {}, "no read_batch"),
    "single samples": (Rows, {"batch_size": None}, "batch_size=None"),
    "own collate": (Rows, {"collate_fn": list}, "collate_fn"),
    "own start": (Rows, {"num_workers": 1, "worker_init_fn": print}, "worker_init_fn"),
    "own sampler": (Rows, {"sampler": OneByOne()}, "batch by batch"),
    "own batch sampler": (Rows, {"batch_sampler": [[1], [2]]}, "batch by batch"),
    "draws over time": (
        Rows,
        {"sampler": RandomSampler(range(9), replacement=True, generator=torch.Generator())},
        "batch by batch",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_threads_cannot_do_as_well_is_refused(name: str) -> None:
    make, arguments, reason = REFUSED[name]
    loader = DataLoader(make(), **arguments)
    assert reason in (thread_engine.why_no_threads(loader) or "")
    with pytest.raises(ValueError, match="engine 'threads' cannot run this loader"):
        unstarve.DataLoader(make(), engine="threads", **arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"num_workers": 2}, "2 threads read ahead"),
        ({}, f"{THREADS} threads read"),
        ({"worker_init_fn": print}, f"{THREADS} threads"),
        ({"sampler": SequentialSampler(range(4))}, f"{THREADS} threads"),
        ({"sampler": OneByOne(), "num_workers": 1}, "1 thread "),
    ],
)
def test_what_threads_can_do_they_say(arguments: dict[str, Any], why: str) -> None:
    loader = DataLoader(Rows(), **arguments)
    assert thread_engine.why_no_threads(loader) is None
    assert why in thread_engine.why_threads(loader)


def test_a_dataset_that_cannot_be_read_any_more_is_an_error() -> None:
    dataset = Rows()
    loader = ours(dataset)
    dataset.releases_gil = False
    with pytest.raises(ValueError, match="no longer has a read_batch that releases the GIL"):
        thread_engine.iterate(loader)
