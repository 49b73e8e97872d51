"""Samples that are stacked right in their slot arrive as the batch that torch would have made of them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate

from same_batches import assert_same
from unstarve.fixes.loader.ring.batch_pickle import COPIED_BYTES
from unstarve.fixes.loader.ring.slot_collate import FilledSlot, RepeatCollate, SlotCollate
from unstarve.fixes.loader.ring.slot_messages import Inbox, Outbox

LARGE = COPIED_BYTES // 2  # float32 elements of a sample: two of them are more than what is copied
SAMPLES = 3


class Line:
    """From samples in a worker to a batch in the training process."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.inbox = Inbox()
        self.outbox = Outbox(self.theirs, self.inbox.connect(ours), 2)
        self.collate = RepeatCollate(SlotCollate(self.outbox.allocate), self.outbox.take)
        self.sent = 0

    def send(self, samples: Any) -> tuple[bool, Any]:
        """Whether there was no batch in between, and what arrives."""
        batch = self.collate(samples)
        message = self.outbox.message((self.sent, batch))
        assert message is not None
        task, received = self.inbox.open(message) if message.startswith(b"u") else (self.sent, batch)
        assert task == self.sent
        self.sent += 1
        return type(batch) is FilledSlot, received


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setitem(collate.default_collate_fn_map, torch.Tensor, collate.collate_tensor_fn)
    line = Line()
    yield line
    line.inbox.close()
    line.theirs.close()


def row(number: float, *shape: int) -> torch.Tensor:
    return torch.full(shape or (LARGE,), float(number))


KINDS: dict[str, Callable[[int], Any]] = {
    "tensors": row,
    "dicts": lambda i: {"x": row(i), "y": torch.tensor(i)},
    "tuples": lambda i: (row(i, 2, LARGE), row(i, 3)),
    "with a label": lambda i: (row(i), i),
    "with numbers": lambda i: {"n": i, "x": row(i, 5), "z": i / 2},
    "only numbers": lambda i: (i, i + 0.5),
    "not contiguous": lambda i: {"x": row(i, 4, LARGE).T},
    "small": lambda i: {f"column {n}": row(i + n, 4) for n in range(20)},
    "bytes": lambda i: {"x": torch.full((LARGE,), i, dtype=torch.uint8), "y": torch.tensor(i > 3)},
}
OTHERS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda i: i,
    "text": lambda i: {"x": row(i), "name": str(i)},
    "lists": lambda i: [row(i), i],
    "nested": lambda i: {"x": {"y": row(i)}},
    "arrays": lambda i: {"x": np.full(LARGE, i)},
    "flags": lambda i: (row(i), bool(i)),
    "no elements": lambda i: {"x": torch.zeros(0), "y": row(i)},
    "nothing inside": lambda i: {},
    "keys that are no text": lambda i: {1: row(i)},
}


def samples_of(make: Callable[[int], Any], number: int, count: int = SAMPLES) -> list[Any]:
    return [make(SAMPLES * number + i) for i in range(count)]


@pytest.mark.parametrize("name", KINDS)
def test_from_the_third_batch_of_a_kind_on_there_is_no_batch_in_between(name: str, line: Line) -> None:
    kept = []
    for number in range(8):
        samples = samples_of(KINDS[name], number)
        direct, batch = line.send(samples)
        assert direct == (number >= 2)
        kept.append((default_collate(samples), batch))
        for expected, received in kept:  # also those of before: none is written over
            assert_same(received, expected)
        kept = kept[-2:]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_columns_of_tensors_is_collated_first(name: str, line: Line) -> None:
    for number in range(5):
        samples = samples_of(OTHERS[name], number)
        direct, batch = line.send(samples)
        assert not direct
        assert_same(batch, default_collate(samples))


CHANGED: dict[str, Callable[[], list[Any]]] = {
    "fewer samples": lambda: samples_of(KINDS["dicts"], 0, 2),
    "another shape": lambda: [{"x": row(i, 7), "y": torch.tensor(i)} for i in range(SAMPLES)],
    "another type": lambda: [{"x": row(i).double(), "y": torch.tensor(i)} for i in range(SAMPLES)],
    "other keys": lambda: [{"x": row(i), "z": torch.tensor(i)} for i in range(SAMPLES)],
    "another order": lambda: [{"y": torch.tensor(i), "x": row(i)} for i in range(SAMPLES)],
    "a number": lambda: [{"x": row(i), "y": i} for i in range(SAMPLES)],
    "text": lambda: [{"x": row(i), "y": "text"} for i in range(SAMPLES)],
    "gradients": lambda: [{"x": row(i).requires_grad_(), "y": torch.tensor(i)} for i in range(SAMPLES)],
    "tuples": lambda: samples_of(KINDS["tuples"], 0),
    "more keys in a later one": lambda: [
        {**KINDS["dicts"](i), f"z{i}": 1} if i else KINDS["dicts"](i) for i in range(3)
    ],
    "mixed types": lambda: [{"x": row(i), "y": torch.tensor([i, i / 2][i % 2])} for i in range(SAMPLES)],
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_is_noticed_and_the_way_back_too(name: str, line: Line) -> None:
    usual = KINDS["dicts"]
    for number in range(3):
        line.send(samples_of(usual, number))
    for _ in range(4):
        changed = line.collate(CHANGED[name]())
        if type(changed) is FilledSlot:
            changed = line.inbox.open(line.outbox.message((0, changed)) or b"")[1]
        assert_same(changed, default_collate(CHANGED[name]()))
        samples = samples_of(usual, 9)
        assert_same(line.send(samples)[1], default_collate(samples))


REFUSED: dict[str, list[Any]] = {
    "shapes differ": [{"x": row(1), "y": torch.tensor(1)}, *[{"x": row(1, 3), "y": torch.tensor(1)}] * 2],
    "a key is missing": [{"x": row(1), "y": torch.tensor(1)}, *[{"x": row(1)}] * 2],
    "no tensor": [{"x": row(1), "y": torch.tensor(1)}, *[{"x": 5, "y": torch.tensor(1)}] * 2],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_in_its_words(name: str, line: Line) -> None:
    for number in range(3):
        line.send(samples_of(KINDS["dicts"], number))
    with pytest.raises(Exception) as expected:  # noqa: PT011  # whatever torch raises
        default_collate(REFUSED[name])
    with pytest.raises(type(expected.value)) as refused:
        line.collate(REFUSED[name])
    assert str(refused.value) == str(expected.value)
    for number in range(8):
        assert line.send(samples_of(KINDS["dicts"], number))[0]
    assert line.inbox.slot_count <= 2  # none is lost on the way


def test_slots_are_used_again_by_all_ways_in_turn(line: Line) -> None:
    makers = [*KINDS.values(), *OTHERS.values()]
    for turn in range(4 * len(makers)):
        make = makers[turn // 4]
        samples = samples_of(make, turn)
        assert_same(line.send(samples)[1], default_collate(samples))
    assert line.inbox.slot_count <= 2


def test_who_keeps_every_batch_has_every_batch(line: Line) -> None:
    kept = []
    for number in range(20):
        samples = samples_of(KINDS["dicts"], number)
        kept.append((samples, line.send(samples)[1]))
    for samples, batch in kept:
        assert_same(batch, default_collate(samples))


def test_no_slot_to_be_had_is_no_reason_to_fail(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        line.send(samples_of(KINDS["dicts"], number))
    monkeypatch.setattr(line.collate, "_take", lambda size_bytes: None)
    samples = samples_of(KINDS["dicts"], 4)
    direct, batch = line.send(samples)
    assert not direct
    assert_same(batch, default_collate(samples))


def test_a_users_own_way_to_stack_is_used_from_then_on(line: Line) -> None:
    for number in range(3):
        line.send(samples_of(KINDS["dicts"], number))

    def own(tensors: Any, *, collate_fn_map: Any = None) -> int:
        return len(tensors)

    functions: Any = collate.default_collate_fn_map
    functions[torch.Tensor] = own
    assert line.collate(samples_of(KINDS["dicts"], 4)) == {"x": SAMPLES, "y": SAMPLES}
