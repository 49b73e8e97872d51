"""TensorBoard events are read back with TensorBoard's own reader."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter
from typer.testing import CliRunner

from fakes import FakeTraining, run_of
from large_run import large_run
from unstarve.api import diagnose, series_of
from unstarve.cli import report as report_verb
from unstarve.cli.app import app
from unstarve.errors import MissingExtraError, UsageError
from unstarve.model import Run
from unstarve.present.exports.tensorboard import write_events


def write(folder: Path, run: Run) -> int:
    return write_events(folder, diagnose(run), series_of(run))


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def test_every_step_is_a_point_at_its_own_time(tmp_path: Path) -> None:
    run = large_run(40, 2)
    (series,) = series_of(run)
    assert write(tmp_path, run) == 40
    waits = read(tmp_path).Scalars("data/wait_ms")
    assert [event.step for event in waits] == list(range(1, 41))
    assert [event.value for event in waits] == pytest.approx([point.wait_s * 1e3 for point in series.points])
    offset_ns = series.clock_offset_ns
    assert [event.wall_time for event in waits] == pytest.approx(
        [(point.got_ns + offset_ns) / 1e9 for point in series.points]
    )


def test_the_scalars_that_people_look_for_are_there(tmp_path: Path) -> None:
    write(tmp_path, large_run(40, 2))
    tags = set(read(tmp_path).Tags()["scalars"])
    wanted = {"wait_ms", "step_ms", "stall_share", "throughput", "ready_batches", "wait_ms_by_cause/cpu"}
    assert {f"data/{name}" for name in wanted} <= tags


def test_a_chart_says_whose_time_it_shows(tmp_path: Path) -> None:
    write(tmp_path, large_run(40, 2))
    found = read(tmp_path)
    described = {
        name: found.SummaryMetadata(f"data/{name}").summary_description for name in ("wait_ms", "stall_share")
    }
    assert "host's wait" in described["wait_ms"]
    assert "GPU starved" in described["stall_share"]


def test_what_is_not_known_of_a_step_is_no_point(tmp_path: Path) -> None:
    training = FakeTraining(device="H200")
    training.begin()
    for _ in range(10):
        training.take(0.1, size=None)
        training.spend(0.1)
    write(tmp_path, run_of(training))
    found = read(tmp_path)
    assert "data/throughput" not in found.Tags()["scalars"]
    assert "data/stall_share" not in found.Tags()["scalars"]
    assert len(found.Scalars("data/wait_ms")) == len(found.Scalars("data/step_ms")) + 1


def test_the_verdict_lies_beside_them_as_text(tmp_path: Path) -> None:
    write(tmp_path, large_run(60, 2))
    (event,) = read(tmp_path).Tensors("data/verdict/text_summary")
    assert "starved" in event.tensor_proto.string_val[0].decode()


def test_several_ranks_and_loaders_do_not_mix(tmp_path: Path) -> None:
    trainings = [FakeTraining(rank=rank) for rank in range(2)]
    for training in trainings:
        training.epoch([(0.1, 0.1)] * 6, "train")
        training.epoch([(0.1, 0.1)] * 2, "../val id")
    write(tmp_path, run_of(*trainings))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0", "rank1"]
    for rank in range(2):
        found = read(tmp_path / f"rank{rank}")
        assert len(found.Scalars("data/wait_ms")) == 6
        assert len(found.Scalars("data/.._val_id/wait_ms")) == 2


def test_a_run_without_a_batch_gives_no_point(tmp_path: Path) -> None:
    assert write(tmp_path, run_of()) == 0


def test_writing_again_replaces_our_own_events_alone(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 1.0, 1)
    for _ in range(2):
        write(tmp_path, large_run(10, 1))
    found = read(tmp_path)
    assert len(found.Scalars("data/wait_ms")) == 10
    assert len(found.Scalars("loss")) == 1


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        write(tmp_path / "file" / "below", large_run(10, 1))


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(MissingExtraError, match=r"unstarve\[tensorboard\]"):
        write(tmp_path, large_run(10, 1))


def test_the_command_line_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: Run = dataclasses.replace(large_run(20, 1))
    monkeypatch.setattr(report_verb, "load_run", lambda _path: run)
    done: Any = CliRunner().invoke(app, ["report", "run.unstarve", "--tensorboard", str(tmp_path / "events")])
    assert done.exit_code == 0, done.output
    assert "20 steps" in done.stderr
    assert done.stdout == ""
    assert len(read(tmp_path / "events").Scalars("data/wait_ms")) == 20
