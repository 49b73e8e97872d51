"""The queue sends small things at once and everything in order, and putting never blocks."""

from __future__ import annotations

import multiprocessing
import queue
import socket
from typing import Any

import pytest
import torch

from unstarve.fixes.loader.ring.ring_queue import RingQueue
from unstarve.fixes.loader.ring.slot_messages import Inbox, Outbox

PIPE_BYTES = 1 << 16
HUGE = "x" * (4 * PIPE_BYTES)


def make_queue() -> RingQueue:
    return RingQueue(ctx=multiprocessing.get_context("fork"))


def taken(from_queue: RingQueue, count: int) -> list[Any]:
    return [from_queue.get(timeout=180) for _ in range(count)]


def test_a_small_item_is_there_at_once_and_no_thread_is_started() -> None:
    q = make_queue()
    q.put((1, [2, 3]))
    assert q._thread is None
    assert q.qsize() == 1
    assert q.get(timeout=0) == (1, [2, 3])
    assert q.qsize() == 0


def test_nothing_there_is_empty() -> None:
    q = make_queue()
    with pytest.raises(queue.Empty):
        q.get(timeout=0.05)
    with pytest.raises(queue.Empty):
        q.get(block=False)


def test_everything_keeps_its_order_however_it_is_sent() -> None:
    q = make_queue()
    items = [1, HUGE, 2, 3, HUGE + "y", "small", [4] * 3000, 5]
    for item in items:
        q.put(item)
    assert taken(q, len(items)) == items
    for item in items:  # and at once again when the thread has nothing left
        q.put(item)
        assert q.get(timeout=180) == item
    close(q)


def test_a_full_pipe_does_not_block() -> None:
    q = make_queue()
    items = [(i, "y" * 1000) for i in range(3 * PIPE_BYTES // 1000)]
    for item in items:
        q.put(item)
    assert taken(q, len(items)) == items
    close(q)


def test_a_pipe_in_use_by_somebody_else_does_not_block() -> None:
    q = make_queue()
    with q._wlock:
        q.put(1)
        q.put(2)
    assert taken(q, 2) == [1, 2]
    close(q)


def test_what_cannot_be_pickled_is_reported_and_the_next_is_sent(capfd: pytest.CaptureFixture[str]) -> None:
    q = make_queue()
    q.put(lambda: 0)
    q.put("next")
    assert q.get(timeout=180) == "next"
    assert "lambda" in capfd.readouterr().err
    q.put("after")
    assert q.get(timeout=180) == "after"
    close(q)


def test_a_closed_queue_says_so() -> None:
    q = make_queue()
    q.close()
    with pytest.raises(ValueError, match="closed"):
        q.put(1)
    with pytest.raises(ValueError, match="closed"):
        q.get()


def test_a_batch_in_a_slot_waits_its_turn_behind_a_large_pickle() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        q = make_queue()
        q.inbox = Inbox()
        q.outbox = Outbox(theirs, q.inbox.connect(ours), 2)
        parameter = torch.nn.Parameter(torch.ones(3))  # only torch's own way can send it
        packed: list[int] = []
        q.when_packed = lambda item: packed.append(item[0])
        q.put((0, torch.full((100_000,), 1.0)))
        q.put((1, [parameter, HUGE]))
        q.put((2, torch.full((100_000,), 2.0)))
        q.put((3, "small"))
        assert packed == [0, 2, 3]
        received = taken(q, 4)
        assert [number for number, _ in received] == [0, 1, 2, 3]
        assert (received[0][1] == 1).all()
        assert (received[2][1] == 2).all()
        close(q)


def _double(source: RingQueue, sink: RingQueue) -> None:
    while (item := source.get()) is not None:
        sink.put((item, 2 * item))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_between_processes(method: str) -> None:
    context = multiprocessing.get_context(method)
    there, back = RingQueue(ctx=context), RingQueue(ctx=context)
    process = context.Process(target=_double, args=(there, back), daemon=True)
    process.start()
    items = [1, "x" * 3000, HUGE, 2, 3]
    for item in [*items, None]:
        there.put(item)
    assert [back.get(timeout=180) for _ in items] == [(item, 2 * item) for item in items]
    process.join()
    close(there)


def close(used: RingQueue) -> None:
    """End the queue's thread, so that the next test finds none."""
    used.close()
    used.join_thread()
