"""Monitor a loader in production: log it, chart it, and warn when the wait for data changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from unstarve.collect.loader_origin import creation
from unstarve.errors import UsageError
from unstarve.evaluate.evaluator.epoch_log import now_ns
from unstarve.evaluate.evaluator.timed_iterator import quick_size
from unstarve.evaluate.monitor.memory_health import MemoryHealth
from unstarve.evaluate.monitor.meter import Meter
from unstarve.evaluate.monitor.regime_change import RegimeDetector, what_changed
from unstarve.evaluate.monitor.reporter import Reporter, ScalarWriter, flat_metrics
from unstarve.loader_proxy import LoaderProxy, check_loader
from unstarve.model import Finding, RegimeChange

_SETTINGS = ("log_interval", "name", "writer", "send", "on_change", "change_factor", "window_steps")


class MonitoredDataLoader(LoaderProxy):
    """A loader that reports on itself; otherwise it is the loader it wraps, with the same batches.

    Every `log_interval` batches it logs a line (logger ``unstarve.monitor``, level INFO), passes `metrics` to
    `writer` (anything with ``add_scalar``, such as torch's ``SummaryWriter``) and calls ``send(metrics,
    step=…)``: ``wandb.log`` and ``mlflow.log_metrics`` can be used directly.

    When the wait per batch changes by `change_factor` for three windows of `window_steps` batches in a row,
    it logs a warning and calls `on_change`, if given, with a `RegimeChange`. Its ``cause`` is known if the
    process is being recorded (`unstarve run`, `unstarve.recording`). It also warns, once, when batches are
    kept after their step or shared memory or file descriptors run out: see `health`.

    Exceptions of `writer`, `send` and `on_change` are logged and never reach training. `name` is the loader's
    name in logs; by default the variable it is assigned to. Memory does not grow with the number of batches.
    """

    name: str
    log_interval: int
    writer: ScalarWriter | None
    send: Callable[..., object] | None
    on_change: Callable[[RegimeChange], object] | None
    change_factor: float
    window_steps: int
    _meter: Meter
    _memory: MemoryHealth

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
        # Bypasses __setattr__, which sets the loader's attributes.
        vars(self).update(
            dataloader=dataloader,
            log_interval=log_interval,
            name=name or creation().origin().name or "loader",
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
        from_workers = bool(getattr(dataloader, "num_workers", 0))
        vars(self)["_memory"] = MemoryHealth(self.name, from_workers=from_workers)

    def __iter__(self) -> Iterator[Any]:
        begin_ns = now_ns()
        return MonitoredIterator(iter(self.dataloader), self._meter, begin_ns, self._memory)

    @property
    def batch_count(self) -> int:
        """Batches that this loader has delivered."""
        return self._meter.batches

    @property
    def total_time(self) -> float:
        """Seconds that training has waited for these batches."""
        return self._meter.wait_ns / 1e9

    def metrics(self) -> dict[str, float]:
        """Return the last `log_interval` batches as a flat dictionary, without unknown values.

        ``data/wait_ms``, ``data/wait_ms_p95`` and ``data/step_ms`` per batch; ``data/wait_share``;
        ``data/stall_share``, the same on a CPU and unknown on a GPU; ``data/throughput`` in samples per
        second; ``data/steps_per_s``. Empty before the first batch.
        """
        window = self._meter.latest()
        return {} if window is None else flat_metrics(window)

    def health(self) -> tuple[Finding, ...]:
        """Return what goes wrong: batches that are kept, shared memory or descriptors that run out.

        Each is also logged once, as a warning. The ids are those of `unstarve run`.
        """
        return tuple(self._memory.found.values())

    def __repr__(self) -> str:
        return f"MonitoredDataLoader({self.dataloader!r}, name={self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has the same settings and has counted nothing yet."""
        return _made_again, (self.dataloader, {name: vars(self)[name] for name in _SETTINGS})


def _made_again(dataloader: Iterable[Any], settings: dict[str, Any]) -> MonitoredDataLoader:
    return MonitoredDataLoader(dataloader, **settings)


def _check(log_interval: Any, writer: Any, change_factor: Any, window_steps: Any) -> None:
    for name, value in (("log_interval", log_interval), ("window_steps", window_steps)):
        if type(value) is not int or value < 1:
            raise UsageError(f"{name} must be an integer >= 1, got {value!r}")
    if not isinstance(change_factor, (int, float)) or not change_factor > 1:
        raise UsageError(f"change_factor must be > 1, got {change_factor!r}")
    if writer is not None and not hasattr(writer, "add_scalar"):
        raise UsageError(f"writer must have an add_scalar method, like SummaryWriter; got {writer!r}")


_log = logging.getLogger("unstarve.monitor")


class MonitoredIterator:
    """Behaves like the iterator it wraps, also after an exception.

    A step runs from one batch to the next. The first step of an epoch starts with ``iter()``, whose time is
    part of its wait; the work on an epoch's last batch belongs to the first step of the next epoch. Other
    work between two epochs belongs to no step.
    """

    __slots__ = ("_ended", "_iterator", "_memory", "_meter", "_start_ns", "_step_from_ns")

    def __init__(self, iterator: Iterator[Any], meter: Meter, begin_ns: int, memory: MemoryHealth) -> None:
        self._ended = False
        self._memory = memory
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
            for one in self._memory.note(batch, self._meter.batches, got_ns):
                _log.warning("%s: %s (%s)\n%s", self._meter.totals.loader, one.message, one.id, one.fix)
        except Exception:  # a bug of ours must not stop training
            _log.exception("a batch could not be counted; training continues")
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_iterator"), name)
