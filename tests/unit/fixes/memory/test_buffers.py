"""Batch memory is used again, and never while somebody can see it."""

from __future__ import annotations

import mmap
import threading

import pytest
import torch

from unstarve.fixes.memory import buffers
from unstarve.fixes.memory.buffers import (
    Recycled,
    empty_batch,
    fresh_memory,
    use_allocator,
    use_allocator_in_thread,
)


def test_memory_is_used_again_only_when_nobody_holds_it() -> None:
    allocate = Recycled(2)
    shape, dtype = (300, 1000), torch.float32
    first = allocate(shape, dtype)
    address = first.data_ptr()
    second = allocate(shape, dtype)
    assert second.data_ptr() != address
    row = first[3]
    del first
    assert allocate(shape, dtype).data_ptr() != address
    array = row.numpy()
    storage = row.untyped_storage()
    del row
    assert allocate(shape, dtype).data_ptr() != address
    del array
    assert allocate(shape, dtype).data_ptr() != address
    del storage
    held = [allocate(shape, dtype) for _ in range(2)]
    assert address in [batch.data_ptr() for batch in held]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
@pytest.mark.parametrize("shape", [(2, 3), (0, 4), (1, 2_000_000), (5_000_000,)])
def test_memory_is_of_the_type_and_shape_asked_for(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = Recycled(1)(shape, dtype)
    assert (tensor.dtype, tuple(tensor.shape), tensor.is_contiguous()) == (dtype, shape, True)
    tensor.view(torch.uint8).fill_(7)


@pytest.mark.parametrize("size_bytes", [1, 300_000, 4 << 20, 5_000_001])
def test_fresh_memory_is_as_large_as_asked_for_and_starts_at_a_page(size_bytes: int) -> None:
    memory = fresh_memory(size_bytes)
    memory[:] = 7
    assert memory.nbytes == size_bytes
    assert memory.ctypes.data % mmap.PAGESIZE == 0


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages to ask for")
def test_large_memory_starts_at_a_huge_page() -> None:
    assert [fresh_memory(size_bytes).ctypes.data % (2 << 20) for size_bytes in (4 << 20, 5_000_001)] == [0, 0]


def test_memory_of_sizes_that_do_not_come_again_is_let_go() -> None:
    allocate = Recycled(2)
    for rows in range(300, 330):
        allocate((rows, 1000), torch.float32)
    assert len(allocate._free) < 12


def test_of_large_memory_less_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    allocate = Recycled(8)
    monkeypatch.setattr(buffers, "_IDLE_BYTES", 1_000_000)
    for rows, kept in ((100, 2), (300, 1)):
        batches = [allocate((rows, 1000), torch.float32) for _ in range(4)]
        del batches
        assert len(allocate._free[rows * 4000]) == kept


def test_a_training_loop_gets_the_same_two_blocks() -> None:
    addresses = set()
    batch = empty_batch((300, 1000), torch.float32)
    for _ in range(6):
        addresses.add(batch.data_ptr())
        batch = empty_batch((300, 1000), torch.float32)
    assert len(addresses) <= 3


def test_a_thread_may_have_an_allocator_of_its_own() -> None:
    made: list[torch.Tensor] = []

    def work() -> None:
        use_allocator_in_thread(lambda shape, dtype: torch.zeros(tuple(shape), dtype=dtype) + 5)
        made.append(empty_batch((2,), torch.float32))
        use_allocator_in_thread(None)
        made.append(empty_batch((2,), torch.float32))

    use_allocator(lambda shape, dtype: torch.ones(tuple(shape), dtype=dtype))
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        made.append(empty_batch((2,), torch.float32))
    finally:
        use_allocator(None)
    assert [batch[0].item() for batch in made] == [5, 1, 1]
