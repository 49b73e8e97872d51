"""A monitored loader is the loader it wraps; beside that it logs, charts and calls back."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

from sample_loaders import Failing, Stream, first_numbers, numbered
from unstarve.errors import UsageError
from unstarve.evaluate.monitor.meter import totals_of
from unstarve.evaluate.monitor.monitored_loader import MonitoredDataLoader
from unstarve.model import RegimeChange

MS = 1_000_000


class Clock:
    """Time that passes only when someone spends it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 1_000 * MS
        monkeypatch.setattr("unstarve.evaluate.monitor.monitored_loader.now_ns", lambda: self.ns)

    def spend(self, ms: float) -> None:
        self.ns += round(ms * MS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Slow:
    """Batches that take the given milliseconds each."""

    def __init__(self, clock: Clock, waits_ms: list[float], start_ms: float = 0.0) -> None:
        self.clock, self.waits_ms, self.start_ms = clock, waits_ms, start_ms

    def __iter__(self) -> Any:
        self.clock.spend(self.start_ms)
        return self._batches()

    def _batches(self) -> Any:
        for wait_ms in self.waits_ms:
            self.clock.spend(wait_ms)
            yield torch.zeros(8)


def train(loader: Any, clock: Clock, step_ms: float) -> None:
    for _ in loader:
        clock.spend(step_ms)


# --- being the loader ---


def test_batches_pass_through_untouched() -> None:
    batches = [[torch.zeros(2)], {"x": torch.ones(3)}, "text", None]
    assert all(a is b for a, b in zip(MonitoredDataLoader(batches), batches, strict=True))


def test_the_same_batches_and_random_draws_as_without() -> None:
    def order(wrap: Any, workers: int) -> tuple[list[int], float]:
        torch.manual_seed(7)
        loader = wrap(numbered(shuffle=True, num_workers=workers))
        return first_numbers(loader) + first_numbers(loader), float(torch.rand(()))

    for workers in (0, 1):
        assert order(lambda loader: MonitoredDataLoader(loader, 2), workers) == order(lambda x: x, workers)


def test_it_counts_as_the_loader_it_wraps() -> None:
    loader = numbered(batches=3)
    watched: Any = MonitoredDataLoader(loader)
    assert isinstance(watched, DataLoader)
    assert len(watched) == 3
    assert watched.dataset is loader.dataset
    watched.extra = 1
    assert loader.extra == 1  # type: ignore[attr-defined]  # set through the wrapper
    with pytest.raises(UsageError, match="log_interval of a MonitoredDataLoader cannot be changed"):
        watched.log_interval = 3
    with pytest.raises(TypeError):
        len(MonitoredDataLoader(Stream(3)))


def test_an_exception_passes_as_it_is_and_iteration_goes_on() -> None:
    iterator = iter(MonitoredDataLoader(DataLoader(Failing())))
    assert [int(next(iterator)) for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="damaged"):
        next(iterator)
    assert int(next(iterator)) == 3
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)


def test_the_iterator_has_the_attributes_of_the_loaders_own() -> None:
    iterator: Any = iter(MonitoredDataLoader(numbered()))
    next(iterator)
    assert iterator._num_yielded == 1


def test_copies_have_the_same_settings() -> None:
    watched = MonitoredDataLoader(numbered(), 7, name="mine", window_steps=9)
    for other in (copy.copy(watched), pickle.loads(pickle.dumps(watched))):
        assert (other.log_interval, other.name, other.window_steps) == (7, "mine", 9)
        assert first_numbers(other) == first_numbers(watched)


def test_the_loader_goes_when_its_user_lets_go() -> None:
    loader = numbered()
    known = weakref.ref(loader)
    watched = MonitoredDataLoader(loader)
    iterator = iter(watched)
    next(iterator)
    gc.disable()
    try:
        del loader, watched, iterator
        assert known() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"log_interval": 0}, "log_interval"),
        ({"window_steps": True}, "window_steps"),
        ({"change_factor": 1}, "change_factor"),
        ({"writer": 3}, "add_scalar"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        MonitoredDataLoader([], **arguments)
    with pytest.raises(UsageError, match="must be iterable"):
        MonitoredDataLoader(3)  # type: ignore[arg-type]  # what a user may do


# --- what it says ---


def test_the_metrics_are_those_of_the_last_interval(clock: Clock) -> None:
    watched = MonitoredDataLoader(Slow(clock, [5.0] * 4 + [1.0] * 4 + [100.0]), 4, name="metrics")
    assert watched.metrics() == {}
    train(watched, clock, 3.0)
    assert watched.metrics() == pytest.approx(
        {
            "data/wait_ms": 1.0,
            "data/wait_ms_p95": 1.0,
            "data/step_ms": 4.0,
            "data/wait_share": 0.25,
            "data/stall_share": 0.25,
            "data/throughput": 2000.0,
            "data/steps_per_s": 250.0,
        }
    )


def test_before_the_first_interval_there_is_what_there_is(clock: Clock) -> None:
    watched = MonitoredDataLoader(Slow(clock, [5.0]), name="early")
    train(watched, clock, 3.0)
    assert watched.metrics()["data/wait_ms"] == pytest.approx(5.0)


def test_starting_counts_as_waiting_and_time_between_epochs_as_nothing(clock: Clock) -> None:
    watched = MonitoredDataLoader(Slow(clock, [2.0, 2.0], start_ms=10.0), 4, name="epochs")
    train(watched, clock, 3.0)
    clock.spend(1_000_000.0)
    train(watched, clock, 3.0)
    # start 10 + 2, step 3 + 2, rest 3 + start 10 + 2, step 3 + 2
    assert watched.metrics()["data/step_ms"] == pytest.approx((12 + 5 + 15 + 5) / 4)
    assert watched.metrics()["data/wait_ms"] == pytest.approx((12 + 2 + 12 + 2) / 4)


def test_on_a_gpu_the_stall_is_not_known_to_the_host(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unstarve.evaluate.monitor.reporter.cuda_in_use", lambda: True)
    watched = MonitoredDataLoader(Slow(clock, [1.0]), 1, name="gpu")
    train(watched, clock, 3.0)
    assert "data/stall_share" not in watched.metrics()
    assert watched.metrics()["data/wait_share"] == pytest.approx(1.0)


def test_a_line_is_logged_every_so_many_batches(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unstarve.monitor")
    train_loader = MonitoredDataLoader(Slow(clock, [5.0] * 9), 4)
    train(train_loader, clock, 5.0)
    # The first step has no work before it: 35 ms in four steps.
    assert caplog.messages == [
        "train_loader: step 4: waits 5.00 ms of 8.75 ms per step (57%), 914 samples/s",
        "train_loader: step 8: waits 5.00 ms of 10.0 ms per step (50%), 800 samples/s",
    ]


def test_a_change_is_logged_and_called_back(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    told: list[RegimeChange] = []
    waits = [2.0] * 120 + [20.0] * 60
    watched = MonitoredDataLoader(
        Slow(clock, waits), 1000, name="changing", on_change=told.append, window_steps=10
    )
    train(watched, clock, 5.0)
    (change,) = told
    assert (change.loader, change.since_step, change.noticed_step) == ("changing", 121, 150)
    assert change.cause is None
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", str(change))
    assert totals_of("changing").changes == 1


def test_what_a_callback_or_a_chart_raises_never_reaches_training(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def add_scalar(self, *_: Any) -> None:
            raise OSError("disk full")

    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("nobody there")

    waits = [2.0] * 120 + [20.0] * 60
    watched = MonitoredDataLoader(
        Slow(clock, waits), 100, name="broken", writer=Broken(), send=fail, on_change=fail, window_steps=10
    )
    train(watched, clock, 5.0)
    assert [m for m in caplog.messages if "failed" in m] == [
        "broken: writer failed; training continues",
        "broken: send failed; training continues",
        "broken: on_change failed; training continues",
    ]


def test_charts_get_the_flat_dictionary_with_its_step(clock: Clock) -> None:
    sent: list[tuple[dict[str, float], int]] = []

    def log_metrics(metrics: dict[str, float], step: int | None = None) -> None:
        """The signature that ``wandb.log`` and ``mlflow.log_metrics`` share."""
        assert step is not None
        sent.append((metrics, step))

    watched = MonitoredDataLoader(Slow(clock, [1.0] * 6), 3, name="sent", send=log_metrics)
    train(watched, clock, 1.0)
    assert [step for _, step in sent] == [3, 6]
    assert sent[-1][0] == watched.metrics()


def test_a_summary_writer_is_written_to_live(clock: Clock, tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        train(MonitoredDataLoader(Slow(clock, [1.0] * 6), 3, name="written", writer=writer), clock, 1.0)
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [event.step for event in found.Scalars("data/wait_ms")] == [3, 6]
    assert {"data/stall_share", "data/throughput"} <= set(found.Tags()["scalars"])
