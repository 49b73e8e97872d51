"""Batches that stay in memory are seen by weak references, also where only a view is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from unstarve.collect.memory import kept_batches
from unstarve.collect.memory.kept_batches import KeptBatches, KeptByLoader


def deliver(watch: KeptBatches, keep: Any, count: int = 40) -> list[Any]:
    kept = []
    for i in range(count):
        batch = [torch.full((4,), float(i)), torch.tensor([i])]
        watch.note(batch)
        kept.append(keep(batch))
    return kept


def test_batches_that_are_let_go_are_not_kept() -> None:
    watch = KeptBatches()
    last = deliver(watch, lambda batch: batch[0].sum().item())
    assert len(last) == 40
    assert watch.new_most() is None


def test_what_is_gone_is_not_referred_to(monkeypatch: pytest.MonkeyPatch) -> None:
    living: list[int] = []

    class Counted(StorageWeakRef):
        def __init__(self, storage: torch.UntypedStorage) -> None:
            super().__init__(storage)  # type: ignore[no-untyped-call]  # torch's
            living.append(1)

        def __del__(self) -> None:
            living.pop()
            super().__del__()  # type: ignore[no-untyped-call]  # torch's

    monkeypatch.setattr(kept_batches, "StorageWeakRef", Counted)
    watch = KeptBatches()
    deliver(watch, lambda batch: None)
    assert 0 < len(living) <= 4
    assert watch.new_most() is None


def test_the_part_that_is_kept_is_named() -> None:
    watch = KeptBatches()
    kept = deliver(watch, lambda batch: batch[1])
    found = {name: (alive, watched, nbytes) for name, alive, watched, nbytes in watch.new_most() or []}
    assert found == {"batch[0]": (0, 32, 16), "batch[1]": (32, 32, 8)}
    assert watch.new_most() is None  # not more than before
    assert len(kept) == 40


def test_a_view_keeps_the_whole_and_names_are_those_of_the_batch() -> None:
    watch, kept = KeptBatches(), []
    for i in range(20):
        batch = {"image": torch.full((8,), float(i)), "path": "a.jpg"}
        watch.note(batch)
        kept.append(batch["image"][:1])  # type: ignore[index]  # a tensor
    assert [(name, alive) for name, alive, *_ in watch.new_most() or []] == [('batch["image"]', 12)]


def test_rows_of_a_tensor_that_always_exists_are_not_kept_batches() -> None:
    watch, rows = KeptBatches(), torch.zeros(100, 4)
    for i in range(40):
        watch.note(rows[i])
    assert [alive for _, alive, *_ in watch.new_most() or []] == [1]


def test_only_some_of_many_batches_are_watched() -> None:
    watch = KeptBatches()
    kept = deliver(watch, lambda batch: batch[0], count=1000)
    ((_, alive, watched, _), *_) = watch.new_most() or []
    assert 16 <= alive == watched <= 64
    assert len(kept) == 1000


def test_what_is_kept_is_told_by_loader() -> None:
    told: list[Any] = []
    watch, kept = KeptByLoader(), [torch.zeros(1) for _ in range(20)]
    for tensor in kept:
        watch.note(3, tensor)
    watch.tell(lambda meta, **fields: told.append((meta, fields)))
    assert told == [("kept", {"loader": 3, "parts": [("batch", 12, 12, 4)]})]
