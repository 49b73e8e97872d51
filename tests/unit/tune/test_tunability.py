"""What may be tuned of a loader."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from sample_loaders import Stream as Endless
from unstarve.tune.tunability import tunability_of


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(8)), batch_size=2, **options)


def test_what_may_be_tuned_follows_from_the_loader() -> None:
    assert tunability_of(loader(), deterministic=False).no_workers
    assert not tunability_of(loader(num_workers=1, worker_init_fn=print), deterministic=False).no_workers
    assert not tunability_of(loader(num_workers=1, timeout=5), deterministic=False).no_workers
    exact = tunability_of(loader(num_workers=1), deterministic=True)
    assert not exact.workers
    assert exact.why_not is None
    assert "no workers" in str(tunability_of(loader(), deterministic=True).why_not)
    stream = tunability_of(DataLoader(Endless(None), batch_size=2, num_workers=1), deterministic=False)
    assert stream.between_epochs
    assert not stream.several_workers
    assert not stream.no_workers


def test_deterministic_asks_for_a_sampler_that_is_known() -> None:
    class Own(torch.utils.data.Sampler[int]):
        def __iter__(self) -> Any:
            return iter(range(8))

    tunability = tunability_of(loader(num_workers=1, sampler=Own()), deterministic=True)
    assert "sampler" in str(tunability.why_not)
