"""What receiving one message costs, in made-up recordings of a pin thread that serves several workers."""

from __future__ import annotations

import pytest

from fake_work import MS, batch_of, work_of
from unstarve.analyze.batch_production import EpochProduction, MadeBatch
from unstarve.model import Received, Sent
from unstarve.predict.demand import pipe_s
from unstarve.predict.receiving import receptions
from unstarve.predict.recorded_run import RecordedBatch

WORKERS = 8
ROUND_MS, FIRST_MS, STEP_MS = 3000, 1500, 100
PIN_MS, NEW_MS, PIPE_MS = 30, 90, 2


def recorded(rounds: int = 3, epochs: int = 1, *, worker: int = WORKERS) -> list[RecordedBatch]:
    """Workers finish a batch each at the same moment; one thread receives and pins them one after another.

    The first step takes so long that a whole round is pinned meanwhile: all of it in new memory. Later steps
    use a round up before the next one comes.
    """
    batches, found = [], []
    for epoch in range(epochs):
        makers, free_ms, ask_ms = [], 0.0, 0.0
        for task in range(rounds * worker):
            sent_ms = 20_000.0 * epoch + ROUND_MS * (1 + task // worker)
            arrived_ms = max(sent_ms, free_ms) + PIPE_MS
            new = epoch == 0 and task < worker
            free_ms = arrived_ms + 1 + (NEW_MS if new else PIN_MS)
            work = work_of(task, sent_ms - 500, cpu_ms=500)
            sent = Sent(task, 0, work.done_ns, work.done_ns, work.done_ns, 0)
            received = Received(0, 0, task, *(round(ms * MS) for ms in (arrived_ms, arrived_ms + 1, free_ms)))
            makers.append(MadeBatch(task % worker, work, sent, received))
            got_ms = max(ask_ms, free_ms)
            batches.append(batch_of(task, ask_ms, got_ms, epoch=epoch))
            ask_ms = got_ms + (STEP_MS if epoch or task else FIRST_MS)
        found.append(EpochProduction(worker, {one.work.task: one for one in makers}, (tuple(makers),)))
    made = dict(enumerate(found))
    told = receptions(batches, made)
    return [
        RecordedBatch(one, made[one.epoch].by_task[one.task], one, False, told[one.epoch, one.task], False)
        for one in batches
        if one.task is not None
    ]


def test_messages_in_line_for_a_busy_pin_thread_are_not_slow_in_the_pipe() -> None:
    """The last of eight waits 0.2 s until the seven before it are pinned; alone it takes 2 ms."""
    burst = recorded()
    longest_ns = max(
        one.made.received.arrived_ns - one.made.sent.end_ns
        for one in burst
        if one.made.received is not None and one.made.sent is not None
    )
    assert longest_ns > 200 * MS
    assert pipe_s(burst, pinned=True) == pytest.approx(PIPE_MS / 1e3)
    assert pipe_s(recorded(worker=1), pinned=True) == pytest.approx(PIPE_MS / 1e3)


def test_the_first_message_of_an_epoch_found_nothing_before_it() -> None:
    told = [one.reception for one in recorded(epochs=2) if one.made.work.task == 0]
    assert [one.free_ns for one in told if one is not None] == [0, 0]


def test_memory_that_is_pinned_for_the_first_time_does_not_make_later_batches_slow() -> None:
    """A queue of eight is pinned in the first round; the next rounds and epochs use the same memory again."""
    took = [one.reception.pin_ns / MS for one in recorded(epochs=2) if one.reception is not None]
    assert len(took) == 2 * 3 * WORKERS
    assert took == pytest.approx([PIN_MS] * len(took))


def test_where_all_memory_was_new_its_price_is_all_that_is_known() -> None:
    took = [one.reception.pin_ns / MS for one in recorded(rounds=1) if one.reception is not None]
    assert took[0] == NEW_MS
