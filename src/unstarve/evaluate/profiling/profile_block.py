"""`unstarve.profile`: torch.profiler over a few steps of a loop, read as a report reads it."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import profiler

from unstarve.collect.memory_snapshot import MemorySnapshot
from unstarve.collect.quiet_torch import QuietTorch
from unstarve.errors import UsageError
from unstarve.importers.summarize import profile_of
from unstarve.importers.torch_trace import read_torch_trace
from unstarve.model.profile import Profile


class profile:  # used like torch.profiler.profile
    """Profile a few steps of a training loop::

        with unstarve.profile() as profiled:
            for batch in loader:
                train(batch)
                profiled.step()
        print(profiled)

    The first `wait` steps are skipped, `warmup` steps run under the profiler without being counted, and
    `active` steps are profiled, `repeat` times; the last window counts. `stacks` records the Python stack of
    every operator. `trace` names a file for the Chrome trace, compressed if it ends in ``.gz``,
    `memory_snapshot` one for PyTorch's memory viewer, over the whole block; it needs CUDA.

    `result` holds the phases of the step, operators, kernels, copies and how busy each device was.
    """

    def __init__(
        self,
        *,
        wait: int = 5,
        warmup: int = 1,
        active: int = 3,
        repeat: int = 1,
        stacks: bool = False,
        trace: str | os.PathLike[str] | None = None,
        memory_snapshot: str | os.PathLike[str] | None = None,
    ) -> None:
        for name, value, least in (
            ("wait", wait, 0),
            ("warmup", warmup, 0),
            ("active", active, 1),
            ("repeat", repeat, 1),
        ):
            if value < least:
                raise UsageError(f"{name} must be >= {least}, got {value}")
        self._needed = wait + warmup + active
        self._steps = 0
        self._kept = None if trace is None else Path(trace)
        self._folder = ""
        self._quiet = QuietTorch()
        self._snapshot = None if memory_snapshot is None else MemorySnapshot(memory_snapshot)
        self._result: Profile | None = None
        self._profiler: Any = profiler.profile(
            schedule=profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat),
            on_trace_ready=self._write,
            record_shapes=True,
            profile_memory=True,
            with_stack=stacks,
        )

    def __enter__(self) -> profile:
        if self._snapshot is not None:
            if not torch.cuda.is_available():
                raise UsageError("memory_snapshot needs CUDA")
            torch.cuda.init()  # type: ignore[no-untyped-call]  # torch does not type it
            self._snapshot.begin()
        self._folder = tempfile.mkdtemp(prefix="unstarve-")
        self._quiet.begin()
        self._profiler.start()
        return self

    def step(self) -> None:
        """A step of the loop is complete."""
        self._steps += 1
        self._profiler.step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self._profiler.stop()
        finally:
            self._quiet.end()
        if self._snapshot is not None:
            self._snapshot.end()
        try:
            written = Path(self._folder, "trace.json")
            if written.exists():
                self._result = profile_of(read_torch_trace(written, lambda done: None))
                if self._kept is not None:
                    self._keep(written)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def result(self) -> Profile:
        """What was profiled. Raises UsageError before the block has ended, or if it had too few steps."""
        if self._result is None:
            raise UsageError(
                f"nothing was profiled: the window needs {self._needed} calls of step(), "
                f"there were {self._steps}"
            )
        return self._result

    def __str__(self) -> str:
        from rich.console import Console

        from unstarve.present.terminal.profile_tables import profile_tables

        console = Console(file=io.StringIO(), width=100)
        tables = profile_tables(self.result)
        if tables is not None:
            console.print(tables)
        return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]  # it is a StringIO

    def _write(self, finished: Any) -> None:
        finished.export_chrome_trace(str(Path(self._folder, "trace.json")))

    def _keep(self, written: Path) -> None:
        assert self._kept is not None
        if self._kept.suffix == ".gz":
            import gzip

            with written.open("rb") as source, gzip.open(self._kept, "wb") as packed:
                shutil.copyfileobj(source, packed)
        else:
            shutil.copyfile(written, self._kept)
