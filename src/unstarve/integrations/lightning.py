"""Lightning: a callback and a profiler that record ``trainer.fit`` and report on it.

For ``lightning`` and for ``pytorch_lightning``, whichever the training has imported.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from rich.console import Console

from unstarve.errors import MissingExtraError
from unstarve.integrations.recorded_training import RecordedTraining, Send
from unstarve.model import Diagnosis
from unstarve.present.terminal.report_card import print_report

try:
    if "lightning" not in sys.modules and "pytorch_lightning" in sys.modules:
        from pytorch_lightning import Callback
        from pytorch_lightning.profilers import SimpleProfiler
    else:
        from lightning.pytorch import Callback
        from lightning.pytorch.profilers import SimpleProfiler
except ImportError as error:
    raise MissingExtraError(f"unstarve.integrations.lightning needs Lightning: {error}") from error

_FIT = "fit"
_WIDTH = 100


class UnstarveCallback(Callback):
    """``Trainer(callbacks=[UnstarveCallback()])``: at the end of ``fit``, print what training waited for.

    The verdict, the advice and the gains are those of ``unstarve run``, under which this callback does
    nothing. `output` names a run file to keep. The figures of the report go to the trainer's loggers, and to
    `send` as ``send(metrics, step=…)``. `diagnosis` is the report as an object.
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

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis of the last ``fit``; None before its end, and under `unstarve run`."""
        return self._training.diagnosis

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before the loaders are created."""
        if stage == _FIT:
            self._training.begin()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """After the last validation; loggers still take figures."""
        if not self._training.end():
            return
        if not self._quiet:
            self._training.show()
        for logger in trainer.loggers:
            self._training.send(logger.log_metrics, trainer.global_step)
        if self._send is not None:
            self._training.send(self._send, trainer.global_step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Training failed, or was interrupted."""
        if self._training.end(exception) and not self._quiet:
            self._training.show()


class UnstarveProfiler(SimpleProfiler):
    """``Trainer(profiler=UnstarveProfiler())``: unstarve's report above Lightning's table of actions.

    Takes the arguments of ``SimpleProfiler``: with `dirpath` and `filename` the report goes to a file.
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        extended: bool = True,
    ) -> None:
        super().__init__(dirpath, filename, extended)
        self._training = RecordedTraining(None)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis of the last ``fit``; None before its end, and under `unstarve run`."""
        return self._training.diagnosis

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Before the loaders are created."""
        super().setup(stage, local_rank, log_dir)
        if stage == _FIT:
            self._training.begin()

    def summary(self) -> str:
        """The report and the table."""
        self._training.end()
        table = str(super().summary())
        if self.diagnosis is None:
            return table
        text = io.StringIO()
        print_report(self.diagnosis, Console(file=text, width=_WIDTH, markup=False, emoji=False))
        return f"\n{text.getvalue()}\n{table}"

    def teardown(self, stage: str | None) -> None:
        """Also called when training fails, and when the profiler is deleted."""
        super().teardown(stage)
        if "_training" in vars(self):
            self._training.end()
