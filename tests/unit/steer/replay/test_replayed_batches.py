"""A replayed batch is the loader's batch, full size, free of side effects and cheap."""

from __future__ import annotations

import copy
import random
import threading
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from sample_loaders import shared_memory_descriptors
from unstarve.errors import UsageError
from unstarve.steer.replay.replayed_batches import BatchCache

LARGE = (8, 64, 64)  # well past the size up to which a tensor is simply copied

Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    names: list[str]


class Plain:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x
        self.tags = ["a"]


def cache_of(*batches: Any, capacity: int | None = None, **options: Any) -> BatchCache:
    cache = BatchCache(capacity or len(batches), **options)
    for batch in batches:
        cache.offer(batch)
    return cache


# --- which batches are kept ---


def test_batches_are_handed_out_in_turn() -> None:
    cache = cache_of(*(torch.full((4,), float(n)) for n in range(3)))
    assert [cache.hand_out()[0].item() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_what_is_offered_to_a_full_cache_is_not_kept() -> None:
    cache = cache_of(torch.zeros(4), torch.ones(4), capacity=1)
    assert cache.full
    assert len(cache) == 1
    assert cache.hand_out()[0] == 0


def test_a_short_batch_is_refused_once_a_full_one_was_seen() -> None:
    cache = cache_of(torch.zeros(4), torch.zeros(3), torch.zeros(4), capacity=5)
    assert [len(cache.hand_out()) for _ in range(len(cache))] == [4, 4]


def test_a_short_batch_makes_way_for_a_full_one() -> None:
    cache = cache_of(torch.zeros(3), torch.zeros(4), capacity=5)
    assert [len(cache.hand_out()) for _ in range(len(cache))] == [4]


def test_a_loader_of_short_batches_only_still_works() -> None:
    assert len(cache_of(torch.zeros(1), torch.zeros(1))) == 2


def test_a_loader_that_varies_its_batch_size_by_design_fills_the_cache() -> None:
    cache = cache_of(*(torch.zeros(5 + (n * 7) % 11) for n in range(30)), capacity=10)
    assert cache.full
    assert len({len(cache.hand_out()) for _ in range(10)}) > 1


def test_batches_without_a_size_are_kept() -> None:
    assert len(cache_of("text", 3, object())) == 3


@pytest.mark.parametrize("capacity", [0, -1, None, True, 2.5, "3"])
def test_a_capacity_that_makes_no_sense_is_refused(capacity: Any) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        BatchCache(capacity)


def test_an_empty_cache_has_nothing_to_hand_out() -> None:
    with pytest.raises(UsageError, match="no batch"):
        BatchCache(1).hand_out()


# --- the copy is as the original ---


@pytest.mark.parametrize(
    "batch",
    [
        torch.arange(6).reshape(2, 3),
        np.arange(6).reshape(2, 3),
        {"x": torch.ones(2), "name": ["a", "b"]},
        OrderedDict(x=torch.ones(2)),
        UserDict(x=torch.ones(2)),
        [torch.ones(2), torch.zeros(2)],
        (torch.ones(2), {"deep": [torch.zeros(2), "s", 1.5, None, b"b"]}),
        Pair(torch.ones(2), torch.zeros(2)),
        Frozen(torch.ones(2), ["a"]),
        "text",
        7,
        None,
        [],
        {},
        torch.empty(0, 3),
        torch.eye(3).to_sparse(),
        torch.tensor(3.0),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_any_nesting_comes_back_as_it_was(batch: Any) -> None:
    cache = cache_of(batch)
    for _ in range(3):
        again = cache.hand_out()
        assert type(again) is type(batch)
        assert repr(again) == repr(batch)


def test_unknown_objects_are_copied_with_their_tensors() -> None:
    original = Plain(torch.zeros(LARGE))
    cache = cache_of(original)
    first = cache.hand_out()
    first.x.add_(1)
    first.tags.append("b")
    second = cache.hand_out()
    assert second.x.sum() == 0
    assert second.tags == ["a"]
    assert original.tags == ["a"]


def test_an_object_that_cannot_be_copied_is_shared() -> None:
    lock = threading.Lock()
    cache = cache_of({"x": torch.zeros(2), "lock": lock})
    assert cache.hand_out()["lock"] is lock


def test_a_packed_sequence_comes_back_usable() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    again = cache_of(packed, replay_on="device", device="cpu").hand_out()
    assert torch.equal(again.data, packed.data)
    assert torch.equal(again.batch_sizes, packed.batch_sizes)


def test_the_same_tensor_twice_is_the_same_tensor_twice() -> None:
    x = torch.zeros(LARGE)
    first, second = cache_of([x, x]).hand_out()
    assert first is second


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.bfloat16, torch.int64, torch.complex128])
def test_type_and_memory_layout_are_kept(dtype: torch.dtype) -> None:
    x = torch.zeros(2, 3, 32, 32, dtype=dtype).to(memory_format=torch.channels_last)
    again = cache_of(x).hand_out()
    assert again.dtype == dtype
    assert again.stride() == x.stride()


def test_a_view_of_a_large_tensor_does_not_keep_the_large_one() -> None:
    again = cache_of(torch.zeros(1000, 4096)[:2]).hand_out()
    assert again.untyped_storage().nbytes() == 2 * 4096 * 4


def test_a_tensor_subclass_stays_one() -> None:
    class Marked(torch.Tensor):
        pass

    again = cache_of(torch.zeros(LARGE).as_subclass(Marked)).hand_out()
    assert type(again) is Marked


def test_batches_met_in_inference_mode_can_be_trained_on() -> None:
    with torch.inference_mode():
        cache = cache_of(torch.ones(LARGE), torch.ones(2))
    weight = torch.ones((), requires_grad=True)
    for batch in (cache.hand_out(), cache.hand_out()):
        (batch * weight).sum().backward()


# --- changing a handed-out batch changes no later one ---


def add_in_place(x: torch.Tensor) -> None:
    x.add_(1)


def add_through_data(x: torch.Tensor) -> None:
    x.data.add_(1)


def add_through_numpy(x: torch.Tensor) -> None:
    x.numpy()[...] += 1


def add_in_inference_mode(x: torch.Tensor) -> None:
    with torch.inference_mode():
        x.add_(1)


def free_the_storage(x: torch.Tensor) -> None:
    x.untyped_storage().resize_(0)


def reshape_in_place(x: torch.Tensor) -> None:
    x.resize_(2)


CHANGES = [
    add_in_place,
    add_through_data,
    add_through_numpy,
    add_in_inference_mode,
    free_the_storage,
    reshape_in_place,
]


@pytest.mark.parametrize("shape", [LARGE, (3,)], ids=["large", "small"])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_in_place_do_not_compound(change: Any, shape: tuple[int, ...]) -> None:
    cache = cache_of([torch.zeros(shape)])
    for _ in range(3):
        (x,) = cache.hand_out()
        assert x.shape == shape
        assert x.sum() == 0
        change(x)


def test_a_changed_tensor_is_not_restored_under_its_holder() -> None:
    cache = cache_of(torch.zeros(LARGE))
    held = cache.hand_out().add_(1)
    cache.hand_out()
    assert held.min() == 1


def test_nan_is_not_taken_for_a_change() -> None:
    cache = cache_of(torch.full(LARGE, torch.nan))
    assert cache.hand_out().data_ptr() == cache.hand_out().data_ptr()


def test_large_tensors_are_not_copied_at_a_hand_out() -> None:
    cache = cache_of({"x": torch.zeros(LARGE)})
    assert len({cache.hand_out()["x"].data_ptr() for _ in range(5)}) == 1


def test_containers_are_fresh_each_time() -> None:
    cache = cache_of({"x": torch.zeros(LARGE), "words": ["a", "b"], "deep": [{"n": 1}]})
    batch = cache.hand_out()
    batch.pop("x")
    batch["words"].append("c")
    batch["deep"][0]["n"] = 2
    assert cache.hand_out()["words"] == ["a", "b"]
    assert cache.hand_out()["deep"] == [{"n": 1}]
    assert "x" in cache.hand_out()


def test_arrays_are_copied_each_time() -> None:
    cache = cache_of([np.zeros(5000)])
    cache.hand_out()[0][:] = 1
    assert cache.hand_out()[0].sum() == 0


def test_gradients_do_not_stay() -> None:
    cache = cache_of(torch.ones(LARGE))
    x = cache.hand_out().requires_grad_()
    (x * 2).sum().backward()
    again = cache.hand_out()
    assert again.grad is None
    assert not again.requires_grad


def test_changing_the_offered_batch_later_changes_nothing() -> None:
    batch = {"x": torch.zeros(LARGE), "n": np.zeros(3)}
    cache = cache_of(batch)
    batch["x"].add_(1)
    batch["n"] += 1
    assert cache.hand_out()["x"].sum() == 0
    assert cache.hand_out()["n"].sum() == 0


# --- what it must leave alone ---


def test_no_random_number_is_drawn() -> None:
    before = random.getstate(), copy.deepcopy(np.random.get_state()), torch.get_rng_state()
    cache = cache_of({"x": torch.zeros(LARGE), "n": np.zeros(3)})
    cache.hand_out()["x"].add_(1)
    cache.hand_out()
    assert random.getstate() == before[0]
    assert np.array_equal(np.random.get_state()[1], before[1][1])
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_no_descriptor_of_a_workers_shared_memory_stays_open() -> None:
    data = TensorDataset(torch.arange(400.0).reshape(100, 4), torch.arange(100))
    loader = DataLoader(data, batch_size=2, num_workers=2)
    cache = BatchCache(40)
    before = shared_memory_descriptors()
    received = list(loader)
    held = shared_memory_descriptors()
    for batch in received:
        cache.offer(batch)
    del received, batch
    assert len(cache) == 40
    assert held >= 100
    assert shared_memory_descriptors() <= before


# --- where replayed batches live ---


def test_replay_on_a_device_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="sees none"):
        BatchCache(1, replay_on="device")


def test_a_named_device_is_used() -> None:
    assert cache_of(torch.zeros(LARGE), replay_on="device", device="meta").hand_out().device.type == "meta"


def test_a_device_for_replay_on_the_host_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="replay_on='device'"):
        BatchCache(1, device="cpu")


def test_a_misspelt_place_is_refused() -> None:
    with pytest.raises(UsageError, match="'host' or 'device'"):
        BatchCache(1, replay_on="gpu")  # type: ignore[arg-type]  # the point of the test
