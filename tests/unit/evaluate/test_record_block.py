"""Recording this very process: what was there before is there afterwards, and the next one finds nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import unstarve
from sample_loaders import Failing, first_numbers, numbered
from unstarve.collect.recorder import recorder
from unstarve.errors import RunExistsError, UsageError
from unstarve.evaluate.monitor import regime_change as why
from unstarve.evaluate.monitor.regime_change import Shift
from unstarve.model import Cause, Diagnosis, Series, Window
from unstarve.model.launch_settings import VARIABLE


@pytest.fixture(autouse=True)
def nothing_stays(torch_as_it_was: None) -> Any:
    before = {name: os.environ.get(name) for name in (VARIABLE, "PYTHONPATH")}
    yield
    assert {name: os.environ.get(name) for name in before} == before
    assert recorder() is None


def steps(diagnosis: Diagnosis) -> list[int]:
    return [loader.steps for loader in diagnosis.loaders]


def test_every_loader_of_the_block_is_recorded() -> None:
    with unstarve.recording() as recorded:
        train_loader = DataLoader(TensorDataset(torch.arange(30)))
        list(train_loader)
        list(numbered(batches=3, num_workers=1))
    diagnosis = recorded.diagnosis
    assert sorted(steps(diagnosis)) == [3, 30]
    assert "train_loader" in {loader.name for loader in diagnosis.loaders}
    assert diagnosis.exit_code == 0


def test_what_comes_outside_of_it_is_not() -> None:
    loader = numbered(batches=25)
    list(loader)
    with unstarve.recording() as first:
        list(loader)
    list(loader)
    with unstarve.recording() as second:
        list(loader)
        list(loader)
    list(loader)
    assert steps(first.diagnosis) == [25]
    assert steps(second.diagnosis) == [50]


def test_persistent_workers_are_recorded_again_and_again() -> None:
    loader = numbered(batches=6, num_workers=1, persistent_workers=True)
    for _ in range(2):
        with unstarve.recording() as recorded:
            assert first_numbers(loader) == [0, 4, 8, 12, 16, 20]
        assert steps(recorded.diagnosis) == [6]


def test_batches_and_random_draws_are_as_without() -> None:
    def drawn() -> tuple[list[int], float]:
        torch.manual_seed(3)
        return first_numbers(numbered(shuffle=True)), float(torch.rand(()))

    with unstarve.recording():
        inside = drawn()
    assert inside == drawn()


def test_an_exception_passes_and_what_was_recorded_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="damaged"), unstarve.recording(tmp_path / "a.unstarve") as recorded:
        list(DataLoader(Failing()))
    assert recorded.diagnosis.exit_code == 1
    assert steps(recorded.diagnosis) == [2]


def test_the_run_file_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "a.unstarve"
    with unstarve.recording(target):
        list(numbered())
    assert [path.name for path in tmp_path.iterdir()] == ["a.unstarve"]
    assert steps(unstarve.diagnose(unstarve.load_run(target))) == [6]
    with pytest.raises(RunExistsError), unstarve.recording(target):
        pass


def test_the_wrapping_is_undone_between_tests() -> None:
    assert not hasattr(DataLoader.__init__, "__wrapped__")


def test_one_at_a_time_and_no_diagnosis_before_the_end() -> None:
    with unstarve.recording() as recorded:
        with pytest.raises(UsageError, match="already"), unstarve.recording():
            pass
        with pytest.raises(UsageError, match="still running"):
            _ = recorded.diagnosis
        list(numbered())
    assert steps(recorded.diagnosis) == [6]


def test_a_change_is_explained_by_the_record_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Series, Any, Any]] = []

    def most_changed(series: Series, before: Any, after: Any) -> Cause:
        asked.append((series, before, after))
        return Cause.DISK

    monkeypatch.setattr(why, "most_changed", most_changed)
    before = Window(1, 9, 1, 2, 1.0, 1.0, 1.0, None)
    after = Window(10, 19, 3, 2**62, 1.0, 1.0, 1.0, None)
    with unstarve.recording():
        few, many = numbered(batches=3), numbered(batches=30)
        list(few), list(many)
        assert why.what_changed(Shift((before,), (after,))) is Cause.DISK
    ((series, first, second),) = asked
    assert len(series.points) == 30
    assert (first, second) == ((1, 2), (3, 2**62))
    assert why.what_changed(Shift((before,), (after,))) is None


def test_a_record_that_cannot_be_read_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window(1, 9, 0, 2**62, 1.0, 1.0, 1.0, None)
    with unstarve.recording():
        list(numbered())
        monkeypatch.setattr(why, "read_run", lambda path: 1 / 0)
        assert why.what_changed(Shift((window,), (window,))) is None
        monkeypatch.setattr(why, "_MOST_BYTES", 0)
        assert why.what_changed(Shift((window,), (window,))) is None
