"""Hangs and dead workers in a run file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import simple_run
from run_files import write_run
from unstarve.model.stuck import Breakage, Hang, WorkerDeath
from unstarve.record.breakage_meta import keep_breakage
from unstarve.record.metas import meta_of
from unstarve.record.run_file import claim, finish
from unstarve.record.run_reader import read_run

HANG = Hang(
    "train",
    75.5,
    "resolved",
    "worker 2",
    4711,
    "fetching batch 4",
    "sleeps",
    "f()",
    "text\n",
    batch=4,
    line=3,
)
DEATH = WorkerDeath(4711, "train", "fetching batch 4", "", worker=1, signal="SIGKILL", oom_kills=0)


def test_what_broke_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.unstarve"
    claim(path, ["train.py"], "run")
    breakage = Breakage((HANG, HANG), (DEATH,))
    keep_breakage(path, breakage)
    assert finish(path, 1) is None
    run = read_run(path)
    assert run.breakage == breakage
    assert run.lost == ()


def test_a_run_in_which_nothing_broke_says_nothing_about_it(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a.unstarve", simple_run([(0.01, 0.01)] * 3)))
    assert run.breakage == Breakage()


@pytest.mark.parametrize(
    "payload",
    [
        b'{"meta": "hang"}',
        b'{"meta": "death", "pid": -1, "loader": "a", "doing": "", "source": ""}',
        b'{"meta": "death", "pid": 1, "loader": "a", "doing": "", "source": "", "signal": 9}',
    ],
)
def test_a_damaged_record_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="not"):
        meta_of(payload)


def test_a_record_with_only_what_is_needed_is_enough() -> None:
    meta = meta_of(b'{"meta": "death", "pid": 1, "loader": "a", "doing": "", "source": ""}')
    assert meta is not None
    del meta["meta"]
    assert WorkerDeath(**meta) == WorkerDeath(1, "a", "", "")
