"""Shared memory is lent again, and never while anybody holds the batch, in whatever process."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import torch
from torch import multiprocessing

from unstarve.fixes.memory.lending import Lender, Lent

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memfd")

SHAPE = (300, 1000)
DEADLINE_S = 120.0


def lend(lender: Lender, shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float32) -> Lent:
    lent = lender(shape, dtype)
    assert lent is not None
    return lent


def test_what_is_written_inside_is_in_the_batch() -> None:
    lent = lend(Lender(1))
    lent.inside.copy_(torch.arange(300_000).view(SHAPE))
    assert torch.equal(lent.batch, torch.arange(300_000, dtype=torch.float32).view(SHAPE))
    assert lent.batch.is_shared()
    lent.batch[0] = 7
    assert lent.inside[0].eq(7).all()


def test_memory_is_lent_again_only_when_nobody_holds_the_batch() -> None:
    lender = Lender(8)
    inside, batch = lend(lender)
    address = inside.data_ptr()
    row = batch[3]
    del batch
    assert lend(lender).inside.data_ptr() != address
    array = row.numpy()
    storage = row.untyped_storage()
    del row
    assert lend(lender).inside.data_ptr() != address
    del array
    assert lend(lender).inside.data_ptr() != address
    del storage
    assert lend(lender).inside.data_ptr() == address


def hold(received: Any, told: Any) -> None:
    batch = received.get(timeout=DEADLINE_S)
    told.send(float(batch[0, 0]))
    told.recv()
    told.send(float(batch[0, 0]))
    del batch
    told.recv()


def answer(link: Any) -> Any:
    assert link.poll(DEADLINE_S), "the other process does not answer"
    return link.recv()


def test_another_process_holds_it_as_long_as_its_tensor_lives() -> None:
    context = multiprocessing.get_context("fork")
    queue, (here, there) = context.Queue(), context.Pipe()
    holder = context.Process(target=hold, args=(queue, there), daemon=True)
    holder.start()
    lender = Lender(2)
    inside, batch = lend(lender)
    inside.fill_(5)
    queue.put(batch)
    del batch
    assert answer(here) == 5
    assert lend(lender).inside.data_ptr() != inside.data_ptr()
    here.send("look again and let go")
    assert answer(here) == 5
    until = time.monotonic() + DEADLINE_S
    while lend(lender).inside.data_ptr() != inside.data_ptr():
        assert time.monotonic() < until
        time.sleep(0.01)
    here.send("end")
    holder.join(DEADLINE_S)
    assert holder.exitcode == 0
    queue.close()
    queue.join_thread()


def test_a_forked_process_leaves_its_parents_memory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lender = Lender(2)
    address = lend(lender).inside.data_ptr()
    assert lend(lender).inside.data_ptr() == address
    held = lend(lender).inside
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a child
    assert lend(lender).inside.data_ptr() != held.data_ptr()


def test_who_keeps_all_batches_gets_new_memory_for_each() -> None:
    lender = Lender(2)
    kept = []
    for number in range(7):
        inside, batch = lend(lender)
        inside.fill_(number)
        kept.append(batch)
    assert [float(batch[0, 0]) for batch in kept] == [0, 1, 2, 3, 4, 5, 6]


def test_a_shorter_batch_goes_into_the_same_memory() -> None:
    lender = Lender(2)
    address = lend(lender).inside.data_ptr()
    inside, batch = lend(lender, (200, 1000), torch.float32)
    assert inside.data_ptr() == address
    assert tuple(batch.shape) == tuple(inside.shape) == (200, 1000)
    assert batch.untyped_storage().nbytes() == 800_000
    assert lend(lender, (250_000,), torch.bfloat16).batch.dtype == torch.bfloat16


def test_small_batches_and_other_ways_to_share_are_left_to_torch() -> None:
    assert Lender(2)((10, 10), torch.float32) is None
    before = multiprocessing.get_sharing_strategy()
    multiprocessing.set_sharing_strategy("file_system")
    try:
        assert Lender(2)(SHAPE, torch.float32) is None
    finally:
        multiprocessing.set_sharing_strategy(before)


def test_without_a_descriptor_left_torch_has_to_find_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(name: str, flags: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", none_left)
    assert Lender(2)(SHAPE, torch.float32) is None
