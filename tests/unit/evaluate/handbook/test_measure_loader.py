"""Quick measurements split a loop's time rightly and cope with short, empty and odd loaders."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from sample_loaders import Stream, numbered
from unstarve.errors import UsageError
from unstarve.evaluate.handbook.measure_loader import measure_loading_overhead, measure_throughput


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)
        monkeypatch.setattr("time.sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def loader(self, batches: int, load_s: float, start_s: float = 0.0) -> Any:
        def load() -> Any:
            for _ in range(batches):
                self.sleep(load_s)
                yield torch.zeros(4, 8)

        class Loader:
            def __iter__(_) -> Any:  # self is the clock
                self.sleep(start_s)
                return load()

        return Loader()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_loading_and_computing_are_told_apart(clock: Clock) -> None:
    measured = measure_loading_overhead(clock.loader(10, load_s=3.0, start_s=7.0), 5, compute_time=1.0)
    assert (measured.num_batches, measured.start_time) == (5, 7.0)
    assert (measured.load_time, measured.compute_time, measured.total_time) == (15.0, 5.0, 20.0)
    assert (measured.load_ratio, measured.avg_load, measured.avg_compute) == (0.75, 3.0, 1.0)
    assert "75%" in str(measured)


def test_a_compute_function_gets_every_batch(clock: Clock) -> None:
    seen = []

    def compute(batch: torch.Tensor) -> None:
        clock.sleep(2.0)
        seen.append(batch.shape)

    measured = measure_loading_overhead(clock.loader(3, load_s=1.0), compute=compute)
    assert seen == [(4, 8)] * 3
    assert measured.compute_time == 6.0


def test_a_short_loader_is_measured_as_far_as_it_goes(clock: Clock) -> None:
    measured = measure_loading_overhead(clock.loader(3, load_s=1.0), 50)
    assert measured.num_batches == 3
    assert "before the 50 requested" in str(measured)


def test_an_empty_loader_divides_nothing_by_zero() -> None:
    overhead, throughput = measure_loading_overhead([]), measure_throughput([])
    assert overhead.load_ratio is overhead.avg_load is overhead.avg_compute is None
    assert throughput.batches_per_s is throughput.samples_per_s is throughput.bytes_per_s is None
    assert "no batch" in str(overhead)
    assert "no batch" in str(throughput)


def test_throughput_leaves_out_start_and_warm_up(clock: Clock) -> None:
    measured = measure_throughput(clock.loader(10, load_s=0.5, start_s=9.0), 4, warmup=2)
    assert (measured.num_batches, measured.warmup, measured.total_time) == (4, 2, 2.0)
    assert (measured.batches_per_s, measured.samples_per_s, measured.bytes_per_s) == (2.0, 8.0, 256.0)
    assert "8.00 samples/s" in str(measured)


def test_throughput_takes_the_whole_epoch_by_default() -> None:
    assert measure_throughput(numbered(6), warmup=1).num_batches == 5


def test_throughput_of_an_endless_loader_can_be_measured() -> None:
    assert measure_throughput(DataLoader(Stream(None), batch_size=2), 5).num_batches == 5


def test_what_cannot_be_weighed_is_not_known() -> None:
    measured = measure_throughput(["a"] * 5)
    assert measured.samples is None
    assert measured.bytes is None


@pytest.mark.parametrize("count", [0, -1, True, 2.5, "4"])
def test_counts_that_make_no_sense_are_refused(count: Any) -> None:
    with pytest.raises(UsageError, match="num_batches"):
        measure_loading_overhead(numbered(), count)
    with pytest.raises(UsageError, match="num_batches"):
        measure_throughput(numbered(), count)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", True])
def test_compute_times_that_make_no_sense_are_refused(seconds: Any) -> None:
    with pytest.raises(UsageError, match="compute_time"):
        measure_loading_overhead(numbered(), compute_time=seconds)


def test_computing_is_simulated_or_done_not_both() -> None:
    with pytest.raises(UsageError, match="not both"):
        measure_loading_overhead(numbered(), compute_time=0.1, compute=print)


def test_what_cannot_be_called_or_iterated_is_refused() -> None:
    with pytest.raises(UsageError, match="must be callable"):
        measure_loading_overhead(numbered(), compute=3)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(UsageError, match="must be iterable"):
        measure_throughput(3)  # type: ignore[arg-type]  # the point of the test


def test_the_users_own_exception_comes_through() -> None:
    def compute(batch: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure_loading_overhead(numbered(), compute=compute)
