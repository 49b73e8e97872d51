"""The snippets that teams carry around run with only their import changed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import unstarve
from sample_loaders import numbered
from unstarve.evaluate.evaluator import load_recorder as recorder


def test_the_overhead_is_read_by_name() -> None:
    results = unstarve.measure_loading_overhead(numbered(3), num_batches=3, compute_time=0.0)
    assert results["load_ratio"] == results.load_ratio
    assert f"{results['load_ratio']:.1%}".endswith("%")
    assert dict(results)["num_batches"] == 3
    with pytest.raises(KeyError, match="speed"):
        results["speed"]


def test_an_epoch_is_read_by_name() -> None:
    profiler = unstarve.DataLoaderProfiler()
    profiler.start_epoch()
    for _ in numbered(3):
        profiler.record_batch()
    stats = profiler.end_epoch()
    assert list(stats) == [
        "num_batches", "total_time", "mean_time", "std_time", "min_time", "max_time", "throughput",
    ]  # fmt: skip
    assert stats["throughput"] == pytest.approx(stats["num_batches"] / stats["total_time"])


def test_throughput_is_a_number_of_batches_a_second() -> None:
    before, after = (unstarve.measure_throughput(numbered(5), warmup=0) for _ in range(2))
    assert float(f"{before:.1f}") == pytest.approx(before, abs=0.05)
    assert after / before == pytest.approx(float(after) / float(before))
    assert max(before, after) >= before == before.batches_per_s
    assert f"{before}" == str(before)
    assert "batches/s" in str(before)


def test_throughput_keeps_its_details_on_the_way_to_another_process() -> None:
    measured = unstarve.measure_throughput(numbered(5), warmup=0)
    copied = pickle.loads(pickle.dumps(measured))
    assert (copied, copied.samples, copied.warmup) == (measured, measured.samples, measured.warmup)


def test_throughput_without_a_batch_is_no_number() -> None:
    measured = unstarve.measure_throughput([], warmup=0)
    assert measured != measured
    assert measured.batches_per_s is measured.samples_per_s is None


def test_a_monitored_loader_counts_its_own_batches() -> None:
    first = unstarve.MonitoredDataLoader(numbered(3), log_interval=100, name="counted")
    second = unstarve.MonitoredDataLoader(numbered(3), log_interval=100, name="counted")
    for _ in range(2):
        list(first)
    assert (first.batch_count, second.batch_count) == (6, 0)
    assert first.total_time > 0 == second.total_time


def test_the_figure_has_a_name_without_being_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    ipython = pytest.importorskip("IPython")
    shown: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ipython, "get_ipython", lambda: SimpleNamespace(kernel="a notebook's"))
    monkeypatch.setattr("IPython.display.display", shown.append)
    for mode, log_file in (("log", "real.json"), ("replay", "ideal.json")):
        list(unstarve.LoaderEvaluator(numbered(3), mode=mode, log_file=log_file))  # type: ignore[arg-type]
    assert unstarve.plot_comparison(real_log="real.json", ideal_log="ideal.json") == Path("comparison.png")
    assert Path("comparison.png").read_bytes().startswith(b"\x89PNG")
    assert [figure.filename for figure in shown] == ["comparison.png"]


def test_the_log_has_throughput_and_no_gpu_where_there_is_none(tmp_path: Path) -> None:
    list(unstarve.LoaderEvaluator(numbered(3), log_file=tmp_path / "real.json"))
    log = json.loads((tmp_path / "real.json").read_text())
    assert log["throughput"] == pytest.approx(3 / log["total_time"])
    assert log["samples_per_s"] == pytest.approx(log["samples"] / log["total_time"])
    assert log["gpu_utilization"] is None


def test_the_log_has_what_the_driver_says_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    records = iter([[(1, 50)], [(2, 100), (3, 30)]])
    gauge = SimpleNamespace(utilization=lambda: next(records, []))
    monkeypatch.setattr(recorder, "cuda_in_use", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    monkeypatch.setattr(recorder.Gauge, "of", lambda device: gauge)
    evaluator = unstarve.LoaderEvaluator(numbered(3))
    list(evaluator)
    assert evaluator.get_metrics()["gpu_utilization"] == pytest.approx(0.6)
