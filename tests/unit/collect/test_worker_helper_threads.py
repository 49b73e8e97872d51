"""What the other threads of a worker compute while it makes a batch is told, where it is much."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from unstarve.collect.fetching import FetchProbe
from unstarve.collect.helper_threads import TrainingHelpers, WorkerHelpers
from unstarve.collect.recorder import Recorder
from unstarve.model import Process
from unstarve.model.launch_settings import LaunchSettings
from unstarve.record import format as f
from unstarve.record.run_file import claim, finish, parts_folder
from unstarve.record.run_reader import read_run

MS = 1_000_000


class Clock:
    """What all threads of a process have computed, and what the one that asks has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.others_ns = 50 * MS
        self.asked = 0
        monkeypatch.setattr("time.thread_time_ns", lambda: 2 * MS)
        monkeypatch.setattr("time.process_time_ns", self._process_ns)

    def _process_ns(self) -> int:
        self.asked += 1
        return 2 * MS + self.others_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_what_they_computed_since_they_were_asked_is_told_where_it_is_much(clock: Clock) -> None:
    helpers = WorkerHelpers()
    assert helpers.end(100 * MS) == 0  # when that was is not known
    clock.others_ns += 7 * MS
    assert helpers.end(120 * MS) == 7 * MS
    clock.others_ns += MS
    assert helpers.end(140 * MS) == 0


def test_idle_ones_are_asked_now_and_then_busy_ones_always(clock: Clock) -> None:
    helpers = WorkerHelpers()
    for now_ns in range(100 * MS, 121 * MS, MS):
        helpers.end(now_ns)
    assert clock.asked == 5
    clock.others_ns += 4 * MS
    assert helpers.end(126 * MS) == 4 * MS
    clock.others_ns += MS // 2
    assert helpers.end(127 * MS) == MS // 2
    assert helpers.end(128 * MS) == 0
    assert helpers.end(129 * MS) == 0
    assert clock.asked == 8


def test_sending_batches_is_not_their_work(clock: Clock) -> None:
    helpers = WorkerHelpers()
    helpers.end(100 * MS)
    helpers.sending = True
    clock.others_ns += 9 * MS
    assert helpers.end(120 * MS) == 0  # part of it is that, nobody knows how much
    helpers.sending, helpers.sent_cpu_ns = False, 9 * MS
    assert helpers.end(140 * MS) == 0
    clock.others_ns += 5 * MS
    assert helpers.end(160 * MS) == 5 * MS


def test_it_is_told_with_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerHelpers, "end", lambda _self, _now: 7 * MS)
    assert [work.helped_ns for work in made(tmp_path, f.NO_LOADER, WorkerHelpers()).works] == [7 * MS]


def test_those_of_a_training_process_are_told_by_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingHelpers, "end", lambda _self, _now: 7 * MS)
    process = made(tmp_path, 3, None)
    assert [(work.loader, work.helped_ns) for work in process.works] == [(3, 7 * MS)]
    assert process.lost == ()


def recorder(folder: Path) -> Recorder:
    claim(folder / "a.unstarve", ["train.py"], "run")
    return Recorder(LaunchSettings(parts=str(parts_folder(folder / "a.unstarve")), version="0"))


def made(folder: Path, loader: int, helpers: WorkerHelpers | None) -> Process:
    """The record of one batch of three numbers."""
    folder /= str(loader)
    folder.mkdir()
    owner = recorder(folder)
    fetcher = _MapDatasetFetcher([1, 2, 3], True, list, False)
    fetch = getattr(_MapDatasetFetcher.fetch, "__wrapped__", _MapDatasetFetcher.fetch)
    assert FetchProbe(owner, loader, helpers).fetch(fetch, fetcher, [0, 1, 2]) == [1, 2, 3]
    owner.close()
    assert finish(folder / "a.unstarve", 0) is None
    (process,) = read_run(folder / "a.unstarve").processes
    return process


def test_watching_the_worker_is_not_their_work(clock: Clock) -> None:
    watched_s = [0.0]
    helpers = WorkerHelpers(lambda: watched_s[0])
    helpers.end(100 * MS)
    clock.others_ns += 9 * MS
    watched_s[0] = 0.009
    assert helpers.end(120 * MS) == 0
    clock.others_ns += 5 * MS
    assert helpers.end(140 * MS) == 5 * MS
