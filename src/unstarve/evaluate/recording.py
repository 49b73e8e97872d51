"""Record this very process for a while: what `unstarve run` does to a command, for a notebook's cell."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from unstarve import __version__
from unstarve.api import diagnose
from unstarve.collect.recorder import end_recording
from unstarve.errors import UsageError
from unstarve.launch.attach import attach
from unstarve.launch.command import switched_on
from unstarve.model import Diagnosis
from unstarve.model.launch_settings import LaunchSettings
from unstarve.record.format import SUFFIX
from unstarve.record.run_file import claim, discard, finish, parts_folder
from unstarve.record.run_reader import read_run


class Recording:
    """A block of code that is or was recorded; `diagnosis` says what it means once the block has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._diagnosis: Diagnosis | None = None

    @property
    def diagnosis(self) -> Diagnosis:
        """What was found; a notebook shows it when it is a cell's last expression."""
        if self._diagnosis is None:
            raise UsageError("the recording has not ended yet; ask for its diagnosis after the with-block")
        return self._diagnosis

    @property
    def done(self) -> bool:
        """There is a diagnosis."""
        return self._diagnosis is not None

    def conclude(self, exit_code: int) -> None:
        """The block has ended."""
        finish(self._path, exit_code)  # what it could not do, the run itself tells
        self._diagnosis = diagnose(read_run(self._path))


@contextmanager
def recording(output: str | os.PathLike[str] | None = None) -> Iterator[Recording]:
    """Record every loader that is iterated in this process until the block ends::

        with unstarve.recording() as recorded:
            train(model, loader)
        print(recorded.diagnosis.verdict.headline)

    `output` keeps the run file (a name that is taken is a `RunExistsError`); otherwise it is gone when the
    block ends. Batches, their order and exceptions are as without it. Worker processes that were started
    before are not looked into. One recording at a time, and none inside `unstarve run`: a `UsageError`.
    """
    if LaunchSettings.from_environment() is not None:
        raise UsageError("this process is being recorded already; only one recording at a time is possible")
    folder = None if output is not None else Path(tempfile.mkdtemp(prefix="unstarve-"))
    path = Path(output) if output is not None else Path(folder or ".") / f"cell{SUFFIX}"
    try:
        attach()
        claim(path, [Path(sys.argv[0]).name or "python"], "run")
        recorded = Recording(path)
        settings = LaunchSettings(parts=str(parts_folder(path).absolute()), version=__version__)
        try:
            with _environment(switched_on(settings)):
                yield recorded
        except BaseException:  # also Ctrl-C: the recording ends with the block
            end_recording()
            with suppress(Exception):  # the user's own exception is the one to be seen
                recorded.conclude(exit_code=1)
            raise
        end_recording()
        recorded.conclude(exit_code=0)
    finally:
        if folder is not None:
            discard(path)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set them, and put back what was there."""
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
