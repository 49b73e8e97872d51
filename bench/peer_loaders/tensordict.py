"""tensordict: tensors that are indexed together."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from unstarve.benchmark.bench_plan import BenchEntry
from unstarve.benchmark.optional_packages import installed
from unstarve.model import Kind


def _as_it_is(batch: Any) -> Any:
    return batch


def _make(held: Any) -> Any:
    together = installed("tensordict").TensorDict({"rows": held.rows}, batch_size=[len(held.rows)])
    return DataLoader(together, collate_fn=_as_it_is, **held.options)


TENSORDICT = BenchEntry("tensordict", Kind.PEER, _make)
