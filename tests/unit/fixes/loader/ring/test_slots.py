"""A slot is used again when nobody refers to it, on either side, and never before."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unstarve.fixes.loader.ring import slots
from unstarve.fixes.loader.ring.batch_pickle import COPIED_BYTES
from unstarve.fixes.loader.ring.slot_messages import MOST_INLINE_BYTES, TAG, Inbox, Outbox
from unstarve.fixes.memory.unnamed_memory import Mapping, create

LARGE = COPIED_BYTES
forks = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # other tests left threads
PREFETCH = 2


class Line:
    """A worker's end and the training process's end of a hand-off, in one process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.inbox = Inbox()
        self.worker_socket = theirs
        self.outbox = Outbox(theirs, self.inbox.connect(ours), PREFETCH)

    def send(self, item: Any) -> Any:
        message = self.outbox.message(item)
        assert message is not None
        return self.inbox.open(message)

    def close(self) -> None:
        self.inbox.close()
        self.worker_socket.close()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


def mapped() -> int:
    """How many mappings of shared memory this process has."""
    gc.collect()
    return Path("/proc/self/maps").read_text().count("unstarve-ring")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_one_slot_is_enough_for_who_keeps_nothing(line: Line) -> None:
    for i in range(50):
        assert line.send({"x": torch.full((LARGE,), i)})["x"].sum() == i * LARGE
    assert line.inbox.slot_count == 1


def contents(kept: Any) -> bytes:
    if isinstance(kept, torch.UntypedStorage):
        kept = torch.empty(0, dtype=torch.uint8).set_(kept)
    return kept.numpy().tobytes() if isinstance(kept, torch.Tensor) else kept.tobytes()


@pytest.mark.parametrize(
    "kept",
    [
        lambda batch: batch["x"],
        lambda batch: batch["x"][3:4],
        lambda batch: batch["x"].view(-1, 2).T,
        lambda batch: batch["x"].numpy(),
        lambda batch: batch["x"].untyped_storage(),
        lambda batch: batch["x"].detach().view(torch.int32),
        lambda batch: memoryview(batch["x"].numpy()[5:9]),
        lambda batch: batch["a"],
        lambda batch: torch.from_numpy(batch["a"][::2]),
    ],
)
def test_whatever_is_kept_of_a_batch_keeps_its_values(line: Line, kept: Any) -> None:
    first = line.send({"x": torch.arange(LARGE).float(), "a": np.arange(LARGE)})
    keep = kept(first)
    before = contents(keep)
    del first
    for i in range(8):
        line.send({"x": torch.full((LARGE,), -1.0 * i), "a": np.full(LARGE, -i)})
    assert contents(keep) == before
    assert line.inbox.slot_count == 2
    del keep
    line.send(torch.zeros(LARGE))
    assert line.inbox.slot_count == 2


def test_small_tensors_keep_no_slot(line: Line) -> None:
    labels = []
    for i in range(20):
        batch = line.send({"x": torch.zeros(LARGE), "y": torch.full((64,), i), "z": np.full(64, i)})
        labels.append((batch["y"], batch["z"]))
        del batch
    assert line.inbox.slot_count == 1
    assert all((y == i).all() and (z == i).all() for i, (y, z) in enumerate(labels))


def test_who_keeps_everything_gets_more_slots_and_then_torchs_own_way(line: Line) -> None:
    size = slots._MORE_BYTES // 8 // 4  # an eighth of what there may be beyond the usual number of slots
    kept, refused = [], 0
    for i in range(12):
        message = line.outbox.message(torch.full((size,), float(i)))
        if message is None:
            refused += 1
        else:
            kept.append(line.inbox.open(message))
    assert refused > 0
    assert len(kept) >= PREFETCH + 2
    assert [x[0].item() for x in kept] == list(range(len(kept)))
    kept.clear()
    assert line.send(torch.ones(size)).sum() == size


def test_larger_batches_get_larger_slots_and_the_small_ones_go(line: Line) -> None:
    start = mapped()
    for power in range(14, 23):
        assert line.send(torch.full((1 << power,), 2.0)).sum() == 2 << power
    assert line.inbox.slot_count == 1
    assert mapped() == start + 2  # one slot, seen from both sides


@pytest.mark.parametrize("sizes", [[LARGE, 3, 10 * LARGE, 0, LARGE + 1, 7 * LARGE, 1]])
def test_sizes_may_change_from_batch_to_batch(line: Line, sizes: list[int]) -> None:
    kept: list[tuple[int, torch.Tensor]] = []
    for i, size in enumerate(sizes * 3):
        kept.append((i, line.send([torch.full((size,), i), str(i) * size])[0]))
        kept = kept[-3:]
        assert all((x == i).all() for i, x in kept)


def test_what_needs_no_memory_is_the_message_itself(line: Line) -> None:
    assert not line.outbox.message((1, ["text", None])).startswith(TAG)
    assert line.send((1, "x" * MOST_INLINE_BYTES)) == (1, "x" * MOST_INLINE_BYTES)
    assert line.inbox.slot_count == 1


def test_a_batch_built_in_the_slot_is_not_copied(line: Line) -> None:
    line.send(torch.zeros(4, LARGE))  # now the worker knows how large batches are
    built = line.outbox.allocate((4, LARGE), torch.float32)
    built[:] = torch.arange(LARGE)
    address = built.data_ptr()
    message = line.outbox.message({"x": built, "rows": built[1:3], "n": torch.ones(3)})
    assert message is not None
    slot = line.outbox._slots._slots[0]
    assert slot.mapping.address <= address < slot.mapping.address + slot.mapping.size_bytes
    batch = line.inbox.open(message)
    assert torch.equal(batch["x"], torch.arange(LARGE).expand(4, -1).float())
    assert torch.equal(batch["rows"], batch["x"][1:3])
    batch["x"][1] = 7
    assert (built[1] == 7).all()


def test_what_the_worker_keeps_of_a_batch_is_not_written_over(line: Line) -> None:
    line.send(torch.zeros(LARGE))
    kept = line.outbox.allocate((LARGE,), torch.float32).fill_(5)
    line.send(kept)
    for i in range(5):
        line.send(line.outbox.allocate((LARGE,), torch.float32).fill_(i))
    assert (kept == 5).all()
    assert (line.send(kept) == 5).all()


def test_memory_that_was_allocated_and_not_sent_is_found_again(line: Line) -> None:
    line.send(torch.zeros(LARGE))
    for _ in range(20):
        line.outbox.allocate((LARGE,), torch.float32)
        line.outbox.message("an exception instead")
    assert line.send(torch.ones(LARGE)).sum() == LARGE
    assert line.inbox.slot_count == 1


def test_more_than_the_slot_holds_is_allocated_elsewhere(line: Line) -> None:
    line.send(torch.zeros(LARGE))
    parts = [line.outbox.allocate((LARGE,), torch.float32).fill_(i) for i in range(5)]
    assert [int(x[0]) for x in line.send(parts)] == list(range(5))


def test_slots_keep_no_descriptor_and_leave_no_memory() -> None:
    maps, before = mapped(), descriptors()
    line = Line()
    kept = [line.send(torch.full((LARGE,), i)) for i in range(3)]
    assert descriptors() <= before + 2  # the two ends of the line; other tests' leftovers may go meanwhile
    line.close()
    del line
    assert mapped() <= maps + 3
    assert [int(x[0]) for x in kept] == [0, 1, 2]
    kept.clear()
    assert mapped() <= maps
    assert descriptors() <= before


def test_no_memory_to_be_had_is_no_reason_to_fail(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size_bytes: int) -> tuple[Mapping, int]:
        raise OSError(12, "no memory")

    monkeypatch.setattr(slots, "create", refuse)
    assert line.outbox.message(torch.zeros(LARGE)) is None


def test_memory_comes_zeroed_and_is_shared() -> None:
    ours, descriptor = create(8192)
    theirs = Mapping(descriptor, 8192)
    os.close(descriptor)
    assert not any(ours.view())
    ours.view()[5000] = 7
    assert theirs.view()[5000] == 7


@forks
def test_a_forked_child_keeps_seeing_the_batch_it_inherited(line: Line) -> None:
    batch = line.send(torch.full((LARGE,), 1.0))
    go, gone = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go, 1)
        same = bool((batch == 1).all())
        del batch  # must give nothing back: the slot is not the child's
        os._exit(0 if same else 1)
    del batch
    for i in range(5):
        line.send(torch.full((LARGE,), float(i)))
    os.write(gone, b"!")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(go)
    os.close(gone)
    assert line.inbox.slot_count == 1


@forks
def test_a_forked_child_gives_nothing_back(line: Line) -> None:
    batch = line.send(torch.full((LARGE,), 1.0))
    child = os.fork()
    if child == 0:
        del batch
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    for i in range(5):
        line.send(torch.full((LARGE,), float(i)))
    assert (batch == 1).all()


def test_a_broken_batch_gives_its_slot_back(line: Line) -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            line.send([torch.zeros(LARGE), Broken()])
        gc.collect()
    assert line.inbox.slot_count == 1


class Broken:
    def __reduce__(self) -> Any:
        return _break, ()


def _break() -> None:
    raise ZeroDivisionError
