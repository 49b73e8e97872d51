"""Check the loaders of an unmodified script while it begins to train, then end it.

A loader is checked before its first workers start, together with all others that exist by then. The batches
it delivers are noted as training receives them. When one loader has delivered enough of them, or a training
epoch is over, the remaining loaders are checked too and the script ends before it saves anything.

Imported while torch is not complete yet, so whatever needs all of torch is imported later.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import psutil
from torch.utils.data._utils import worker as stock_worker

from unstarve.checks.names import names_of
from unstarve.checks.parts import write_part
from unstarve.collect.end_training import end_training
from unstarve.collect.gradients import first_passes, watch_backward
from unstarve.collect.loader_origin import creation
from unstarve.marks import SITE
from unstarve.model.check_report import CheckReport
from unstarve.model.launch_settings import CheckSettings, LaunchSettings
from unstarve.stack_levels import uncounted
from unstarve.words import duration

if TYPE_CHECKING:
    from unstarve.checks.loader_check import LoaderCheck

_CHECKED = "_unstarve_checked"
"""Attribute of an iterator: the `_Epoch` that counts its batches."""

_MOST_LOADERS = 50
_LEAST_S = 1.0
"""For the batches of a loader when those before it have used up the time."""

_inside = threading.local()
"""``depth``: how many loaders this thread is starting or asking for a batch, one inside another."""


@dataclass
class _Epoch:
    """The batches of one iterator."""

    place: tuple[Any, ...]
    """File and line that created its loader."""
    gradients: bool
    """Whether it may be training: gradients were on when it began, or a backward pass was seen."""
    check: LoaderCheck | None = None
    began_s: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return "a loader" if self.check is None else self.check.names.loader


class ScriptChecks:
    """Makes replacements of torch's methods that check the loaders of this process."""

    def __init__(self, settings: LaunchSettings, check: CheckSettings) -> None:
        self._folder = Path(settings.parts)
        self._settings = check
        self._loaders: list[weakref.ref[Any]] = []
        self._checks: list[LoaderCheck] = []
        self._problems: list[str] = []
        self._attached_s = time.time()
        self._import_s = self._attached_s - psutil.Process().create_time()
        self._build_s: float | None = None
        self._stopped_at: str | None = None
        self._delivered: Counter[tuple[Any, ...]] = Counter()
        """Batches by the place that created their loader: some scripts create one for every batch."""
        self._over = False
        atexit.register(self._at_exit, os.getpid())
        ScriptChecks.of_this_process = self

    of_this_process: ClassVar[ScriptChecks | None] = None

    def check_these(self, checks: list[LoaderCheck]) -> None:
        """Check these loaders instead of all that exist, and leave the end to the caller."""
        self._over = True
        self._checks = checks
        self._quietly(self._conclude)

    def problem(self, sentence: str) -> None:
        """Note what could not be checked."""
        self._problems.append(sentence)

    # --- what stands in for torch's methods ---

    def creation(self, original: Callable[..., Any]) -> Callable[..., None]:
        """Return a replacement of ``DataLoader.__init__`` that notes every loader."""
        checks = self

        @uncounted
        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if not _depth():
                checks._quietly(lambda: checks._note(self))

        return __init__

    def beginning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of an iterator's ``__init__``: what needs no workers is checked before it."""
        checks = self

        @uncounted
        @functools.wraps(original)
        def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
            if _depth() or stock_worker.get_worker_info() is not None:
                return original(self, loader, *args, **kwargs)
            checks._end_if_over()
            self.__dict__[_CHECKED] = checks._begin(loader)
            _inside.depth = 1
            try:
                return original(self, loader, *args, **kwargs)
            finally:
                _inside.depth = 0

        return __init__

    def next_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of an iterator's ``__next__`` that counts batches."""
        checks = self

        @uncounted
        @functools.wraps(original)
        def __next__(self: Any) -> Any:
            epoch: _Epoch | None = self.__dict__.get(_CHECKED)
            if epoch is None or _depth():
                return original(self)
            checks._before_batch(epoch)
            _inside.depth, ended = 1, False
            try:
                batch = original(self)
            except StopIteration:
                ended = epoch.gradients and bool(checks._delivered[epoch.place])
                if not ended:
                    raise
            finally:
                _inside.depth = 0
            if ended:  # what follows a training epoch may save a checkpoint
                checks._end(epoch)
            checks._deliver(epoch, batch)
            return batch

        return __next__

    # --- what they do ---

    def _note(self, loader: Any) -> None:
        if stock_worker.get_worker_info() is not None or any(one() is loader for one in self._loaders):
            return
        made = creation(loader, loader.dataset)
        vars(loader).setdefault(SITE, tuple(made.origin()))
        if made.replaces is not None:
            self._loaders = [one for one in self._loaders if one() is not made.replaces]
        self._loaders.append(weakref.ref(loader))
        if self._build_s is None:
            self._build_s = time.time() - self._attached_s

    def _begin(self, loader: Any) -> _Epoch:
        """An epoch begins, and its workers do not exist yet."""
        import torch

        watch_backward()
        if not isinstance(loader, torch.utils.data.DataLoader):
            loader = getattr(loader, "_loader", loader)  # an engine of ours stands in front of it
        self._quietly(lambda: self._note(loader))
        epoch = _Epoch(vars(loader).get(SITE, ())[:2], torch.is_grad_enabled())
        self._quietly(lambda: self._check_all(loader))
        epoch.check = next((check for check in self._checks if check.loader is loader), None)
        if epoch.check is not None and not epoch.gradients:
            epoch.check.is_training = False
        self._quietly(self._write)
        return epoch

    def _check_all(self, first: Any = None) -> None:
        """Run the first pass on every loader that has not been checked, beginning with `first`."""
        from unstarve.checks.loader_check import LoaderCheck

        known = {id(check.loader) for check in self._checks}
        loaders = [first, *(reference() for reference in self._loaders)]
        for loader in loaders:
            if loader is not None and id(loader) not in known and len(known) < _MOST_LOADERS:
                known.add(id(loader))
                self._checks.append(LoaderCheck(loader, names_of(loader), complain=self.problem))

    def _before_batch(self, epoch: _Epoch) -> None:
        self._end_if_over()
        if first_passes() and self._delivered[epoch.place]:
            epoch.gradients = True
            if epoch.check is not None:
                epoch.check.is_training = True
        if self._delivered[epoch.place] >= self._settings.batches:
            self._end(epoch)

    def _deliver(self, epoch: _Epoch, batch: Any) -> None:
        self._delivered[epoch.place] += 1
        if epoch.check is not None:
            epoch.check.deliver(batch, time.monotonic() - epoch.began_s)

    def _end(self, epoch: _Epoch) -> None:
        """Check what is left, write the report and end the script."""
        self._stopped_at = epoch.name
        self._over = True
        self._quietly(self._check_all)
        self._quietly(self._conclude)
        end_training()

    def _conclude(self) -> None:
        until_s = time.monotonic() + self._settings.fetch_limit_s
        for check in self._checks:
            if not check.batches:
                self._fetch(check, until_s)
            check.conclude()
            self._write()
        self._time_samples()
        self._write()

    def _fetch(self, check: LoaderCheck, until_s: float) -> None:
        """Fetch a loader's first batches in a thread, which is left behind if the loader hangs."""

        def fetch() -> None:
            _inside.depth = 1  # these batches are our own
            check.fetch(self._settings.batches)

        thread = threading.Thread(target=fetch, name="unstarve-check", daemon=True)
        thread.start()
        thread.join(max(until_s - time.monotonic(), _LEAST_S))
        if thread.is_alive():
            limit = duration(self._settings.fetch_limit_s)
            check.problem = f"{check.names.loader} delivered too few batches within {limit}"

    def _time_samples(self) -> None:
        from unstarve.checks.slow_samples import time_samples

        timed: set[int] = set()
        for check in self._checks if self._settings.samples else ():
            if id(check.loader.dataset) in timed:
                continue
            timed.add(id(check.loader.dataset))
            try:
                check.samples = time_samples(check.loader.dataset, self._settings.samples)
            except Exception as error:  # the user's dataset may raise anything
                self._problems.append(f"the samples of {check.names.dataset} could not be timed: {error!r}")

    def _end_if_over(self) -> None:
        """End a script that has caught its end and goes on, before it saves anything."""
        if self._over:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # closed or replaced by anything
                    stream.flush()
            os._exit(0)

    def _at_exit(self, process: int) -> None:
        """The script has ended by itself, or failed: check the loaders that it never iterated, too."""
        if os.getpid() == process and not self._over and self._loaders:
            self._quietly(self._check_all)
            for check in self._checks:
                self._quietly(check.conclude)
            self._quietly(self._write)

    def _write(self) -> None:
        from unstarve.checks.objects.two_passes import every_check

        report = CheckReport(
            target="",
            findings=tuple(found for check in self._checks for found in check.findings()),
            loaders=tuple(check.checked() for check in self._checks),
            checks=len(every_check()),
            import_s=self._import_s,
            build_s=self._build_s,
            problems=tuple(self._problems),
            stopped_at=self._stopped_at,
        )
        write_part(self._folder, report)

    def _quietly(self, action: Callable[[], object]) -> object:
        """Run a piece of ours; if it fails, that is a sentence in the report."""
        depth = _depth()
        try:
            _inside.depth = depth + 1  # loaders that checks create or iterate are not the script's
            return action()
        except Exception as error:  # a defect of ours must not look like one of the script
            self._problems.append(f"unstarve could not check a loader: {error!r}")
            return None
        finally:
            _inside.depth = depth


def _depth() -> int:
    return getattr(_inside, "depth", 0)
