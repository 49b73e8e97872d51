"""`unstarve run --profile`: torch.profiler over a few steps of an unmodified script.

Steps are counted where the training loop asks its loader for a batch. Outside of its window nothing runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from unstarve.collect.memory_snapshot import NEEDS_CUDA, MemorySnapshot
from unstarve.collect.quiet_torch import QuietTorch
from unstarve.model.launch_settings import ProfileSettings
from unstarve.words import size

TRACE_SUFFIX = ".trace.json"
FEW_STEPS = 10
"""Windows of more steps are preceded by one step alone, whose trace tells how large theirs will be."""
LARGE_BYTES = 200_000_000
"""Traces from this size on are announced."""
MOST_BYTES = 500_000_000
"""Of a trace before it is compressed. To read one of this size takes about half a minute."""


class ProfilerWindow:
    """Starts, steps and stops the profiler. Called in the training thread only."""

    def __init__(self, settings: ProfileSettings, folder: Path, lose: Callable[[str], None]) -> None:
        self._settings = settings
        self._folder = folder
        self._lose = lose
        self._asked: Counter[int] = Counter()
        self._loader: int | None = None
        """The loader whose steps are profiled: the first that gets as far as the window."""
        self._profiler: Any = None
        self._quiet = QuietTorch()
        self._snapshot = (
            None if settings.memory_snapshot is None else MemorySnapshot(settings.memory_snapshot)
        )
        self._steps = 0
        """Since the profiler was started."""
        self._active = settings.active
        self._probes = settings.active > FEW_STEPS
        """Whether the profiler that runs, or the next one, is the step alone."""
        self._windows = 0
        self.done = False

    def before_batch(self, loader: int) -> None:
        """A step of this loader is complete, and the next batch is asked for."""
        if self.done or not torch.is_grad_enabled() or self._loader not in (None, loader):
            return  # validation is not profiled
        if self._profiler is not None:
            self._step()
            return
        self._asked[loader] += 1
        if self._asked[loader] > self._settings.wait:
            self._loader = loader
            self._asked.clear()
            self._start()

    def close(self) -> None:
        """Training ends: write what the window has so far."""
        self._probes = False  # what it has is all there will be
        if self._profiler is not None:
            self._stop()
        elif not self.done and not self._windows:
            self._lose(f"nothing was profiled: training ended before step {self._settings.wait + 1}")
        self.done = True

    def _start(self) -> None:
        if torch._C._autograd._profiler_enabled():
            self._lose("nothing was profiled: the script runs torch.profiler itself")
            self.done = True
            return
        from torch import profiler  # imports much, and only where it is asked for

        settings = self._settings
        active = 1 if self._probes else self._active
        self._profiler = profiler.profile(
            schedule=profiler.schedule(wait=0, warmup=settings.warmup, active=active, repeat=1),
            on_trace_ready=self._write,
            record_shapes=True,
            profile_memory=True,
            with_stack=settings.stacks,
        )
        self._steps = 0
        self._quiet.begin()
        self._profiler.start()
        if self._snapshot is not None and not self._probes and not self._snapshot.begin():
            self._lose(NEEDS_CUDA)
            self._snapshot = None

    def give_up(self) -> None:
        """Profiling failed: leave torch as it was."""
        self.done = True
        self._quiet.end()

    def _step(self) -> None:
        self._steps += 1
        self._profiler.step()
        if self._steps >= self._settings.warmup + (1 if self._probes else self._active):
            self._stop()

    def _stop(self) -> None:
        finished, self._profiler = self._profiler, None
        try:
            finished.stop()
        finally:
            self._quiet.end()
        if self._probes:
            self._probes = False
            self._start()
            return
        if self._snapshot is not None:
            self._snapshot.end()
            self._snapshot = None  # of the first window, as the trace
        self._windows += 1
        self.done = self._windows >= self._settings.repeat

    def _write(self, finished: Any) -> None:
        trace = self._folder / f"{os.getpid()}-{time.time_ns()}{TRACE_SUFFIX}"
        finished.export_chrome_trace(str(trace))
        if self._probes:
            self._fit(trace.stat().st_size)
            trace.unlink()

    def _fit(self, step_bytes: int) -> None:
        """Warn of a large window, and shorten one that is too large."""
        asked = self._settings.active
        self._active = max(1, min(asked, MOST_BYTES // max(step_bytes, 1)))
        if asked * step_bytes >= LARGE_BYTES:
            large = f"a profile of {asked} steps writes about {size(asked * step_bytes)}"
            cut = "" if self._active == asked else f"; it ends after {self._active} of them"
            sys.stderr.write(f"unstarve: {large} before compression{cut}\n")
        if self._active < asked:
            self._lose(
                f"the profile has {self._active} of {asked} steps: all of them would have written about "
                f"{size(asked * step_bytes)}"
            )
