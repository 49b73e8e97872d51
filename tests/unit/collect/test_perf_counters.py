"""The processor's counters: reading a group, adding up, and the sentence where they are not to be had."""

from __future__ import annotations

import errno
import struct
import threading
from typing import Any

import pytest

from unstarve.collect import perf_counters
from unstarve.collect.perf_counters import (
    PerfGroup,
    PerfMeter,
    PerfReading,
    PerfTotal,
    refusal,
    unpacked,
    why_not_perf,
)

SOFTWARE = ((1, 1), (1, 2), (1, 3), (1, 4))
"""Task clock, page faults, context switches, migrations: the kernel counts these on any machine."""


def test_a_group_is_unpacked() -> None:
    data = struct.pack("<7Q", 4, 100, 50, 10, 20, 30, 40)
    assert unpacked(data, [True] * 4) == PerfReading(100, 50, (10, 20, 30, 40))


def test_events_that_the_processor_lacks_are_unknown() -> None:
    data = struct.pack("<5Q", 2, 100, 100, 10, 30)
    assert unpacked(data, [True, False, True, False]).values == (10, -1, 30, -1)


@pytest.mark.parametrize("data", [b"", struct.pack("<4Q", 1, 1, 1, 1), struct.pack("<6Q", 4, 1, 1, 1, 1, 1)])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(OSError, match="Input/output error"):
        unpacked(data, [True] * 4)


def test_differences_are_added_up() -> None:
    total = PerfTotal()
    assert total.plain() is None
    total.add(PerfReading(100, 50, (10, 20, -1, 5)), PerfReading(160, 80, (15, 30, -1, 5)))
    total.add(PerfReading(200, 90, (20, 50, -1, 6)), PerfReading(210, 100, (21, 51, -1, 8)))
    assert total.plain() == {
        "cycles": 6,
        "instructions": 11,
        "cache_misses": None,
        "tlb_misses": 2,
        "enabled_ns": 70,
        "running_ns": 40,
    }


class FakeGroup:
    """Every reading is 10 ns and one event of each kind later."""

    def __init__(self) -> None:
        self.count = 0

    def read(self) -> PerfReading:
        self.count += 1
        return PerfReading(self.count * 10, self.count * 10, (self.count,) * 4)


def test_steps_and_fetches_are_counted_apart() -> None:
    meter = PerfMeter(FakeGroup)
    meter.step_ends()  # the first batch is asked for: there was no step
    began = meter.read()
    meter.fetched(began)
    meter.step_begins()
    meter.step_ends()
    meter.step_ends()  # the end of an epoch: what follows is no step
    counts = meter.counts()
    assert (counts["step"]["cycles"], counts["loading"]["cycles"]) == (1, 1)
    assert counts["why_not"] is None


def test_steps_of_other_threads_do_not_count() -> None:
    meter = PerfMeter(FakeGroup)
    meter.step_begins()

    def other() -> None:
        meter.step_begins()
        meter.step_ends()
        meter.fetched(meter.read())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert meter.counts()["step"] is None
    assert meter.counts()["loading"]["cycles"] == 1
    meter.step_ends()
    assert meter.counts()["step"]["cycles"] == 1


def test_a_failure_ends_the_counting_and_is_told() -> None:
    def refused() -> Any:
        raise PermissionError(errno.EPERM, "no")

    meter = PerfMeter(refused)
    meter.step_begins()
    meter.step_ends()
    meter.fetched(meter.read())
    counts = meter.counts()
    assert counts["step"] is counts["loading"] is None
    assert "EPERM (errno 1)" in counts["why_not"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "EACCES (errno 13)"),
        (errno.ENOENT, "most virtual machines"),
        (errno.ENOSYS, "seccomp"),
        (errno.EMFILE, "Too many open files"),
        (0, "unknown error"),
    ],
)
def test_a_refusal_names_the_error_and_the_setting(number: int, words: str) -> None:
    sentence = refusal(number)
    assert words in sentence
    assert "perf_event_paranoid is" in sentence


def test_the_real_call_works_or_says_why_not() -> None:
    why_not = why_not_perf()
    if why_not is None:
        group = PerfGroup()
        before, _, after = group.read(), sum(range(10_000)), group.read()
        assert after.values[0] > before.values[0]
        group.close()
    else:
        assert "perf_event_open failed with" in why_not


def test_a_real_group_counts_the_thread_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_counters, "_EVENTS", SOFTWARE)
    if (why_not := why_not_perf()) is not None:
        pytest.skip(why_not)
    group = PerfGroup()
    before, _, after = group.read(), sum(range(100_000)), group.read()
    assert after.values[0] > before.values[0]
    assert after.enabled_ns > before.enabled_ns
    group.close()
