"""Whatever draws the indices goes on: torch's samplers, the user's own, and those that save their state."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from resumed import COUNT, AnyEngine, Stop, assert_resumes, disturb, through_a_checkpoint
from unstarve import DataLoader

STOPS = [Stop(0, 2), Stop(1, 0), Stop(1, 3), Stop(1, 5), Stop(1, None)]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


class Shuffled(Sampler[int]):
    """A user's sampler, with a generator of any kind; "none" draws from the process's."""

    def __init__(self, kind: str, count: int = COUNT) -> None:
        self.count = count
        kinds: dict[str, Any] = {
            "torch": seeded,
            "numpy": lambda: np.random.default_rng(3),
            "old numpy": lambda: np.random.RandomState(3),
            "python": lambda: random.Random(3),
            "none": lambda: None,
        }
        self.rng = kinds[kind]()
        self.kind = kind

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.count))
        if self.kind == "torch":
            return iter(torch.randperm(self.count, generator=self.rng).tolist())
        if self.kind == "numpy":
            return iter(self.rng.permutation(self.count).tolist())
        (self.rng or random).shuffle(order)
        return iter(order)


class Buckets(Sampler[list[int]]):
    """A batch sampler that is no BatchSampler: batches of different sizes from an inner sampler."""

    def __init__(self) -> None:
        self.inner = RandomSampler(range(COUNT), generator=seeded())

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[list[int]]:
        order = list(self.inner)
        for first, last in ((0, 1), (1, 4), (4, 9), (9, 15), (15, 20), (20, COUNT)):
            yield order[first:last]


class Remembers(Sampler[int]):
    """Gives numbers that no replay could find: only its state says where it is."""

    def __init__(self) -> None:
        self.at = 0

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        for _ in range(COUNT - self.at % COUNT):
            self.at += 1
            yield self.at * 7 % COUNT

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


ORDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "shuffle": lambda: {"shuffle": True},
    "generator": lambda: {"shuffle": True, "generator": seeded()},
    "drop_last": lambda: {"shuffle": True, "drop_last": True, "generator": seeded()},
    "sampler's generator": lambda: {"sampler": RandomSampler(range(COUNT), generator=seeded())},
    "replacement": lambda: {"sampler": RandomSampler(range(COUNT), True, 21, generator=seeded())},
    "more samples": lambda: {"sampler": RandomSampler(range(9), num_samples=21, generator=seeded())},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(COUNT), generator=seeded())},
    "subset, no generator": lambda: {"sampler": SubsetRandomSampler(range(COUNT))},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1.0] * COUNT, 21)},
    "in order": lambda: {"sampler": SequentialSampler(range(COUNT))},
    "batch sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(COUNT)), 4, False)},
    "buckets": lambda: {"batch_sampler": Buckets()},
    "distributed": lambda: {"sampler": DistributedSampler(range(60), 3, 1, seed=4)},  # type: ignore[arg-type]
    "stateful": lambda: {"sampler": Remembers()},
    "torchdata's": lambda: {"sampler": StatefulDistributedSampler(range(60), 3, 1, seed=4)},  # type: ignore[arg-type]
    **{
        f"own, {kind}": functools.partial(lambda kind: {"sampler": Shuffled(kind)}, kind)
        for kind in ("torch", "numpy", "old numpy", "python", "none")
    },
}
ENGINES: dict[str, dict[str, Any]] = {
    "stock": {"engine": "stock"},
    "gather": {"engine": "gather"},
    "gather, workers": {"engine": "gather", "num_workers": 2},
    "threads, workers": {"engine": "threads", "num_workers": 2},
}


def make(order: str, engine: str) -> Any:
    arguments = ORDERS[order]()
    size = {} if "batch_sampler" in arguments else {"batch_size": 4}
    return DataLoader(AnyEngine(60), **size, **arguments, **ENGINES[engine])


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ORDERS)
def test_the_order_goes_on(order: str, engine: str, stop: Stop) -> None:
    one = functools.partial(make, order, engine)
    assert_resumes(one, stop)
    if order != "own, none":  # with workers torch begins it twice, and each time it draws for all to see
        assert_resumes(one, stop, functools.partial(make, order, "stock"))
        assert_resumes(functools.partial(make, order, "stock"), stop, one)


@pytest.mark.parametrize("order", ["generator", "replacement", "stateful", "own, numpy"])
def test_the_order_goes_on_with_worker_processes(order: str) -> None:
    ring = functools.partial(_with_workers, order)
    assert_resumes(ring, Stop(1, 3))
    assert_resumes(ring, Stop(1, 5), functools.partial(make, order, "stock"))


def _with_workers(order: str) -> Any:
    return DataLoader(AnyEngine(60), batch_size=4, engine="ring", num_workers=2, **ORDERS[order]())


def test_a_generator_that_others_draw_from_is_where_it_was() -> None:
    def epochs(stop_at: int | None) -> list[Any]:
        generator = seeded()
        loader = DataLoader(AnyEngine(), batch_size=4, shuffle=True, generator=generator)
        seen = []
        iterator = iter(loader)
        for given in range(1, 7):
            seen.append(next(iterator)[1].tolist())
            seen.append(torch.rand(1, generator=generator).item())  # a validation loader shares it
            if given == stop_at:
                state = through_a_checkpoint(loader.state_dict())
                generator = seeded()
                loader = DataLoader(AnyEngine(), batch_size=4, shuffle=True, generator=generator)
                loader.load_state_dict(state)
                iterator = iter(loader)
        assert next(iterator, None) is None
        return [*seen, [batch[1].tolist() for batch in loader]]

    assert epochs(stop_at=3) == epochs(stop_at=None)


def test_the_epoch_of_a_distributed_sampler_is_part_of_the_state() -> None:
    def loader() -> Any:
        sampler: Any = DistributedSampler(range(COUNT), 2, 0, seed=4)  # type: ignore[arg-type]
        return DataLoader(AnyEngine(), batch_size=4, sampler=sampler)

    first = loader()
    first.sampler.set_epoch(5)
    whole = [batch[1].tolist() for batch in first]
    for given, _ in enumerate(first, 1):
        if given == 1:
            break
    disturb()
    second = loader()
    second.load_state_dict(first.state_dict())
    assert second.sampler.epoch == 5
    assert [batch[1].tolist() for batch in second] == whole[1:]
