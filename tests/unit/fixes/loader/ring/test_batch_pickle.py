"""What arrives through a slot is what arrives through torch's own queue: values, types, strides, sharing."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import datetime as dt
import decimal
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from same_batches import assert_same
from unstarve.fixes.loader.ring.batch_pickle import (
    COPIED_BYTES,
    Arrays,
    NotPackable,
    PackedBatch,
    loaded,
    pack,
)

LARGE = COPIED_BYTES  # float32 elements: well above what is copied


def through_slot(item: Any) -> Any:
    """What the training process would see, with the bytes in a buffer as a worker would lay them out."""
    return opened(pack(item))


def opened(packed: PackedBatch) -> Any:
    buffer = np.zeros(64 + sum(region.size_bytes + 64 for region in packed.regions), np.uint8)
    address, end, places = buffer.ctypes.data, 64, []
    for region in packed.regions:
        ctypes.memmove(address + end, region.address, region.size_bytes)
        places.append((end, region.size_bytes))
        end += -(-region.size_bytes // 64) * 64
    return loaded(packed.stream, Arrays(address, places, lambda: buffer))


def through_torch(item: Any) -> Any:
    """The same through what torch's queue sends."""
    return ForkingPickler.loads(ForkingPickler.dumps(item))


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    name: str


class Box:
    """Pickles in a way of its own, with a tensor that exists only while it is pickled."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return Box, (self.value.clone(),)


TYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32),
    *(torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2),
]


@pytest.mark.parametrize("count", [0, 1, 5, LARGE])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type_and_size(dtype: torch.dtype, count: int) -> None:
    noise = torch.randint(0, 2, (count * dtype.itemsize,), dtype=torch.uint8)
    item = noise.view(dtype) if count else torch.empty(0, dtype=dtype)
    assert_same(through_slot(item), item, own=True)


def large(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape)


TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "scalar": lambda: torch.tensor(3.5),
    "no elements": lambda: torch.empty(3, 0, 2),
    "small": lambda: large(3, 4),
    "large": lambda: large(64, LARGE // 64),
    "transposed": lambda: large(64, LARGE // 64).T,
    "channels last": lambda: large(2, 3, 100, 100).to(memory_format=torch.channels_last),
    "one channel, last": lambda: torch.zeros(2, 1, 100, 100).to(memory_format=torch.channels_last),
    "every other column": lambda: large(64, LARGE // 32)[:, ::2],
    "a slice": lambda: large(10, LARGE)[3:5],
    "expanded": lambda: torch.tensor([1.0, 2.0])[:, None].expand(2, LARGE),
    "small and not contiguous": lambda: large(6, 6)[1:4, ::2],
    "overlapping itself": lambda: large(2 * LARGE).unfold(0, LARGE, LARGE // 2),
    "detached": lambda: large(LARGE).requires_grad_().detach(),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_keeps_values_and_strides(name: str) -> None:
    assert_same(through_slot(TENSORS[name]()), through_torch(TENSORS[name]()), own=True)


def test_a_received_tensor_is_saved_with_its_own_bytes_alone() -> None:
    for size in (3, LARGE):
        x, y = through_slot((large(size), large(3 * LARGE)[:size]))
        assert x.untyped_storage().nbytes() == y.untyped_storage().nbytes() == 4 * size


def test_a_received_tensor_can_be_changed_in_place() -> None:
    x = through_slot(large(LARGE))
    x.mul_(2).detach_()
    x.requires_grad_()
    assert x.is_leaf
    assert torch.equal(x.detach(), 2 * large(LARGE))


ARRAYS: dict[str, Callable[[], Any]] = {
    "small": lambda: np.arange(12.0).reshape(3, 4),
    "large": lambda: np.arange(LARGE),
    "fortran": lambda: np.asfortranarray(np.arange(LARGE).reshape(64, -1)),
    "not contiguous": lambda: np.arange(2 * LARGE)[::2],
    "strings": lambda: np.array(["abc", "d"] * LARGE),
    "objects": lambda: np.array([None, "x"]),
    "records": lambda: np.zeros(LARGE, [("a", "i4"), ("b", "f8", (2,))]),
    "dates": lambda: np.arange(LARGE).astype("M8[s]"),
    "other byte order": lambda: np.arange(LARGE, dtype=">i4"),
    "read-only": lambda: np.broadcast_to(np.arange(LARGE), (LARGE,)),
    "masked": lambda: np.ma.masked_array(np.arange(LARGE), np.arange(LARGE) % 2),
    "no elements": lambda: np.empty((0, 3)),
    "scalar": lambda: np.float32(2),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_numpy_arrays(name: str) -> None:
    received, original = through_slot(ARRAYS[name]()), through_torch(ARRAYS[name]())
    assert type(received) is type(original)
    assert received.dtype == original.dtype
    assert received.shape == original.shape
    assert received.strides == original.strides
    assert received.flags.writeable == original.flags.writeable
    assert np.array_equal(received, original)


TREES: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"x": large(LARGE), "y": [1, 2.5, "text", b"bytes", None, True], 3: (large(2),)},
    "namedtuple": lambda: Point(large(LARGE), Point(1, large(3))),
    "dataclass": lambda: Sample(large(LARGE), "name"),
    "own pickling": lambda: [Box(large(LARGE)), Box(large(3))],
    "packed sequence": lambda: pack_sequence([large(LARGE), large(7)]),
    "ordered": lambda: collections.OrderedDict(b=large(3), a=large(LARGE)),
    "others": lambda: [decimal.Decimal("1.5"), dt.date(2026, 1, 2), range(3), {1, 2}, 2**80, 1 + 2j],
    "many": lambda: [large(i) for i in range(300)],
    "nothing": list,
    "long text": lambda: ["x" * 100_000, b"y" * 100_000],
    "deep": lambda: [[[[[[large(2)]]]]]],
}


@pytest.mark.parametrize("name", TREES)
def test_trees(name: str) -> None:
    assert_same(through_slot(TREES[name]()), TREES[name](), own=True)


def test_the_same_object_twice_is_one_object() -> None:
    x, array = large(LARGE), np.arange(LARGE)
    a, b, c, d = through_slot([x, x, array, array])
    assert a is b
    assert c is d


OVERLAPS: dict[str, Callable[[torch.Tensor], list[torch.Tensor]]] = {
    "a view": lambda x: [x, x.view(-1)],
    "a part first": lambda x: [x[2:3], x],
    "another type": lambda x: [x, x.view(torch.int32)],
    "halves that meet in the middle": lambda x: [x[:3], x[1:]],
    "with others": lambda x: [torch.zeros(3), x, torch.zeros(LARGE), x[1]],
}


@pytest.mark.parametrize("size", [6, LARGE])
@pytest.mark.parametrize("name", OVERLAPS)
def test_tensors_that_share_memory_still_do(name: str, size: int) -> None:
    def changed(received: list[torch.Tensor]) -> list[torch.Tensor]:
        for tensor in received:
            tensor.view(torch.uint8)[..., :2] += 1
        return received

    tensors = OVERLAPS[name](large(4, size))
    expected, got = through_torch(tensors), through_slot(tensors)
    assert_same(got, expected, own=True)
    assert_same(changed(got), changed(expected), own=True)


def test_parts_of_one_storage_that_do_not_overlap_are_sent_alone() -> None:
    first, second = large(2, LARGE)
    packed = pack([first, second])
    assert [region.size_bytes for region in packed.regions] == [4 * LARGE] * 2
    assert_same(opened(packed), [first.clone(), second.clone()], own=True)


class Labelled(torch.Tensor):
    pass


UNFIT: dict[str, Callable[[], Any]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "subclass": lambda: torch.ones(3).as_subclass(Labelled),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "leaf with gradient": lambda: torch.ones(3, requires_grad=True),
    "not a leaf": lambda: torch.ones(3, requires_grad=True) * 2,
    "no memory": lambda: torch.ones(3, device="meta"),
    "conjugated": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "storage": lambda: torch.ones(3).untyped_storage(),
    "typed storage": lambda: torch.FloatStorage(3),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "overlap in a huge storage": lambda: [(x := large(100 * LARGE))[:LARGE], x[:LARGE]],
    "shared already and large": lambda: torch.zeros(2 << 20).share_memory_(),
}


@pytest.mark.filterwarnings("ignore")  # torch warns of what is experimental
@pytest.mark.parametrize("name", UNFIT)
def test_what_only_torch_can_send_is_left_to_it(name: str) -> None:
    with pytest.raises(NotPackable):
        pack({"x": torch.zeros(3), "y": UNFIT[name]()})


def test_what_cannot_be_pickled_is_said_by_pickle() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pack({"x": lambda: 0})
