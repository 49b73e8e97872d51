"""Accelerate: a tracker that records from ``init_trackers`` to ``end_training`` and reports on it."""

from __future__ import annotations

import os
from typing import Any

from unstarve.errors import MissingExtraError
from unstarve.integrations.recorded_training import RecordedTraining, Send
from unstarve.model import Diagnosis

try:
    from accelerate.tracking import GeneralTracker
except ImportError as error:
    raise MissingExtraError(f"unstarve.integrations.accelerate needs Accelerate: {error}") from error


class UnstarveTracker(GeneralTracker):
    """``Accelerator(log_with=[UnstarveTracker()])``: ``end_training`` prints what training waited for.

    The verdict, the advice and the gains are those of ``unstarve run``, under which this tracker does
    nothing. `output` names a run file to keep. The figures of the report go to `send` as ``send(metrics,
    step=…)``: ``wandb.log`` can be used directly. `diagnosis` is the report as an object.

    Accelerate does not tell trackers that training has failed: the report of a failed training comes when
    the process ends.
    """

    name = "unstarve"
    requires_logging_directory = False
    main_process_only = False  # each rank records itself

    def __init__(
        self,
        output: str | os.PathLike[str] | None = None,
        *,
        send: Send | None = None,
        quiet: bool = False,
    ) -> None:
        super().__init__()
        self._training = RecordedTraining(output)
        self._send = send
        self._quiet = quiet
        self._step = 0
        self._training.end_at_exit(quiet=quiet)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis of the last training; None before its end, and under `unstarve run`."""
        return self._training.diagnosis

    @property
    def tracker(self) -> Diagnosis | None:
        """The same, for ``accelerator.get_tracker("unstarve", unwrap=True)``."""
        return self.diagnosis

    def start(self) -> None:
        """``init_trackers`` was called."""
        self._training.begin()

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Take nothing but the number of the step, under which the figures are sent."""
        self._step = self._step if step is None else step

    def finish(self) -> None:
        """``end_training`` was called."""
        if not self._training.end():
            return
        if not self._quiet:
            self._training.show()
        if self._send is not None:
            self._training.send(self._send, self._step)
