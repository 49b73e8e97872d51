"""A batch that looks like an earlier one is built from that one's pickle, and only one that really does."""

from __future__ import annotations

import collections
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from same_batches import assert_same
from unstarve.fixes.loader.ring import batch_pickle
from unstarve.fixes.loader.ring.batch_pickle import COPIED_BYTES, LARGE_BYTES, StreamCache, pack
from unstarve.fixes.loader.ring.slot_messages import HANDLE, WHOLE, Inbox, Outbox

LARGE = COPIED_BYTES  # float32 elements: well above what is copied


def filled(value: float, *shape: int) -> torch.Tensor:
    return torch.full(shape, value)


TREES: dict[str, Callable[[float], Any]] = {
    "tensor": lambda v: filled(v, LARGE),
    "scalar": torch.tensor,
    "dict": lambda v: {"x": filled(v, 2, LARGE), "y": filled(v, 3)},
    "other key": lambda v: {"x": filled(v, 2, LARGE), "z": filled(v, 3)},
    "other order": lambda v: {"y": filled(v, 3), "x": filled(v, 2, LARGE)},
    "other shape": lambda v: {"x": filled(v, LARGE, 2), "y": filled(v, 3)},
    "other type": lambda v: {"x": filled(v, 2, LARGE).int(), "y": filled(v, 3)},
    "list": lambda v: [filled(v, 4), filled(v, LARGE)],
    "tuple": lambda v: (filled(v, 4), filled(v, LARGE)),
    "nested": lambda v: {"a": [filled(v, 4), (filled(v, LARGE), {"b": filled(v, 1)})]},
    "nested otherwise": lambda v: {"a": [filled(v, 4), (filled(v, LARGE),), {"b": filled(v, 1)}]},
    "odd strides": lambda v: filled(v, 2, 1, 3, 3).to(memory_format=torch.channels_last),
    "usual strides": lambda v: filled(v, 2, 1, 3, 3),
}


@pytest.mark.parametrize("name", TREES)
def test_the_second_of_a_kind_is_packed_as_if_it_were_the_first(name: str) -> None:
    repeats = StreamCache()
    assert repeats.pack(TREES[name](0)) is None
    for value in (1, 2, 3):
        batch = TREES[name](value)
        assert repeats.pack(batch) == pack(batch)


class Line:
    """From a worker's end to the training process's, and whether the pickle had been known."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.inbox = Inbox()
        self.outbox = Outbox(self.theirs, self.inbox.connect(ours), 2)
        self.known = False

    def send(self, task: int, batch: Any) -> Any:
        message = self.outbox.message((task, batch))
        assert message is not None
        self.known = HANDLE.unpack(message)[1] != WHOLE
        return self.inbox.open(message)


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.inbox.close()
    line.theirs.close()


def test_what_arrives_is_what_was_sent_however_kinds_alternate(line: Line) -> None:
    kept, known = [], 0
    for task in range(5 * len(TREES)):
        make = list(TREES.values())[task % len(TREES)]
        number, batch = line.send(task, make(task))
        assert number == task
        known += line.known
        kept.append((make(task), batch))
        for expected, received in kept[-4:]:
            assert_same(received, expected, own=True)
        kept = kept[-3:]
    assert known == 4 * len(TREES)


def test_a_batch_of_known_looks_gives_its_slot_back(line: Line) -> None:
    for task in range(20):
        assert line.send(task, {"x": filled(task, LARGE)})[1]["x"].sum() == task * LARGE
    assert line.known
    assert line.inbox.slot_count == 1


class Labelled(torch.Tensor):
    pass


def _cycle() -> list[Any]:
    cycle: list[Any] = [torch.zeros(3)]
    cycle.append(cycle)
    return cycle


MORE: dict[str, Callable[[], Any]] = {
    "a number": lambda: {"x": torch.zeros(3), "n": 1},
    "text": lambda: [torch.zeros(3), "text"],
    "nothing inside": lambda: [torch.zeros(3), []],
    "no elements": lambda: [torch.zeros(3), torch.zeros(0)],
    "the same twice": lambda: [x := torch.zeros(3), x],
    "the same memory": lambda: [x := torch.zeros(3), x[:2]],
    "not contiguous": lambda: torch.zeros(4, 4).T,
    "with gradient": lambda: torch.zeros(3, requires_grad=True),
    "subclass": lambda: torch.zeros(3).as_subclass(Labelled),
    "a dict of its own kind": lambda: collections.OrderedDict(x=torch.zeros(3)),
    "keys that are no text": lambda: {1: torch.zeros(3)},
    "large": lambda: torch.zeros(LARGE_BYTES // 4 + 1),
    "in a circle": _cycle,
    "sparse": lambda: torch.eye(3).to_sparse(),
    "no memory": lambda: torch.zeros(3, device="meta"),
}


@pytest.mark.parametrize("name", MORE)
def test_what_is_more_than_types_and_shapes_is_packed_afresh(name: str) -> None:
    repeats = StreamCache()
    for _ in range(3):
        assert repeats.pack(MORE[name]()) is None


def test_batches_that_all_differ_are_not_remembered_for_ever(line: Line) -> None:
    for size in range(1, 3 * batch_pickle._MAX_REMEMBERED):
        for task in (0, 1, 2):
            assert line.send(task, filled(task, size))[1].tolist() == [task] * size
    assert len(line.outbox._repeats._streams) <= batch_pickle._MAX_REMEMBERED
    assert len(line.inbox._plans._plans) <= batch_pickle._MAX_REMEMBERED
