"""Record a block of code in this process, as `unstarve run` records a command: for notebooks."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from unstarve import __version__
from unstarve.api import diagnose
from unstarve.collect.recorder import end_recording
from unstarve.errors import UsageError
from unstarve.launch.command import switched_on
from unstarve.launch.command_errors import error_line
from unstarve.launch.hooks import attach
from unstarve.model import Diagnosis
from unstarve.model.launch_settings import LaunchSettings
from unstarve.record.fold import DEFAULT_MAX_BYTES, KeepSmall, segment_bytes
from unstarve.record.format import SUFFIX
from unstarve.record.run_file import claim, discard, finish, parts_folder
from unstarve.record.run_reader import read_run


class Recording:
    """A block of code that is being recorded; `diagnosis` is there once the block has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._diagnosis: Diagnosis | None = None

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis of the block; a notebook shows it as a cell's last expression."""
        if self._diagnosis is None:
            raise UsageError("the recording is still running; read its diagnosis after the with-block")
        return self._diagnosis

    @property
    def done(self) -> bool:
        """Whether there is a diagnosis."""
        return self._diagnosis is not None

    def conclude(self, exit_code: int, failure: str | None = None) -> None:
        """The block has ended; `failure` is the text of the exception that ended it."""
        # The run itself reports what could not be done.
        finish(self._path, exit_code, failure=None if failure is None else error_line(failure))
        self._diagnosis = diagnose(read_run(self._path))


@contextmanager
def recording(output: str | os.PathLike[str] | None = None) -> Iterator[Recording]:
    """Record every loader that is iterated in this process until the block ends::

        with unstarve.recording() as recorded:
            train(model, loader)
        print(recorded.diagnosis.verdict.headline)

    `output` names the run file to keep (`RunExistsError` if it exists); without it the run file is deleted
    when the block ends. Batches, their order and exceptions stay the same. Worker processes that were started
    before the block are not recorded. A recording inside another one, or inside `unstarve run`, raises
    `UsageError`.
    """
    if LaunchSettings.from_environment() is not None:
        raise UsageError("this process is already being recorded; only one recording can run at a time")
    folder = None if output is not None else Path(tempfile.mkdtemp(prefix="unstarve-"))
    path = Path(output) if output is not None else Path(folder or ".") / f"cell{SUFFIX}"
    try:
        attach()
        claim(path, [Path(sys.argv[0]).name or "python"], "run")
        recorded = Recording(path)
        settings = LaunchSettings(
            parts=str(parts_folder(path).absolute()),
            version=__version__,
            segment_bytes=segment_bytes(DEFAULT_MAX_BYTES),
        )
        try:
            with _environment(switched_on(settings)), KeepSmall(path, DEFAULT_MAX_BYTES):
                yield recorded
        except BaseException as error:  # also Ctrl-C: the recording ends with the block
            end_recording()
            with suppress(Exception):  # the user's own exception is the one to raise
                recorded.conclude(1, "".join(traceback.format_exception_only(error)))
            raise
        end_recording()
        recorded.conclude(exit_code=0)
    finally:
        if folder is not None:
            discard(path)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block, and restore them after it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
