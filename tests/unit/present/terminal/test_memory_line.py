"""The memory of a run in a line or two."""

from __future__ import annotations

from unstarve.model import MemoryPressure, MemorySummary
from unstarve.present.terminal.memory_line import memory_lines

GB = 10**9


def test_peaks_are_one_line_and_say_what_is_shared() -> None:
    memory = MemorySummary(
        1_200_000_000,
        3_100_000_000,
        400_000_000,
        8 * GB,
        (),
        workers_uss_peak_bytes=500_000_000,
        workers_most=4,
    )
    assert list(memory_lines(memory)) == [
        (
            "memory",
            "training 1.2 GB, 4 workers 3.1 GB of which 2.6 GB are shared, /dev/shm 400 MB of 8.0 GB",
        )
    ]


def test_what_is_not_known_is_left_out() -> None:
    assert list(memory_lines(None)) == []
    assert list(memory_lines(MemorySummary(None, None, None, None, ()))) == []
    old = MemorySummary(GB, 2 * GB, None, None, (), workers_most=2)
    assert list(memory_lines(old)) == [("memory", "training 1.0 GB, 2 workers 2.0 GB")]
    alone = MemorySummary(GB, None, GB, 8 * GB, ())  # without workers, nothing of /dev/shm is its own
    assert list(memory_lines(alone)) == [("memory", "training 1.0 GB")]


def test_a_machine_short_of_memory_has_its_own_line() -> None:
    short = MemorySummary(GB, None, None, None, (), pressure=MemoryPressure(0.31, None, None))
    calm = MemorySummary(GB, None, None, None, (), pressure=MemoryPressure(0.01, None, None))
    assert list(memory_lines(short))[1:] == [
        ("short of memory", "processes waited for it up to 31% of the time")
    ]
    assert list(memory_lines(calm))[1:] == []
