"""Long runs keep what tells most, and what they report of the rest is right."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from long_runs import LongTraining, write_long_run
from unstarve import api
from unstarve.model import Cause, Diagnosis, Run
from unstarve.record import format as f
from unstarve.record import run_reader
from unstarve.record.fold import KeepSmall, closed, fold, segment_bytes
from unstarve.record.follow import Follower
from unstarve.record.run_file import parts_folder, parts_of
from unstarve.record.run_reader import read_run
from unstarve.record.stretches import Detail

STEPS = 16_000
ALL = Detail(above=10**9)
SMALL = 8 << 20


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> LongTraining:
    return write_long_run(tmp_path_factory.mktemp("long") / "a.unstarve", STEPS, 2, epoch_steps=5000)


@pytest.fixture(scope="module")
def thinned(training: LongTraining) -> Run:
    return read_run(training.run, Detail(batches=1024, stretches=128))


@pytest.fixture(scope="module")
def diagnosis(thinned: Run) -> Diagnosis:
    return api.diagnose(thinned)


def folded(training: LongTraining, max_bytes: int = SMALL) -> Path:
    """The file of a training that was folded while it ran."""
    keeper = KeepSmall(training.run, max_bytes)
    while training.write_block():
        keeper.look()
    return training.finish()


def test_every_batch_is_kept_or_counted(thinned: Run) -> None:
    batches = thinned.processes[0].batches
    assert sum(batch.weight for batch in batches) == STEPS
    assert sum(batch.thinned is None for batch in batches) < 1500
    assert sum(work.weight for process in thinned.processes[1:] for work in process.works) == STEPS


def test_the_first_the_last_and_the_slowest_batches_are_kept(training: LongTraining, thinned: Run) -> None:
    kept = {b.got_ns: b for b in thinned.processes[0].batches if b.thinned is None}
    every = read_run(training.run, ALL).processes[0].batches
    slowest = sorted(every, key=lambda batch: -batch.wait_ns)[:10]
    assert all(kept[batch.got_ns] == batch for batch in (*every[:60], *every[-200:], *slowest))


def test_workers_that_are_read_after_the_training_was_thinned_are_thinned_too(
    training: LongTraining, thinned: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_reader, "_HELD_BYTES", 1 << 17)  # as if the file were much larger
    run = read_run(training.run, Detail(batches=1024, stretches=128))
    usual = max(len(process.works) for process in thinned.processes)
    workers = [process for process in run.processes if process.worker]
    assert [len(one.works) < 2 * usual for one in workers] == [True, True]
    assert sum(work.weight for one in workers for work in one.works) == STEPS


def test_the_books_balance_and_percentiles_are_right(training: LongTraining, diagnosis: Diagnosis) -> None:
    told_s = sum(part.seconds for part in (*diagnosis.budget, *diagnosis.outside))
    assert told_s == pytest.approx(diagnosis.wall_s, rel=1e-6)
    for spread, truth in ((diagnosis.wait_ms, training.waits_ns), (diagnosis.step_ms, training.steps_ns)):
        p50, p95 = np.percentile(np.concatenate(truth) / 1e6, [50, 95])
        assert spread is not None
        assert (spread.p50, spread.p95) == (pytest.approx(p50, rel=0.01), pytest.approx(p95, rel=0.01))


def test_waits_have_the_causes_that_all_batches_would_show(
    training: LongTraining, diagnosis: Diagnosis
) -> None:
    # A worker computes for 60% of its time and waits for the network for the rest; half a millisecond of
    # every wait follows when it is done.
    waits_s = np.concatenate(training.waits_ns) / 1e9
    making_s = np.maximum(waits_s - 0.5e-3, 0).sum()
    shares = {part.cause: part.seconds for part in diagnosis.budget}
    assert shares[Cause.REMOTE] == pytest.approx(0.4 * making_s, rel=0.05)
    assert shares.get(Cause.UNKNOWN, 0.0) < 0.01 * waits_s.sum()
    assert diagnosis.steps == STEPS
    assert any("16,000 batches are kept one by one" in message for message in diagnosis.lost)


def test_every_view_of_a_long_run_counts_all_batches(thinned: Run) -> None:
    views, (series,) = api.views_of(thinned), api.series_of(thinned)
    assert views is not None
    assert views.wait_ms is not None
    assert sum(views.wait_ms.counts) == STEPS - 5
    assert views.before + len(views.batches) == STEPS
    assert [story.position for story in views.batches] == list(range(1000 - len(views.batches), 1000))
    assert sum(point.number for point in series.points) == STEPS
    assert series.samples == 8 * STEPS


def test_a_run_file_stays_small_while_it_is_recorded(tmp_path: Path) -> None:
    settings = {"epoch_steps": 5000, "segment_bytes": segment_bytes(SMALL)}
    training = LongTraining(tmp_path / "a.unstarve", 40_000, 1, loaders=2, **settings)
    run = folded(training)
    assert run.stat().st_size < SMALL
    found = read_run(run)
    assert sum(batch.weight for batch in found.processes[0].batches) == 40_000
    assert (found.lost, found.damaged) == ((), False)
    waits_s = sum(waits.sum() for waits in training.waits_ns) / 1e9
    summary = next(one for one in api.diagnose(found).loaders if one.name == "loader 0")
    assert summary.wait_s + summary.startup_s == pytest.approx(waits_s, rel=1e-2)


def test_a_fold_that_is_cut_off_loses_nothing(tmp_path: Path) -> None:
    training = LongTraining(tmp_path / "a.unstarve", 20_000, 1, segment_bytes=1 << 16)
    while training.write_block():
        pass
    parts = parts_folder(training.run)
    fold(closed(parts_of(parts)), parts / f.FOLDED, 1 << 20)  # killed before the segments are removed
    left = {part.name for part in parts.glob("*.part")}
    assert len(parts_of(parts)) < len(left)
    assert sum(batch.weight for batch in read_run(training.run).processes[0].batches) == 20_000
    tail = Follower(training.run).read()
    assert sum(tail.delivered["far", 100].values()) == 20_000
    training.finish()
    assert sum(batch.weight for batch in read_run(training.run).processes[0].batches) == 20_000


def test_a_follower_counts_what_is_folded_while_it_follows(tmp_path: Path) -> None:
    training = LongTraining(tmp_path / "a.unstarve", 40_000, 1, segment_bytes=1 << 16)
    keeper, follower = KeepSmall(training.run, SMALL), Follower(training.run)
    while training.write_block():
        tail = follower.read()
        keeper.look()
    assert (parts_folder(training.run) / f.FOLDED).exists()
    tail = follower.read()
    assert sum(tail.delivered["far", 100].values()) == 40_000
    assert tail.run.processes[0].batches[-1].position == 9_999
    training.finish()


def test_ended_workers_become_one(tmp_path: Path) -> None:
    training = LongTraining(tmp_path / "a.unstarve", 6_000, 4)
    run = training.finish()
    fold([run], tmp_path / "small.unstarve", 1 << 15)
    assert (tmp_path / "small.unstarve").stat().st_size <= 1 << 15
    found = read_run(tmp_path / "small.unstarve")
    assert sum(work.weight for process in found.processes for work in process.works) == 6_000
    assert len(found.processes) <= 5


def test_recording_stops_where_a_run_cannot_be_kept_small(tmp_path: Path) -> None:
    training = LongTraining(tmp_path / "a.unstarve", 40_000, 0, segment_bytes=1 << 16)
    training.write_block()
    (parts_folder(training.run) / f.FULL).touch()
    found = read_run(training.finish())
    assert any("reached its limit; see --max-size" in one for one in found.processes[0].lost)
    assert sum(batch.weight for batch in found.processes[0].batches) < 40_000


def test_a_short_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    training = write_long_run(tmp_path / "a.unstarve", 3_000, 2)
    assert read_run(training.run).processes == read_run(training.run, ALL).processes


def test_a_thinned_batch_without_its_count_is_dropped_and_told(thinned: Run, tmp_path: Path) -> None:
    training = write_long_run(tmp_path / "a.unstarve", 3_000, 0)
    fold([training.run], tmp_path / "b.unstarve", 1 << 17)
    data = bytearray((tmp_path / "b.unstarve").read_bytes())
    place = data.index(
        f.CHUNK_HEAD.pack(0, f.COUNT, 0, 0)[4:6] + f.ROW_KINDS[f.COUNT].size.to_bytes(2, "little")
    )
    data[place + 20] ^= 0xFF  # the checksum does not match any more
    (tmp_path / "b.unstarve").write_bytes(data)
    found = read_run(tmp_path / "b.unstarve")
    assert found.damaged
    assert all(batch.thinned is None for batch in found.processes[0].batches)
    assert dataclasses.asdict(api.diagnose(found))["lost"]
