"""A recording that a framework's hooks begin and end, and its report."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from unstarve.collect.host_facts import environment_rank, group_rank
from unstarve.evaluate.record_block import Recording, recording
from unstarve.launch.hooks import attach
from unstarve.model import Diagnosis
from unstarve.model.launch_settings import LaunchSettings
from unstarve.present.terminal.report_card import print_report
from unstarve.present.terminal.screen import screen

_log = logging.getLogger("unstarve")

Send = Callable[..., object]
"""Called as ``send(metrics, step=…)``: ``wandb.log`` and ``mlflow.log_metrics`` can be used directly."""


class RecordedTraining:
    """Records from `begin` to `end`; under `unstarve run`, which records already, it does nothing.

    Create it before the loaders: only then can the report name them. `output` keeps the run file; further
    ranks write theirs beside it, as ``NAME.rank1.unstarve``. Nothing that fails here reaches the training.
    """

    def __init__(self, output: str | os.PathLike[str] | None) -> None:
        attach()
        self._output = output
        self._open: ExitStack | None = None
        self._recorded: Recording | None = None

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis of the last training; None before its end, and under `unstarve run`."""
        recorded = self._recorded
        return recorded.diagnosis if recorded is not None and recorded.done else None

    def begin(self) -> None:
        """Training begins. One that failed without a word of it is over now."""
        self._close(None)
        if LaunchSettings.from_environment() is not None:
            return
        try:
            block = ExitStack()
            self._recorded = block.enter_context(recording(self._run_file()))
            self._open = block
        except Exception as error:  # a defect of ours must not cost the user the training
            _log.warning("unstarve cannot record this training: %s", error)

    def end(self, failure: BaseException | None = None) -> bool:
        """Training has ended, with an exception or without; True if there is a new diagnosis."""
        return self._open is not None and self._close(failure)

    def end_at_exit(self, *, quiet: bool) -> None:
        """End what is still being recorded when the process ends; does not keep this object alive."""
        known = weakref.ref(self)

        def end() -> None:
            alive = known()
            # Of an interactive session, the last exception may be about something else.
            failure = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
            if alive is not None and alive.end(failure) and not quiet:
                alive.show()

        atexit.register(end)

    def show(self) -> None:
        """Print the report on standard error; of several ranks, the first one does."""
        if self.diagnosis is not None and not _rank():
            print_report(self.diagnosis, screen(stderr=True))

    def send(self, send: Send, step: int) -> None:
        """Pass the figures of the report on, under the names that `MonitoredDataLoader` uses."""
        if self.diagnosis is None or _rank():
            return
        try:
            send(figures(self.diagnosis), step=step)
        except Exception:  # a chart that fails must not stop a training
            _log.exception("unstarve: send failed; training continues")

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process records nothing that this one has begun."""
        return {**vars(self), "_open": None, "_recorded": None}

    def _close(self, failure: BaseException | None) -> bool:
        block, self._open = self._open, None
        if block is None:
            return False
        try:
            # The recording lets the training's own exception through; the framework raises it again.
            block.__exit__(
                type(failure) if failure else None, failure, getattr(failure, "__traceback__", None)
            )
        except BaseException as error:  # also Ctrl-C, if that is what ended the training
            if error is not failure and not isinstance(error, Exception):
                raise
            if error is not failure:
                _log.warning("unstarve recorded this training, but there is no report: %s", error)
        return self.diagnosis is not None

    def _run_file(self) -> Path | None:
        if self._output is None:
            return None
        path, rank = Path(self._output), _rank()
        return path.with_suffix(f".rank{rank}{path.suffix}") if rank else path


def _rank() -> int:
    known = group_rank()
    return (environment_rank() or 0) if known is None else known


def figures(diagnosis: Diagnosis) -> dict[str, float]:
    """The main figures of a report as a flat dictionary, without unknown values."""
    wait, step, headroom = diagnosis.wait_ms, diagnosis.step_ms, diagnosis.headroom
    known = {
        "data/wait_ms": None if wait is None else wait.mean,
        "data/wait_ms_p95": None if wait is None else wait.p95,
        "data/step_ms": None if step is None else step.mean,
        "data/wait_share": diagnosis.wait_share,
        "data/stall_share": diagnosis.stall_share,
        "data/throughput": diagnosis.throughput.samples_per_s,
        "data/steps_per_s": diagnosis.throughput.steps_per_s,
        "data/headroom": None if headroom is None else headroom.speedup,
    }
    return {name: value for name, value in known.items() if value is not None}
