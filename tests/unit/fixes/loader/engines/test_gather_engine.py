"""Gathered batches: memory of their own for as long as anybody can see it, and every kind of row."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Subset, TensorDataset

from same_batches import assert_same, tensors_in
from unstarve import DataLoader

pytestmark = pytest.mark.usefixtures("implementation")


def numbers(count: int = 40, width: int = 5) -> torch.Tensor:
    return torch.arange(count * width, dtype=torch.float32).reshape(count, width)


def shuffled(dataset: Any, **settings: Any) -> Any:
    torch.manual_seed(3)
    loader = DataLoader(dataset, **{"batch_size": 4, "shuffle": True} | settings)
    assert loader.engine == "gather"
    return loader


def seeded_order() -> list[int]:
    """The indices that `shuffled` takes of 40 rows."""
    torch.manual_seed(3)
    return [int(i) for batch in TorchDataLoader(range(40), batch_size=4, shuffle=True) for i in batch]  # type: ignore[arg-type]


def test_changing_a_batch_does_not_change_the_dataset() -> None:
    data = numbers()
    before = data.clone()
    for loader in (shuffled(data), DataLoader(data, batch_size=4, copy=True)):
        for batch in loader:
            batch.mul_(-1).add_(7)
            batch.resize_(2, 2).zero_()
    assert torch.equal(data, before)


def test_batches_and_failures_in_their_place_are_counted() -> None:
    order = [[0, 1], [2, 99], [4, 5]]
    loader = DataLoader(numbers(), batch_sampler=order)
    assert loader.engine == "gather"
    iterator = iter(loader)
    given = []
    for _ in order:
        try:
            next(iterator)
        except IndexError:
            given.append("failed")
        given.append(loader.state_dict()["epoch"]["given"])
    assert given == [1, "failed", 2, 3]
    assert next(iterator, None) is None
    assert loader.state_dict()["epoch"] is None


HOLDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "the batch": lambda batch: batch,
    "a view": lambda batch: batch[1:3, ::2],
    "an alias": lambda batch: batch.detach(),
    "its data": lambda batch: batch.data,
    "a numpy array": lambda batch: batch.numpy(),
    "a slice of a numpy array": lambda batch: batch[2].numpy()[1:],
    "a memoryview": lambda batch: memoryview(batch.numpy()),
    "its storage": lambda batch: batch.untyped_storage(),
    "its typed storage": lambda batch: batch._typed_storage(),
    "a DLPack capsule": torch.utils.dlpack.to_dlpack,
    "an autograd graph": lambda batch: (batch.requires_grad_() ** 2).sum(),
    "another type's view": lambda batch: batch.view(torch.uint8),
}


def content(held: Any) -> bytes:
    if isinstance(held, torch.Tensor):
        if held.grad_fn is not None:  # the gradient of the sum of squares is made of what was saved
            (saved,) = torch.autograd.grad(
                held, held.grad_fn.next_functions[0][0].next_functions[0][0].variable
            )
            return bytes(saved.numpy().tobytes())
        return held.detach().contiguous().numpy().tobytes()
    if isinstance(held, (np.ndarray, memoryview)):
        return bytes(np.ascontiguousarray(held).tobytes())
    if isinstance(held, (torch.UntypedStorage, torch.TypedStorage)):
        storage = held._untyped_storage if isinstance(held, torch.TypedStorage) else held
        return content(torch.empty(0, dtype=torch.uint8).set_(storage))  # type: ignore[call-overload]
    raise TypeError(type(held))


@pytest.mark.parametrize("batch_rows", [4, 2000])
@pytest.mark.parametrize("hold", HOLDS)
def test_memory_is_not_used_again_while_anything_made_of_it_lives(hold: str, batch_rows: int) -> None:
    data = numbers(10 * batch_rows)
    kept, expected = [], []
    for number, batch in enumerate(shuffled(data, batch_size=batch_rows)):
        copy = batch.clone()
        if number % 2 == 0:
            kept.append(HOLDS[hold](batch))
            expected.append(HOLDS[hold](copy))
        del batch, copy
    if hold == "a DLPack capsule":
        kept, expected = [[torch.utils.dlpack.from_dlpack(c) for c in held] for held in (kept, expected)]
    if hold == "an autograd graph":  # a gradient can be taken once
        for ours, theirs in zip(kept, expected, strict=True):
            assert content(ours) == content(theirs)
        return
    assert [content(held) for held in kept] == [content(held) for held in expected]


def test_all_batches_of_an_epoch_can_be_kept() -> None:
    data = numbers(), torch.arange(40)
    torch.manual_seed(3)
    theirs = list(TorchDataLoader(TensorDataset(*data), batch_size=4, shuffle=True))
    ours = list(shuffled(TensorDataset(*data)))
    assert_same(ours, theirs)
    addresses = [tensor.data_ptr() for batch in ours for tensor in tensors_in(batch)]
    assert len(set(addresses)) == len(addresses)


def test_memory_is_used_again_once_nothing_of_it_is_left(implementation: str) -> None:
    if implementation == "twin":
        pytest.skip("the twin takes new memory for each batch")
    addresses = {batch.data_ptr() for batch in shuffled(numbers(800, 1000), batch_size=100)}
    assert len(addresses) == 2


def test_a_batch_that_another_process_may_see_is_not_used_again() -> None:
    storages = []
    for batch in shuffled(numbers()):
        value = batch.clone()
        batch.share_memory_()  # as a queue to another process does: the memory moves
        storages.append((batch.untyped_storage()._weak_ref(), batch.numpy().copy(), value))
        del batch
    shared = [batch.share_memory_() for batch in shuffled(numbers())]
    torch.manual_seed(3)
    assert_same(shared, list(TorchDataLoader(numbers(), batch_size=4, shuffle=True)))
    for _, now, value in storages:
        assert np.array_equal(now, value.numpy())


def test_a_used_batch_looks_new() -> None:
    for batch in shuffled(numbers()):
        assert batch._version == 0
        assert batch.is_leaf
        assert not batch.requires_grad
        assert batch._base is None
        assert batch.storage_offset() == 0
        assert batch.untyped_storage().nbytes() == batch.nbytes
        assert not hasattr(batch, "mark")
        batch.mark = True  # type: ignore[attr-defined]
        batch.add_(1)
        batch.requires_grad_()
        (batch * 2).sum().backward()


TYPES = [
    torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rows_of_any_type(dtype: torch.dtype) -> None:
    data = torch.arange(120).reshape(40, 3).to(dtype)
    ours = torch.cat([batch.view(torch.uint8) for batch in shuffled(data)])
    assert torch.equal(ours, torch.stack([data[i] for i in seeded_order()]).view(torch.uint8))


def read_only(folder: Path) -> torch.Tensor:
    np.save(folder / "rows.npy", numbers().numpy())
    return torch.from_file(str(folder / "rows.npy"), size=232, dtype=torch.float32)[32:].reshape(40, 5)


def numbers_in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return numbers()


@pytest.mark.parametrize("kind", ["shared", "mapped", "inference", "offset"])
def test_rows_wherever_they_lie(kind: str, tmp_path: Path) -> None:
    data = {
        "shared": lambda: numbers().share_memory_(),
        "mapped": lambda: read_only(tmp_path),
        "inference": numbers_in_inference_mode,
        "offset": lambda: torch.cat([torch.zeros(3, 5), numbers()])[3:],
    }[kind]()
    batches = list(shuffled(data))
    assert torch.equal(torch.cat(batches), torch.stack([data[i] for i in seeded_order()]))
    assert not any(batch.is_inference() for batch in batches)


def test_rows_may_move_during_an_epoch() -> None:
    data = numbers(4000, 500)
    loader = shuffled(data, batch_size=100)
    iterator = iter(loader)
    first = [next(iterator) for _ in range(3)]
    data.share_memory_()  # what a spawned worker's copy of the dataset does to it
    torch.manual_seed(3)
    theirs = list(TorchDataLoader(data, batch_size=100, shuffle=True))
    assert_same([*first, *iterator], theirs)


def test_rows_that_lose_their_memory_raise(implementation: str) -> None:
    if implementation == "twin":
        pytest.skip("it leaves this to torch and numpy")
    data = numbers()
    iterator = iter(shuffled(data))
    next(iterator)
    data.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="lost its memory"):
        next(iterator)


def test_batches_are_on_the_cpu_whatever_the_default_device() -> None:
    iterator = iter(DataLoader(numbers(), batch_size=3, sampler=[3, 1, 2, 0]))
    with torch.device("meta"):
        full, last = iterator
    assert torch.equal(full, numbers()[[3, 1, 2]])
    assert torch.equal(last, numbers()[[0]])


def test_inference_mode_is_left_as_it_was_entered() -> None:
    iterator = iter(shuffled(numbers()))
    with torch.inference_mode():
        next(iterator)
        next(iterator)
    weight = torch.ones(5, requires_grad=True)
    for batch in iterator:  # an inference tensor could not be saved for the backward pass
        (batch @ weight).sum().backward()


def test_batches_of_several_sizes() -> None:
    sizes = [3, 3, 5, 5, 5, 1, 2, 3, 3, 40, 41]
    rng = np.random.default_rng(0)
    indices = [rng.integers(0, 40, size).tolist() for size in sizes]
    data = TensorDataset(numbers(), torch.arange(40))
    assert_same(
        list(DataLoader(data, batch_sampler=indices)), list(TorchDataLoader(data, batch_sampler=indices))
    )
    for batch, index in zip(DataLoader(data, batch_sampler=indices), indices, strict=True):
        assert batch[1].tolist() == index


def test_large_batches_are_the_same() -> None:
    data = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8)
    for batch, index in zip(shuffled(data, batch_size=48), (48, 16), strict=True):
        assert len(batch) == index
    torch.manual_seed(3)
    theirs = list(TorchDataLoader(data, batch_size=48, shuffle=True))
    assert_same(list(shuffled(data, batch_size=48)), theirs)


def test_several_threads_may_take_batches_from_one_iterator() -> None:
    data = numbers(4000, 100)
    iterator = iter(DataLoader(data, batch_size=10, shuffle=True))
    taken: list[torch.Tensor] = []
    lock = threading.Lock()

    def take() -> None:
        while True:
            with lock:  # as for torch's: a sampler is a generator, which one thread at a time may advance
                batch = next(iterator, None)
            if batch is None:
                return
            taken.append(batch)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.cat(taken).sort(0).values, data)


def test_a_forked_child_goes_on_by_itself() -> None:
    data = torch.randint(0, 256, (40, 500_000), dtype=torch.uint8)  # enough for several threads
    torch.manual_seed(3)
    second = list(TorchDataLoader(data, batch_size=16, shuffle=True))[1].numpy()
    iterator = iter(shuffled(data, batch_size=16))
    next(iterator)
    child = os.fork()
    if child == 0:  # nothing of the test may run on in here, and nothing of torch that uses its own threads
        try:
            os._exit(0 if np.array_equal(next(iterator).numpy(), second) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(next(iterator).numpy(), second)


def test_an_iterator_that_is_let_go_frees_the_dataset_even_in_a_cycle() -> None:
    data = numbers()
    gone = weakref.ref(data)
    loader = shuffled(Subset(data, [3, 1, 2, 7, 9]))
    iterator: Any = iter(loader)
    next(iterator)
    loader.kept = iterator
    iterator.kept = loader
    del data, loader, iterator
    gc.collect()
    assert gone() is None


def test_an_exception_from_the_sampler_comes_through() -> None:
    def failing() -> Any:
        yield from range(6)
        raise OSError("the sampler's own")

    iterator = iter(DataLoader(numbers(), batch_size=4, sampler=failing()))  # type: ignore[arg-type]
    next(iterator)
    with pytest.raises(OSError, match="the sampler's own"):
        next(iterator)
