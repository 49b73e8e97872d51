"""What other threads compute while a batch is made is told, where it is much."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from unstarve.collect.fetching import Probe
from unstarve.collect.helpers import Helpers
from unstarve.collect.recorder import Recorder
from unstarve.collect.settings import LaunchSettings
from unstarve.model import Process
from unstarve.record import format as f
from unstarve.record.launcher import claim, finish, parts_folder
from unstarve.record.reader import read_run

MS = 1_000_000


@pytest.mark.parametrize(("computed_ns", "told_ns"), [(7 * MS, 7 * MS), (MS // 2, 0)])
def test_what_they_computed_during_a_batch_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed_ns: int, told_ns: int
) -> None:
    clock = iter([100 * MS, 100 * MS + computed_ns])
    monkeypatch.setattr(Probe, "_helpers_ns", lambda _self: next(clock))
    assert [work.helped_ns for work in made(tmp_path, f.NO_LOADER).works] == [told_ns]


def test_those_of_a_training_process_are_told_by_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Probe, "_helpers_ns")  # all of them would be too many
    monkeypatch.setattr(Helpers, "end", lambda _self: 7 * MS)
    process = made(tmp_path, 3)
    assert [(work.loader, work.helped_ns) for work in process.works] == [(3, 7 * MS)]
    assert process.lost == ()


def test_sending_batches_is_not_their_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.process_time_ns", lambda: 10 * MS)
    monkeypatch.setattr("time.thread_time_ns", lambda: 2 * MS)
    owner = recorder(tmp_path)
    probe = Probe(owner, f.NO_LOADER)
    probe.sent_cpu_ns = 3 * MS
    assert probe._helpers_ns() == 5 * MS
    owner.close()


def recorder(folder: Path) -> Recorder:
    claim(folder / "a.unstarve", ["train.py"], "run")
    return Recorder(LaunchSettings(parts=str(parts_folder(folder / "a.unstarve")), version="0"))


def made(folder: Path, loader: int) -> Process:
    """The record of one batch of three numbers."""
    owner = recorder(folder)
    fetcher = _MapDatasetFetcher([1, 2, 3], True, list, False)
    fetch = getattr(_MapDatasetFetcher.fetch, "__wrapped__", _MapDatasetFetcher.fetch)
    assert Probe(owner, loader).fetch(fetch, fetcher, [0, 1, 2]) == [1, 2, 3]
    owner.close()
    assert finish(folder / "a.unstarve", 0) is None
    (process,) = read_run(folder / "a.unstarve").processes
    return process
