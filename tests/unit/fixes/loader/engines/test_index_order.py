"""With workers asked for: none are made, and the indices are still drawn when torch would draw them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, RandomSampler, Sampler, WeightedRandomSampler

from same_batches import assert_same, assert_same_epochs
from unstarve import DataLoader

COUNT = 23
X = torch.arange(COUNT * 6, dtype=torch.float32).reshape(COUNT, 2, 3)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


class Drawing(Sampler[int]):
    """Draws each index from torch's default generator when it is asked for, without end."""

    def __iter__(self) -> Any:
        while True:
            yield int(torch.randint(COUNT, ()).item())


ORDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "in order": dict,
    "shuffled": lambda: {"shuffle": True},
    "shuffled, generator": lambda: {"shuffle": True, "generator": seeded()},
    "more, generator": lambda: {"sampler": RandomSampler(range(COUNT), num_samples=61, generator=seeded())},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1.0, 2.0, 3.0], 9)},
    "own batches": lambda: {"batch_sampler": [[0], [1, 2, 3], (2, 1), [4]]},
    "endless": lambda: {"sampler": Drawing()},
}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_with_workers_it_draws_as_far_ahead_as_torch(order: str, persistent: bool) -> None:
    def make(kind: Any) -> Any:
        settings = ORDERS[order]()
        size = {} if "batch_sampler" in settings else {"batch_size": 4}
        return kind(X, num_workers=1, prefetch_factor=2, persistent_workers=persistent, **size, **settings)

    assert_same_epochs(lambda: make(TorchDataLoader), lambda: make(DataLoader), take=4)
    assert make(DataLoader).engine in ("views", "gather")


def test_persistent_workers_give_epoch_after_epoch() -> None:
    loader = DataLoader(X, batch_size=5, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert_same(torch.cat(list(loader)), X)


class Growing(Dataset[Any]):
    """Its rows are known from the second epoch on, as those of a cache are."""

    rows_are_samples = True
    complete = False

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return X[index]

    def rows(self) -> Any:
        return X if self.complete else None


@pytest.mark.parametrize("persistent", [False, True])
def test_the_engine_may_change_between_epochs(persistent: bool) -> None:
    dataset = Growing()
    settings: Any = {"batch_size": 4, "shuffle": True, "generator": seeded(), "num_workers": 1}
    loader = DataLoader(dataset, **settings, persistent_workers=persistent)
    theirs = TorchDataLoader(Growing(), **settings | {"generator": seeded()}, persistent_workers=persistent)
    seen = []
    for complete in (False, True, True, False):
        dataset.complete = complete
        assert loader.engine == ("gather" if complete else "ring")
        seen.append(list(loader))
        if complete:  # going back to workers may draw a seed for new ones
            assert_same(seen[-1], list(theirs))
        elif len(seen) == 1:
            assert_same(torch.cat(seen[-1]), torch.cat(list(theirs)))
    assert_same(torch.cat(seen[-1]).sort(0).values, X.sort(0).values)
