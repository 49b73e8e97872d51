"""Memory over time: sums over those who lived, peaks that are not thinned away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fakes import FakeTraining, run_of
from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.memory_summary import memory_of
from unstarve.model import Process, Pulse
from unstarve.present.exports import report_json as json_view

S = 1_000_000_000


def pulses(values: Sequence[tuple[float, int | None]], shm: int | None = None) -> tuple[Pulse, ...]:
    total = None if shm is None else 1000
    return tuple(Pulse(round(at * S), None, None, None, None, rss, None, shm, total) for at, rss in values)


def process(pid: int, values: Sequence[tuple[float, int | None]], shm: int | None = None) -> Process:
    training = FakeTraining(now_ns=0)
    training.epoch([(0.01, 0.01)] * 30)
    return replace(training.process(), pid=pid, worker=pid > 1, pulses=pulses(values, shm))


def test_nobody_looked_nothing_is_known() -> None:
    assert memory_of(process(1, []), [process(1, [])], 0) is None
    report = json_view.report(analyze_run(run_of(process(1, []))))
    assert report["memory"] is None


def test_workers_are_summed_while_they_live() -> None:
    training = process(1, [(0, 100), (1, 120), (2, 110), (3, 110)], shm=7)
    early, late = process(2, [(0, 10), (1, 20)]), process(3, [(1, 5), (2, 5), (3, 6)])
    memory = memory_of(training, [training, early, late], 0)
    assert memory is not None
    lines = {line.name: dict(zip(line.at_s, line.bytes, strict=True)) for line in memory.lines}
    assert lines["training"] == {0: 100, 1: 120, 2: 110, 3: 110}
    assert lines["workers"] == {0: 10, 1: 25, 2: 5, 3: 6}
    assert lines["/dev/shm"] == {0: 7, 1: 7, 2: 7, 3: 7}
    assert (memory.training_peak_bytes, memory.workers_peak_bytes, memory.shm_peak_bytes) == (120, 25, 7)
    assert memory.shm_total_bytes == 1000


def test_workers_that_follow_each_other_are_not_counted_together() -> None:
    training = process(1, [(0, 100), (1, 100), (2, 100)])
    before, after = process(2, [(0, 10), (1.1, 10)]), process(3, [(1.4, 12), (2, 12)])
    memory = memory_of(training, [training, before, after], 0)
    assert memory is not None
    assert memory.lines[1].bytes == (10, 12, 12)
    assert memory.workers_peak_bytes == 12


def test_between_two_pulses_a_process_has_what_it_had() -> None:
    training = process(1, [(0, 100), (1, 120), (2, 110), (3, 110)])
    held_up = process(2, [(0, 10), (3, 30)])
    memory = memory_of(training, [training, held_up], 0)
    assert memory is not None
    assert memory.lines[1].bytes == (10, 10, 10, 30)


def test_a_long_run_is_thinned_and_keeps_its_peaks() -> None:
    values = [(float(at), 999 if at == 4321 else 100) for at in range(10_000)]
    training = process(1, values)
    memory = memory_of(training, [training], 0)
    assert memory is not None
    (line,) = memory.lines
    assert len(line.bytes) <= 301
    assert max(line.bytes) == memory.training_peak_bytes == 999
    assert list(line.at_s) == sorted(set(line.at_s))


def test_what_could_not_be_read_is_left_out() -> None:
    training = process(1, [(0, None), (1, None)])
    memory = memory_of(training, [training, process(2, [(0, None), (1, 5)])], 0)
    assert memory is not None
    assert [(line.name, line.at_s, line.bytes) for line in memory.lines] == [("workers", (1.0,), (5,))]
    assert (memory.training_peak_bytes, memory.shm_peak_bytes, memory.shm_total_bytes) == (None, None, None)


def test_shared_memory_that_is_given_back_is_gone() -> None:
    training = process(1, [(0, 1), (1, 1), (2, 1)])
    seen = tuple(p._replace(shm_bytes=n) for p, n in zip(training.pulses, (0, 5, 0), strict=True))
    memory = memory_of(replace(training, pulses=seen), [replace(training, pulses=seen)], 0)
    assert memory is not None
    assert memory.lines[1].bytes == (0, 5, 0)


def test_other_machines_are_left_out() -> None:
    training = process(1, [(0, 100)])
    elsewhere = replace(process(2, [(0, 50)]), host="there")
    memory = memory_of(training, [training, elsewhere], 0)
    assert memory is not None
    assert [line.name for line in memory.lines] == ["training"]


def test_the_report_as_json_has_the_lines() -> None:
    report = json_view.report(analyze_run(run_of(process(1, [(0, 100), (1, 120)], shm=7))))
    assert report["memory"]["training_peak_bytes"] == 120
    assert [line["name"] for line in report["memory"]["lines"]] == ["training", "/dev/shm"]
