"""Where a monitored loader reports: the log, charts, a callback.

Does not refer to the loader itself, so a leftover iterator does not keep it alive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from unstarve.collect.device.gpu import cuda_in_use
from unstarve.model import RegimeChange, Window
from unstarve.words import duration, percent, rate

_log = logging.getLogger("unstarve.monitor")


class ScalarWriter(Protocol):
    """The part of a ``SummaryWriter`` that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> Any:
        """Write one value."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Receives windows and changes; failures of the user's callbacks are logged and go no further."""

    name: str
    writer: ScalarWriter | None
    send: Callable[..., object] | None
    on_change: Callable[[RegimeChange], object] | None

    def report(self, window: Window) -> None:
        """Report a complete window."""
        _log.info("%s", _line(self.name, window))
        writer, send = self.writer, self.send
        if writer is None and send is None:
            return
        metrics = flat_metrics(window)
        if writer is not None:
            self._guarded("writer", lambda: _write(writer, metrics, window.last_step))
        if send is not None:
            self._guarded("send", lambda: send(metrics, step=window.last_step))

    def tell(self, change: RegimeChange) -> None:
        """Report that the wait for data has changed."""
        _log.warning("%s", change)
        on_change = self.on_change
        if on_change is not None:
            self._guarded("on_change", lambda: on_change(change))

    def _guarded(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception:  # a failing chart must not stop training
            _log.exception("%s: %s failed; training continues", self.name, what)


def flat_metrics(window: Window) -> dict[str, float]:
    """Return a window under the names used in charts, without unknown values."""
    known = {
        "data/wait_ms": window.wait_s * 1e3,
        "data/wait_ms_p95": window.wait_p95_s * 1e3,
        "data/step_ms": window.step_s * 1e3,
        "data/wait_share": window.wait_share,
        # On a GPU the host's wait is not the device's stall, which is unknown here.
        "data/stall_share": None if cuda_in_use() else window.wait_share,
        "data/throughput": window.samples_per_s,
        "data/steps_per_s": window.steps_per_s,
    }
    return {name: value for name, value in known.items() if value is not None}


def _write(writer: ScalarWriter, metrics: Mapping[str, float], step: int) -> None:
    for tag, value in metrics.items():
        writer.add_scalar(tag, value, step)


def _line(name: str, window: Window) -> str:
    waits = "" if window.wait_share is None else f" ({percent(window.wait_share)})"
    per_s = window.samples_per_s
    speed = "" if per_s is None else f", {rate(per_s)} samples/s"
    who = "the host waits" if cuda_in_use() else "waits"  # the GPU's stall is unknown here
    return (
        f"{name}: step {window.last_step:,}: {who} {duration(window.wait_s)} of "
        f"{duration(window.step_s)} per step{waits}{speed}"
    )
