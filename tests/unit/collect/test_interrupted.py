"""Ctrl-C and exits that come while a wait is recorded: training gets each of them, and recording goes on."""

from __future__ import annotations

import gc
import os
import signal
import sys
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tapped import ORDINARY, Recording, take, warm_up
from unstarve.collect.tap import Tap

pytestmark = pytest.mark.usefixtures("variant")

NOT_OURS = [KeyboardInterrupt, SystemExit, GeneratorExit]


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def goes_on(recording: Recording, tap: Tap, *, delivered: int) -> None:
    """The tap records the next batches as if nothing had happened."""
    assert not tap.wait.busy
    for _ in range(2):
        take(tap, lambda _source: torch.zeros(4))
    process = recording.end()
    assert process.lost == ()
    last = process.batches[-2:]
    assert [(batch.position, batch.nested) for batch in last] == [(delivered, False), (delivered + 1, False)]


class Batch(dict[str, Any]):
    """A batch that training interrupts while it is weighed."""

    error: type[BaseException]

    def values(self) -> Any:
        raise self.error


@pytest.mark.parametrize("error", NOT_OURS)
@pytest.mark.parametrize("warm", [False, True])
def test_while_a_batch_is_weighed(recording: Recording, warm: bool, error: type[BaseException]) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    batch = Batch()
    batch.error = error
    for _ in range(3):
        own_ns = recording.owner.writer.ledger.own_ns
        with pytest.raises(error):
            take(tap, lambda _source: batch)
        assert recording.owner.writer.ledger.own_ns > own_ns
    goes_on(recording, tap, delivered=3 + ORDINARY * warm)


@pytest.mark.parametrize("error", NOT_OURS)
@pytest.mark.parametrize("warm", [False, True])
def test_before_a_batch_is_asked_for(recording: Recording, warm: bool, error: type[BaseException]) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    tap.wait.queue_value = raising(error)
    with pytest.raises(error):
        take(tap, lambda _source: torch.zeros(4))
    tap.wait.queue_value = None
    goes_on(recording, tap, delivered=ORDINARY * warm)


@pytest.mark.parametrize("error", NOT_OURS)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("when", ["ask_device", "got_device", "flush"])
def test_in_what_a_wait_asks_its_tap_for(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, when: str, warm: bool, error: type[BaseException]
) -> None:
    tap = recording.tap()
    warm_up(tap) if warm else take(tap, lambda _source: torch.zeros(4))
    ledger = recording.owner.writer.ledger
    with monkeypatch.context() as patch:
        patch.setattr(Tap, "ask_device", lambda _tap: (None, []))
        patch.setattr(Tap, "got_device", lambda *_: None)
        patch.setattr(type(recording.owner) if when == "flush" else Tap, when, raising(error))
        ledger.has_device, ledger.next_flush_ns = True, 0
        with pytest.raises(error):
            take(tap, lambda _source: torch.zeros(4))
        ledger.has_device = False
    goes_on(recording, tap, delivered=(when != "ask_device") + (ORDINARY if warm else 1))


@pytest.mark.parametrize("when", ["framed", "written", "counted"])
def test_while_rows_are_written_which_are_in_the_record_once(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    tap = recording.tap()
    warm_up(tap)
    real_pwrite = os.pwrite

    def pwrite(fd: int, data: Any, offset: int) -> int:
        if when == "counted":
            real_pwrite(fd, data, offset)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if when == "framed":
            patch.setattr(zlib, "crc32", raising(KeyboardInterrupt))
        else:
            patch.setattr(os, "pwrite", pwrite)
        for _ in range(2):
            recording.owner.writer.ledger.next_flush_ns = 0
            with pytest.raises(KeyboardInterrupt):
                take(tap, lambda _source: torch.zeros(4))
    take(tap, lambda _source: torch.zeros(4))
    process = recording.end()
    assert [batch.position for batch in process.batches] == list(range(ORDINARY + 3))
    assert process.lost == ()


@pytest.mark.parametrize("error", NOT_OURS)
@pytest.mark.parametrize("warm", [False, True])
def test_while_a_failure_of_ours_is_noted(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, warm: bool, error: type[BaseException]
) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    with monkeypatch.context() as patch:
        patch.setattr(Tap, "not_recorded", raising(error))
        tap.wait.queue_value = lambda: 1 // 0
        with pytest.raises(error):
            take(tap, lambda _source: torch.zeros(4))
        tap.wait.queue_value = None
    goes_on(recording, tap, delivered=ORDINARY * warm)


@pytest.mark.parametrize("error", NOT_OURS)
@pytest.mark.parametrize("warm", [False, True])
def test_while_the_end_of_an_epoch_is_told(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, warm: bool, error: type[BaseException]
) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    with monkeypatch.context() as patch:
        patch.setattr(Tap, "ended", raising(error))
        with pytest.raises(error) as caught:
            take(tap, next, iter(()))
    assert isinstance(caught.value.__context__, StopIteration)
    goes_on(recording, tap, delivered=ORDINARY * warm)


@pytest.mark.parametrize("warm", [False, True])
def test_a_failure_of_ours_does_not_hide_what_training_raised(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    tap = recording.tap()
    if warm:
        warm_up(tap)
    monkeypatch.setattr(Tap, "_waited", raising(ZeroDivisionError))
    with pytest.raises(StopIteration):
        take(tap, next, iter(()))


def test_a_batch_that_no_memory_is_left_to_record_is_delivered(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = recording.tap()
    warm_up(tap)
    monkeypatch.setattr(Tap, "weigh", raising(MemoryError))
    assert take(tap, lambda _source: {"x": 1}) == {"x": 1}
    assert "MemoryError" in recording.end().lost[0]


@pytest.mark.parametrize("warm", [False, True])
def test_every_one_of_many_signals_reaches_training(
    recording: Recording, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each signal comes somewhere between two batches or inside of one: wherever that is, it raises once.

    Python itself loses those that come while torch's `__del__` of a freed storage runs.
    """
    freeing: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: freeing.append(lost.object))
    tap = recording.tap()
    if warm:
        warm_up(tap)
    came = caught = 0

    class Interrupt(KeyboardInterrupt):
        pass

    def interrupt(*_: Any) -> None:
        nonlocal came
        came += 1
        raise Interrupt

    batch = {"x": torch.zeros(4, 2), "y": torch.zeros(4)}
    gc.collect()
    gc.disable()  # what a signal raises while garbage is freed would be ignored, and counted as lost
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while came < 300:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + 1e-7 * came)
                for _ in range(1000):
                    assert take(tap, lambda _source: batch) is batch
            except Interrupt:
                caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert {one.__name__ for one in freeing} <= {"__del__"}
    assert len(freeing) <= 3
    assert caught + len(freeing) == came == 300
    assert not tap.wait.busy
    take(tap, lambda _source: batch)
    process = recording.end()
    assert not process.batches[-1].nested
    assert process.lost == ()
