"""The disk alone: all bytes are read once an epoch, and given to nobody."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unstarve.benchmark import disk_limit as disk_module
from unstarve.benchmark.bench_plan import Missing
from unstarve.benchmark.disk_limit import files_alone, stretches_alone
from unstarve.fixes.io.reading import FD, LENGTH, OFFSET, PATH, TO, Outcome, Plan


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What was to be read, reading by reading; nothing is."""
    asked: list[Plan] = []

    def read_plan(plan: Plan, *_: Any, **__: Any) -> Outcome:
        asked.append(plan.copy())
        return Outcome([], int(plan[:, LENGTH].sum()), direct_refused=False, used_uring=False)

    monkeypatch.setattr(disk_module, "read_plan", read_plan)
    monkeypatch.setattr(os, "O_DIRECT", 0, raising=False)  # not every file system has it
    return asked


def test_every_file_is_read_whole_in_another_order_each_time(tmp_path: Path, plans: list[Plan]) -> None:
    paths = [tmp_path / f"{number}.bin" for number in range(60)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(number + 1))
    alone = files_alone(paths, batches=7)
    plans.clear()
    assert list(alone) == list(alone) == [None] * 7
    first, second = plans
    for plan in (first, second):
        assert np.sort(plan[:, LENGTH]).tolist() == list(range(1, 61))
        assert len(np.unique(plan[:, PATH])) == 60
    assert first[:, PATH].tolist() != second[:, PATH].tolist()


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_file_is_read_in_stretches_from_end_to_end(
    tmp_path: Path, plans: list[Plan], shuffle: bool
) -> None:
    path = tmp_path / "all.bin"
    path.write_bytes(bytes(100_000))
    list(stretches_alone(path, 1000, 5, shuffle=shuffle))
    for plan in plans:
        offsets = plan[:, OFFSET].tolist()
        assert sorted(offsets) == list(range(0, 100_000, 1000))
        assert (offsets == sorted(offsets)) is not shuffle
        assert (plan[:, FD] >= 0).all()


def test_the_page_cache_alone_takes_two_batches_of_memory(tmp_path: Path, plans: list[Plan]) -> None:
    path = tmp_path / "some.bin"
    path.write_bytes(bytes(1 << 20))
    assert list(files_alone([path] * 40, 3, direct=False)) == [None] * 3
    assert len(plans) == 2  # to begin with, and for the epoch: there is no depth to find
    assert plans[1][:, TO].max() + (1 << 20) <= 12 << 20


def test_where_direct_reads_are_refused_there_is_no_limit_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some.bin"
    path.write_bytes(bytes(10_000))
    refused = Outcome([], 0, direct_refused=True, used_uring=False)
    monkeypatch.setattr(disk_module, "read_plan", lambda *_, **__: refused)
    with pytest.raises(Missing, match="no direct reads"):
        files_alone([path], 1)
