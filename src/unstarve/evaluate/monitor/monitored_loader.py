"""Watch a loader in production: log it, chart it, and say when waiting for data becomes another matter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from unstarve.collect.call_site import call_site, variable_name
from unstarve.errors import UsageError
from unstarve.evaluate.evaluator.epoch_log import now_ns
from unstarve.evaluate.evaluator.timed_iterator import quick_size
from unstarve.evaluate.monitor.cause_of_change import what_changed
from unstarve.evaluate.monitor.meter import Meter
from unstarve.evaluate.monitor.regime import RegimeDetector
from unstarve.evaluate.monitor.reporter import Reporter, ScalarWriter, flat_metrics
from unstarve.loader_proxy import LoaderProxy, check_loader
from unstarve.model import RegimeChange

_SETTINGS = ("log_interval", "name", "writer", "send", "on_change", "change_factor", "window_steps")


class MonitoredDataLoader(LoaderProxy):
    """A loader that says how it does; in all else it is the loader it wraps, with the same batches.

    Every `log_interval` batches it logs a line (logger ``unstarve.monitor``, level INFO), gives `metrics` to
    `writer` (anything with ``add_scalar``, such as torch's ``SummaryWriter``) and calls
    ``send(metrics, step=…)``: ``wandb.log`` and ``mlflow.log_metrics`` fit as they are.

    When the wait per batch has changed by `change_factor` and stays so for three windows of `window_steps`
    batches, it logs a warning and calls `on_change` with a `RegimeChange`. Its ``cause`` is known where the
    process is being recorded (`unstarve run`, `unstarve.recording`). None for `on_change` only logs.

    What `writer`, `send` or `on_change` raise is logged and never reaches training. `name` is what the loader
    goes by; by default the variable it is assigned to. Memory does not grow with the number of batches.
    """

    name: str
    log_interval: int
    writer: ScalarWriter | None
    send: Callable[..., object] | None
    on_change: Callable[[RegimeChange], object] | None
    change_factor: float
    window_steps: int
    _meter: Meter

    def __init__(
        self,
        dataloader: Iterable[Any],
        log_interval: int = 100,
        *,
        name: str | None = None,
        writer: ScalarWriter | None = None,
        send: Callable[..., object] | None = None,
        on_change: Callable[[RegimeChange], object] | None = None,
        change_factor: float = 2.0,
        window_steps: int = 50,
    ) -> None:
        check_loader(dataloader)
        _check(log_interval, writer, change_factor, window_steps)
        # Written past __setattr__, which is for the loader's attributes.
        vars(self).update(
            dataloader=dataloader,
            log_interval=log_interval,
            name=name or variable_name(*call_site()) or "loader",
            writer=writer,
            send=send,
            on_change=on_change,
            change_factor=change_factor,
            window_steps=window_steps,
        )
        reporter = Reporter(self.name, writer, send, on_change)
        vars(self)["_meter"] = Meter(
            self.name,
            log_interval,
            RegimeDetector(change_factor),
            window_steps,
            on_window=reporter.report,
            on_change=reporter.tell,
            why=what_changed,
        )

    def __iter__(self) -> Iterator[Any]:
        begin_ns = now_ns()
        return MonitoredIterator(iter(self.dataloader), self._meter, begin_ns)

    @property
    def batch_count(self) -> int:
        """Batches that this loader has delivered."""
        return self._meter.batches

    @property
    def total_time(self) -> float:
        """Seconds that training has waited for them."""
        return self._meter.wait_ns / 1e9

    def metrics(self) -> dict[str, float]:
        """The last `log_interval` batches as a flat dictionary; what is not known is left out.

        ``data/wait_ms``, ``data/wait_ms_p95`` and ``data/step_ms`` per batch; ``data/wait_share``;
        ``data/stall_share``, the same on a CPU and not known to the host alone on a GPU;
        ``data/throughput`` in samples a second; ``data/steps_per_s``. Empty before the first batch.
        """
        window = self._meter.latest()
        return {} if window is None else flat_metrics(window)

    def __repr__(self) -> str:
        return f"MonitoredDataLoader({self.dataloader!r}, name={self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has the same settings and has seen nothing yet."""
        return _made_again, (self.dataloader, {name: vars(self)[name] for name in _SETTINGS})


def _made_again(dataloader: Iterable[Any], settings: dict[str, Any]) -> MonitoredDataLoader:
    return MonitoredDataLoader(dataloader, **settings)


def _check(log_interval: Any, writer: Any, change_factor: Any, window_steps: Any) -> None:
    for name, value in (("log_interval", log_interval), ("window_steps", window_steps)):
        if type(value) is not int or value < 1:
            raise UsageError(f"{name} is a whole number of batches, at least 1, not {value!r}")
    if not isinstance(change_factor, (int, float)) or not change_factor > 1:
        raise UsageError(f"change_factor is a number above 1, not {change_factor!r}")
    if writer is not None and not hasattr(writer, "add_scalar"):
        raise UsageError(f"writer needs an add_scalar method, as SummaryWriter has; {writer!r} has none")


_log = logging.getLogger("unstarve.monitor")


class MonitoredIterator:
    """Behaves as the iterator it wraps, also after an exception.

    A step goes from one batch to the next; the first one of an epoch begins with ``iter()``, whose time is
    part of its wait, and the work on an epoch's last batch counts for the first step of the next epoch.
    What training does between two epochs with no iterator at hand is nobody's step.
    """

    __slots__ = ("_ended", "_iterator", "_meter", "_start_ns", "_step_from_ns")

    def __init__(self, iterator: Iterator[Any], meter: Meter, begin_ns: int) -> None:
        self._ended = False
        self._iterator = iterator
        self._meter = meter
        self._start_ns = now_ns() - begin_ns
        self._step_from_ns = begin_ns - meter.take_rest()

    def __iter__(self) -> MonitoredIterator:
        return self

    def __next__(self) -> Any:
        ask_ns = now_ns()
        try:
            batch = next(self._iterator)
        except StopIteration:
            if not self._ended:
                self._ended = True
                self._meter.keep_rest(ask_ns - self._step_from_ns)
            raise
        got_ns = now_ns()
        wait_ns = got_ns - ask_ns + self._start_ns
        self._start_ns = 0
        step_ns = got_ns - self._step_from_ns
        self._step_from_ns = got_ns
        try:
            self._meter.add(wait_ns, step_ns, got_ns, quick_size(batch))
        except Exception:  # a defect of ours must not cost the user the training
            _log.exception("a batch could not be counted; training goes on")
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_iterator"), name)
