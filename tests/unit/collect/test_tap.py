"""A tap on an iteration: whatever the loader does, training sees the same, and the record tells it."""

from __future__ import annotations

import threading
from collections import UserList
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tapped import ORDINARY, Recording, take, warm_up
from unstarve.collect.device.stalls import DeviceClock
from unstarve.record import format as f
from unstarve.record.run_reader import read_run

pytestmark = pytest.mark.usefixtures("variant")


def test_a_batch_is_handed_on_and_weighed(recording: Recording) -> None:
    tap = recording.tap()
    batches: list[Any] = [
        [torch.zeros(4, 2), torch.zeros(4)],
        (torch.zeros(4, 2),),
        torch.zeros(3, 2),
        {"x": torch.zeros(4, 2), "y": [torch.zeros(4)]},
        [torch.zeros(4, 2), ["a"] * 4],
        UserList([1]),
        [],
        [torch.zeros(())],
        torch.zeros(()),
        [torch.nn.Parameter(torch.zeros(2, 2))],
        [torch.zeros(4, 4).to_sparse()],
        [torch.zeros(2)] * 100,
        None,
    ]
    for source in (warm_up(tap), *batches):
        batch = take(tap, lambda batch: batch, source)
        assert batch is source
    extents = [(batch.size, batch.nbytes) for batch in recording.end().batches[ORDINARY + 1 :]]
    assert extents == [
        (4, 48),
        (4, 32),
        (3, 24),
        (4, 48),
        (4, 32),
        (None, None),
        (None, None),
        (None, 4),
        (None, 4),
        (2, 16),
        (None, None),
        (2, None),
        (None, None),
    ]


def test_batches_are_numbered_through_and_the_end_of_the_epoch_is_told(recording: Recording) -> None:
    tap = recording.tap()
    source = iter([[torch.zeros(4)]] * 20)
    for _ in range(20):
        take(tap, next, source)
    with pytest.raises(StopIteration):
        take(tap, next, source)
    process = recording.end()
    assert [batch.position for batch in process.batches] == list(range(20))
    assert {(batch.loader, batch.epoch, batch.thread, batch.nested) for batch in process.batches} == {
        (0, 0, 0, False)
    }
    assert all(
        a.got_ns <= b.ask_ns <= b.got_ns for a, b in zip(process.batches, process.batches[1:], strict=False)
    )
    (epoch,) = process.epochs
    assert epoch.end_ns is not None
    assert epoch.error is None
    assert process.lost == ()


def test_the_tensors_of_the_first_batch_are_counted_once(recording: Recording) -> None:
    tap = recording.tap()
    for batch in ({"a": torch.ones(4), "b": [torch.ones(4)]}, torch.ones(4)):
        take(tap, next, iter([batch]))
    (loader,) = recording.end().loaders
    assert loader.tensors == 2


@pytest.mark.parametrize("sampler_ns", [0, 70])
def test_what_the_sampler_took_of_iter_is_told(recording: Recording, sampler_ns: int) -> None:
    tap = recording.tap()
    tap.begin(None, 100, 200, sampler_ns=sampler_ns)
    assert [epoch.sampler_ns for epoch in recording.end().epochs] == [0, sampler_ns]


@pytest.mark.parametrize("warm", [False, True])
def test_an_exception_passes_as_it_is_and_is_told(recording: Recording, warm: bool) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    error = KeyError("sample 7")

    def fail(_source: Any) -> None:
        raise error

    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            take(tap, fail)
        assert caught.value is error
        assert error.__context__ is None
        assert caught.traceback[-1].name == "fail"
    (epoch,) = recording.end().epochs
    assert epoch.error == "KeyError"


@pytest.mark.parametrize("warm", [False, True])
def test_a_loader_inside_a_loader_is_nested(recording: Recording, warm: bool) -> None:
    outer, inner = recording.tap(), recording.tap()
    if warm:
        warm_up(outer), warm_up(inner)
    take(outer, lambda _source: take(inner, lambda _source: torch.zeros(4)))
    take(inner, lambda _source: torch.zeros(4))
    last = sorted(recording.end().batches, key=lambda batch: batch.got_ns)[-3:]
    assert [(batch.loader, batch.nested) for batch in last] == [(1, True), (0, False), (1, False)]


@pytest.mark.parametrize("warm", [False, True])
def test_a_subclass_that_calls_its_parents_next_gives_one_batch(recording: Recording, warm: bool) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    take(tap, lambda source: take(tap, lambda _source: torch.zeros(4), source))
    assert len(recording.end().batches) == 1 + ORDINARY * warm


@pytest.mark.parametrize("warm", [False, True])
def test_another_thread_may_go_on(recording: Recording, warm: bool) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    for _ in range(2):
        thread = threading.Thread(target=take, args=(tap, lambda _source: torch.zeros(4)))
        thread.start()
        thread.join()
    take(tap, lambda _source: torch.zeros(4))
    assert [batch.thread for batch in recording.end().batches[-3:]][::2] == [1, 0]


@pytest.mark.parametrize("warm", [False, True])
def test_what_breaks_in_here_is_noted_and_never_reaches_training(recording: Recording, warm: bool) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    tap.wait.has_workers = tap.wait.in_order = True  # but the source is none of torch's
    assert take(tap, lambda _source: "batch") == "batch"
    tap.wait.has_workers = False
    tap.wait.queue_value = lambda: 1 // 0
    assert take(tap, lambda _source: "batch") == "batch"
    with pytest.raises(KeyError):
        take(tap, lambda _source: {}["no"])
    tap.wait.queue_value = None
    assert take(tap, lambda _source: "batch") == "batch"
    process = recording.end()
    assert len(process.batches) == 1 + ORDINARY * warm
    assert len(process.lost) == 3
    assert "_rcvd_idx" in process.lost[0]
    assert "ZeroDivisionError" in process.lost[1]


def test_nothing_is_recorded_once_the_recording_is_over(recording: Recording) -> None:
    tap = recording.tap()
    warm_up(tap)
    process = recording.end()
    warm_up(tap)
    assert len(process.batches) == ORDINARY
    assert not tap.wait.busy


@pytest.mark.parametrize("warm", [False, True])
def test_the_devices_side_of_a_wait_is_timed_too(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    calls: list[Any] = []
    plan: Any = SimpleNamespace()

    class Clock(DeviceClock):
        def __init__(self) -> None:
            pass

        def ask(self) -> Any:
            calls.append("ask")
            return plan, []

        def got(self, mark: Any, what: Any, ask_ns: int, got_ns: int) -> None:
            calls.append((mark[0] is plan, what, ask_ns <= got_ns))

        def take_own_ns(self) -> int:
            return 0

        def close(self) -> None:
            calls.append("close")

    recording.owner.device = Clock()
    recording.owner.writer.ledger.has_device = True
    take(tap, lambda _source: take(recording.tap(), lambda _source: torch.zeros(4)))
    with pytest.raises(StopIteration):
        take(tap, next, iter(()))
    index = ORDINARY if warm else 0
    assert calls == [
        "ask",
        (True, (0, f.BATCH_WAIT, 0, index), True),
        "ask",
        (True, (0, f.END_WAIT, 0, index + 1), True),
    ]


def test_rows_are_written_while_training_goes_on(recording: Recording) -> None:
    tap = recording.tap()
    warm_up(tap)
    recording.owner.writer.ledger.next_flush_ns = 0
    take(tap, lambda _source: torch.zeros(4))
    (process,) = read_run(recording.path).processes
    assert len(process.batches) == ORDINARY + 1
