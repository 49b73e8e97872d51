"""Hugging Face: a callback that records ``trainer.train()`` and reports on it."""

from __future__ import annotations

import os
from typing import Any

from unstarve.errors import MissingExtraError
from unstarve.integrations.recorded_training import RecordedTraining, Send
from unstarve.model import Diagnosis

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtraError(f"unstarve.integrations.transformers needs transformers: {error}") from error


class UnstarveCallback(TrainerCallback):
    """``Trainer(callbacks=[UnstarveCallback()])``: at the end of ``train``, print what training waited for.

    The verdict, the advice and the gains are those of ``unstarve run``, under which this callback does
    nothing. `output` names a run file to keep. The figures of the report go to `send` as ``send(metrics,
    step=…)``: ``wandb.log`` fits. `diagnosis` is the report as an object.

    The Trainer does not tell callbacks that training has failed: the report of a failed training comes when
    the process ends.
    """

    def __init__(
        self,
        output: str | os.PathLike[str] | None = None,
        *,
        send: Send | None = None,
        quiet: bool = False,
    ) -> None:
        self._training = RecordedTraining(output)
        self._send = send
        self._quiet = quiet
        self._training.end_at_exit(quiet=quiet)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis of the last ``train``; None before its end, and under `unstarve run`."""
        return self._training.diagnosis

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before the first batch."""
        self._training.begin()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After the last step."""
        if self._training.end() and not self._quiet:
            self._training.show()
        if self._send is not None:
            self._training.send(self._send, state.global_step)
