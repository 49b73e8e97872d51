"""Logs of every kind are read, and what is no log is named with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sample_loaders import numbered
from unstarve.errors import LogError
from unstarve.evaluate.evaluator.loader_evaluator import LoaderEvaluator
from unstarve.evaluate.evaluator.read_log import read_log
from unstarve.model import Phase

DALI = {
    "mode": "replay",
    "total_batches": 2,
    "total_time": 0.3,
    "avg_batch_time": 0.1,
    "min_batch_time": 0.05,
    "max_batch_time": 0.15,
    "batch_times": [0.05, 0.15],
    "cached_batches": 2,
    "cache_ready": True,
}


def written(tmp_path: Path, content: Any) -> Path:
    file = tmp_path / "log.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_our_own_log_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    evaluator = LoaderEvaluator(numbered(), log_file=file)
    list(evaluator)
    list(evaluator)
    log, metrics = read_log(file), evaluator.get_metrics()
    assert list(log.load_s) == metrics["batch_times"]
    assert list(log.step_s) == metrics["step_times"]
    assert log.sizes == (4,) * 12
    assert log.mode == "log"
    assert len(log.step_s) == len(log.load_s) - 1


def test_dalis_metrics_are_read(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, DALI))
    assert log.load_s == (0.05, 0.15)
    assert log.step_s == log.sizes == ()
    assert log.mode == "replay"


def test_gpu_use_is_read_where_it_is_known(tmp_path: Path) -> None:
    assert read_log(written(tmp_path, DALI | {"gpu_busy_share": 0.5})).gpu_busy_share == 0.5


@pytest.mark.parametrize("name", ["run.unstarve", "renamed.json"])
def test_a_run_file_goes_to_the_run_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = tmp_path / name
    file.write_bytes(b"UNSTARVE\x01")
    monkeypatch.setattr("unstarve.api.load_log_from_run", lambda path, phase: ("run", path, phase))
    assert read_log(file, Phase.REPLAY) == ("run", file, Phase.REPLAY)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("{", "not JSON"),
        ("hello", "not JSON"),
        ([1, 2], "got list"),
        ({}, "no batches"),
        (DALI | {"batch_times": []}, "no batches"),
        ({"mode": "log"}, "no batch_times"),
        (DALI | {"batch_times": "fast"}, "batch_times must be a list of seconds"),
        (DALI | {"batch_times": [1, None]}, "batch_times must be a list of seconds"),
        (DALI | {"batch_times": [1, -1]}, "batch_times must be a list of seconds"),
        (DALI | {"step_times": [1, 1, 1]}, "3 step_times do not fit 2"),
        (DALI | {"batch_sizes": [1]}, "one per batch"),
        (DALI | {"gpu_busy_share": 7}, "gpu_busy_share"),
        (DALI | {"schema": "unstarve.report/1"}, "a loader log"),
        (DALI | {"schema": "unstarve.log/9"}, "version 9"),
    ],
)
def test_what_is_no_log_is_named_with_its_reason(tmp_path: Path, content: Any, reason: str) -> None:
    file = written(tmp_path, content)
    with pytest.raises(LogError, match=reason) as caught:
        read_log(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"nothing\.json: no such file"):
        read_log(tmp_path / "nothing.json")
    with pytest.raises(LogError, match="cannot be read"):
        read_log(tmp_path)


def test_binary_rubbish_is_no_log(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(bytes(range(256)))
    with pytest.raises(LogError, match="not JSON"):
        read_log(file)
