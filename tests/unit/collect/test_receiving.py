"""What comes out of the workers' queue: when it arrived, and when it was unpacked."""

from __future__ import annotations

import multiprocessing
import queue as thread_queue
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from unstarve.collect import receiving
from unstarve.collect.receiving import time_receiving
from unstarve.collect.torch_iterator import queue_gauge
from unstarve.record import format as f
from unstarve.record import writer

pytestmark = pytest.mark.usefixtures("variant")


@pytest.fixture
def owner() -> Any:
    return SimpleNamespace(writer=SimpleNamespace(ledger=writer.Ledger()))


def received(owner: Any) -> list[tuple[int, ...]]:
    return [
        row for _, rows in owner.writer.ledger.take() for row in f.ROW_KINDS[f.RECEIVED].iter_unpack(rows)
    ]


def test_a_batch_is_noted_by_its_task_and_epoch(owner: Any) -> None:
    queue: Any = multiprocessing.get_context("fork").Queue()
    timed = time_receiving(queue, owner, 3, pinned=False)
    assert timed is not None
    timed.epoch = 4
    begin = time.perf_counter_ns()
    for item in ((7, "batch"), "no batch", ("neither",), ()):
        queue.put(item)
        assert queue.get(timeout=180) == item
    end = time.perf_counter_ns()
    ((loader, flags, epoch, task, arrived, ready, pinned),) = received(owner)
    assert (loader, flags, epoch, task) == (3, 0, 4, 7)
    assert begin <= arrived <= ready == pinned <= end
    with pytest.raises(thread_queue.Empty):
        queue.get(timeout=0.01)
    with pytest.raises(thread_queue.Empty):
        queue.get(False)
    with pytest.raises(thread_queue.Empty):
        queue.get_nowait()
    queue.put((8, "batch"))
    assert queue.get() == (8, "batch")
    assert [row[3] for row in received(owner)] == [8]
    queue.close()
    with pytest.raises(ValueError, match="closed"):
        queue.get()


def test_where_a_thread_pins_batches_the_row_is_kept_until_that_is_done(owner: Any) -> None:
    queue: Any = multiprocessing.get_context("fork").Queue()
    time_receiving(queue, owner, 3, pinned=True)
    queue.put((7, "batch"))
    queue.get(timeout=180)
    assert received(owner) == []
    kept_for, row = receiving._pinning.pending
    del receiving._pinning.pending
    assert kept_for is owner
    assert row[:4] == (3, 0, 0, 7)
    queue.close()


def test_a_queue_goes_when_its_iterator_goes(owner: Any) -> None:
    queue: Any = multiprocessing.get_context("fork").Queue()
    time_receiving(queue, owner, 3, pinned=False)
    gone = weakref.ref(queue)
    del queue
    assert gone() is None


def test_a_foreign_queue_is_left_alone(owner: Any) -> None:
    class Foreign:
        _recv_bytes = None

        def get(self) -> str:
            return "item"

    queue = Foreign()
    assert time_receiving(queue, owner, 3, pinned=False) is None
    assert vars(queue) == {}


def test_what_lies_in_a_queue_can_be_told() -> None:
    workers: Any = multiprocessing.get_context("fork").Queue()
    value, room = queue_gauge(SimpleNamespace(_data_queue=workers, _task_info={}))
    assert value is not None
    workers.put(1)
    assert room - value() == 1
    workers.get(timeout=180)
    assert room - value() == 0
    pinned: Any = thread_queue.Queue()
    value, room = queue_gauge(SimpleNamespace(_data_queue=pinned, _task_info={}))
    assert value is not None
    pinned.put(1)
    assert (value(), room) == (1, 0)
    workers.close()


@pytest.mark.parametrize("iterator", [object(), SimpleNamespace(_data_queue=object())])
def test_where_nothing_tells_nothing_is_told(iterator: Any) -> None:
    assert queue_gauge(iterator) == (None, 0)
