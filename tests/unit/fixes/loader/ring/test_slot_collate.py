"""What is collated into a slot is what torch's `default_collate` gives, and it fails as that does."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate

from same_batches import assert_same
from unstarve.fixes.loader.ring.slot_collate import SlotCollate

Pair = collections.namedtuple("Pair", "x y")


class Given:
    """Memory that was asked for."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        self.tensors.append(torch.empty(*shape, dtype=dtype))
        return self.tensors[-1]


@pytest.fixture
def given() -> Given:
    return Given()


@pytest.fixture
def collated(given: Given, monkeypatch: pytest.MonkeyPatch) -> SlotCollate:
    # Put back what it is before the test, whatever becomes of it.
    monkeypatch.setitem(collate.default_collate_fn_map, torch.Tensor, collate.collate_tensor_fn)
    return SlotCollate(given.allocate)


def row(number: int) -> torch.Tensor:
    return torch.arange(3) + number


SAMPLES: dict[str, Callable[[int], Any]] = {
    "tensors": row,
    "dicts": lambda i: {"x": row(i), "y": torch.tensor(i)},
    "tuples": lambda i: (row(i), torch.tensor(float(i))),
    "with numbers": lambda i: (row(i), i, i / 2, bool(i)),
    "with text": lambda i: {"x": row(i), "name": f"sample {i}", "raw": b"x"},
    "with arrays": lambda i: {"a": np.full(4, i), "n": np.float32(i)},
    "nested": lambda i: {"x": {"y": (row(i), [row(i), i])}, 3: row(i)},
    "lists": lambda i: [row(i), i],
    "named": lambda i: Pair(row(i), i),
    "ordered": lambda i: collections.OrderedDict(b=row(i), a=i),
    "no elements": lambda i: {"x": torch.empty(0, 2)},
    "nothing inside": lambda i: {},
    "nothing in order": lambda i: (),
    "not contiguous": lambda i: {"x": torch.arange(12).view(3, 4).T + i},
    "with gradient": lambda i: (row(i).float().requires_grad_(),),
    "more keys later": lambda i: {"x": row(i), **{f"only {n}": row(n) for n in range(i)}},
    "numbers": lambda i: i,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_batches_are_torchs(name: str, monkeypatch: pytest.MonkeyPatch, given: Given) -> None:
    samples = [SAMPLES[name](i) for i in range(4)]
    expected = default_collate(samples)
    monkeypatch.setitem(collate.default_collate_fn_map, torch.Tensor, collate.collate_tensor_fn)
    assert_same(SlotCollate(given.allocate)(samples), expected)
    assert_same(default_collate(samples), expected)


def test_tensors_are_stacked_in_the_memory_that_is_given(given: Given, collated: SlotCollate) -> None:
    batch = collated([SAMPLES["dicts"](i) for i in range(4)])
    assert [tensor.data_ptr() for tensor in given.tensors] == [t.data_ptr() for t in batch.values()]
    own = default_collate([[row(1)], [row(2)]])  # also where somebody's own function calls it
    assert own[0].data_ptr() == given.tensors[-1].data_ptr()


REFUSED: dict[str, list[Any]] = {
    "shapes differ": [{"x": torch.zeros(2)}, {"x": torch.zeros(3)}],
    "a key is missing": [{"x": row(1), "y": 1}, {"x": row(1)}],
    "lengths differ": [(row(1), 1), (row(1),)],
    "no collating that": [{"x": row(1), "y": object()}] * 2,
    "none": [{"x": None}] * 2,
    "other things later": [{"x": row(1)}, {"x": 1}],
    "no samples": [],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_in_its_words(name: str, collated: SlotCollate) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011  # whatever torch raises
        default_collate(REFUSED[name])
    with pytest.raises(type(expected.value)) as refused:
        collated(REFUSED[name])
    assert str(refused.value) == str(expected.value)
    assert refused.value.__context__ is None or expected.value.__context__ is not None


@pytest.mark.parametrize("already", [True, False])
def test_a_users_own_way_to_stack_is_used(
    already: bool, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    def own(tensors: Any, *, collate_fn_map: Any = None) -> str:
        return f"{len(tensors)} tensors"

    functions: Any = collate.default_collate_fn_map
    monkeypatch.setitem(functions, torch.Tensor, own if already else collate.collate_tensor_fn)
    collated = SlotCollate(given.allocate)
    functions[torch.Tensor] = own
    assert not collated.is_in_place
    assert collated([{"x": row(1)}] * 3) == {"x": "3 tensors"}


def test_a_users_own_way_to_collate_dicts_is_used(
    collated: SlotCollate, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions: Any = collate.default_collate_fn_map
    monkeypatch.setitem(functions, dict, lambda samples, *, collate_fn_map=None: f"{len(samples)} dicts")
    assert collated([{"x": row(1)}] * 3) == "3 dicts"
