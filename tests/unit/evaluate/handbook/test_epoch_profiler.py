"""A profiler's numbers are right, and calls out of order say what to do."""

from __future__ import annotations

import pytest
import torch

from sample_loaders import numbered
from unstarve.errors import UsageError
from unstarve.evaluate.handbook.epoch_profiler import DataLoaderProfiler


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Readings the clock will give, in order."""
    readings: list[float] = []
    monkeypatch.setattr("time.perf_counter", lambda: readings.pop(0))
    return readings


def test_an_epoch_by_hand(times: list[float]) -> None:
    times += [0.0, 1.0, 3.0, 6.0, 10.0]
    profiler = DataLoaderProfiler()
    profiler.start_epoch()
    for size in (4, 4, 2):
        profiler.record_batch(size)
    profile = profiler.end_epoch()
    assert (profile.num_batches, profile.total_time) == (3, 10.0)
    assert (profile.mean_time, profile.min_time, profile.max_time) == (2.0, 1.0, 3.0)
    assert profile.std_time == pytest.approx((2 / 3) ** 0.5)
    assert profile.percentiles["p50"] == 2.0
    assert list(profile.percentiles) == ["p50", "p90", "p95", "p99"]
    assert (profile.throughput, profile.samples_per_s) == (0.3, 1.0)
    assert profile.load_ratio is None
    assert profiler.epochs == [profile]


def test_samples_per_second_need_every_size() -> None:
    profiler = DataLoaderProfiler()
    profiler.start_epoch()
    profiler.record_batch(4)
    profiler.record_batch()
    assert profiler.end_epoch().samples_per_s is None


def test_an_epoch_without_a_batch_has_no_statistics() -> None:
    profiler = DataLoaderProfiler()
    profiler.start_epoch()
    profile = profiler.end_epoch()
    assert profile.num_batches == 0
    assert profile.mean_time is profile.std_time is profile.throughput is None
    assert profile.percentiles == {}
    assert "–" in profiler.report()


def test_a_watched_loader_is_an_epoch_each_time() -> None:
    with DataLoaderProfiler() as profiler:
        for _ in range(2):
            assert [int(batch[0][0]) for batch in profiler.watch(numbered(3))] == [0, 4, 8]
    assert [profile.num_batches for profile in profiler.epochs] == [3, 3]
    for profile in profiler.epochs:
        assert profile.samples_per_s is not None
        assert profile.load_ratio is not None
        assert 0 < profile.load_ratio <= 1


def test_a_watched_epoch_ends_with_the_loop() -> None:
    profiler = DataLoaderProfiler()
    for _ in profiler.watch(numbered(3)):
        break
    assert [profile.num_batches for profile in profiler.epochs] == [1]


def test_an_exception_ends_the_epoch_once() -> None:
    profiler = DataLoaderProfiler()

    def train() -> None:
        with profiler:
            for _ in profiler.watch(numbered(3)):
                raise RuntimeError

    with pytest.raises(RuntimeError):
        train()
    assert len(profiler.epochs) == 1


def test_the_report_has_a_line_per_epoch() -> None:
    profiler = DataLoaderProfiler()
    list(profiler.watch([torch.zeros(2)]))
    list(profiler.watch(["a", "b"]))
    heading, *lines = profiler.report().splitlines()
    assert "samples/s" in heading
    assert len(lines) == 2
    assert len({len(line) for line in (heading, *lines)}) == 1


def test_calls_out_of_order_say_what_to_do() -> None:
    profiler = DataLoaderProfiler()
    with pytest.raises(UsageError, match=r"start_epoch\(\) first"):
        profiler.record_batch()
    with pytest.raises(UsageError, match=r"start_epoch\(\) first"):
        profiler.end_epoch()
    profiler.start_epoch()
    with pytest.raises(UsageError, match=r"call end_epoch\(\)"):
        profiler.start_epoch()
    with pytest.raises(UsageError, match=r"call end_epoch\(\)"):
        next(profiler.watch(numbered()))
