"""`unstarve tune`: connects a `TuningSession` with the loaders of an unmodified script."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data._utils import worker as stock_worker

from unstarve.collect.call_site import short
from unstarve.collect.end_training import end_training
from unstarve.collect.loader_origin import creation
from unstarve.collect.torch_iterator import epoch_length
from unstarve.marks import SITE
from unstarve.model.launch_settings import LaunchSettings, TuneSettings
from unstarve.model.tune_run import TunedProcess
from unstarve.model.tuning import LoaderSettings
from unstarve.stack_levels import uncounted
from unstarve.steer.saved_settings import place_of
from unstarve.steer.tuning_session import Ranks, TrackedLoader, TuningSession, write_progress

if TYPE_CHECKING:
    from unstarve.tune.tuner import Tuner

_STEPS_ON_SEVERAL_MACHINES = 1000
"""Default step budget if ranks on several machines train together."""

_inside = threading.local()
"""``depth``: how many loaders this thread is asking for an iterator or a batch, one inside another."""


def start_tuning(settings: LaunchSettings, tune: TuneSettings) -> ScriptTuning:
    """Begin a session for this process, which publishes its progress in `settings.parts`."""
    folder, process = Path(settings.parts), os.getpid()
    world = _number("WORLD_SIZE", 1)
    ranks = Ranks(folder, one_machine=_number("LOCAL_WORLD_SIZE", world) == world) if world > 1 else None
    if ranks is not None and not ranks.one_machine and tune.budget_steps is None:
        tune = replace(tune, budget_steps=_STEPS_ON_SEVERAL_MACHINES)

    def publish(progress: TunedProcess) -> None:
        try:
            if os.getpid() == process:  # otherwise this is a forked child, and its parent publishes
                write_progress(folder, progress)
        except OSError as error:  # training goes on
            print(f"unstarve: cannot write the progress of tuning: {error}", file=sys.stderr)

    # By local rank: each machine has its own launcher and its own first rank.
    session = TuningSession(tune, publish, process, _number("LOCAL_RANK", _number("RANK", 0)), ranks)
    session.folder = folder

    def publish_at_exit() -> None:
        if folder.is_dir() and any(one.epochs for one in session.loaders):
            for one in session.loaders:
                if one.tuner is not None and not one.is_settled and os.getpid() == process:
                    one.tuner.end_training()
            publish(session.snapshot())

    atexit.register(publish_at_exit)
    # A process forked by multiprocessing skips its exit handlers, but not these.
    Finalize(None, publish_at_exit, exitpriority=0)
    return ScriptTuning(session)


@dataclass
class _TuningEntry:
    """What belongs to one loader; kept apart from it, because scripts may pickle and copy their loaders."""

    tracked: TrackedLoader
    tuner: Tuner | None = None


class _Entries:
    """Entries by loader, for as long as the loader lives."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], _TuningEntry]] = {}

    def add(self, loader: Any, tracked: TrackedLoader) -> None:
        key = id(loader)
        self._entries[key] = (
            weakref.ref(loader, lambda _: self._entries.pop(key, None)),
            _TuningEntry(tracked),
        )

    def of(self, loader: Any) -> _TuningEntry | None:
        found = self._entries.get(id(loader))
        return None if found is None or found[0]() is not loader else found[1]


class ScriptTuning:
    """Makes replacements of ``DataLoader.__init__`` and ``__iter__`` that tune the loaders of a script."""

    def __init__(self, session: TuningSession) -> None:
        self._session = session
        self._entries = _Entries()

    def creation(self, original: Callable[..., Any]) -> Callable[..., None]:
        """Return a replacement of ``DataLoader.__init__`` that adds each loader to the session."""
        entries, session = self._entries, self._session

        @uncounted
        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            with contextlib.suppress(Exception):  # a defect of ours must not end the user's training
                if entries.of(self) is None and stock_worker.get_worker_info() is None:
                    entries.add(self, tracked(self))

        def tracked(loader: Any) -> TrackedLoader:
            if session.settings.images:
                from unstarve.fixes.datasets.images.gpu_decoder import ask_for_queues  # needs all of torch

                ask_for_queues()
            made, kind = creation(loader, loader.dataset), type(loader).__name__
            vars(loader).setdefault(SITE, tuple(made.origin()))
            before = None if made.replaces is None else entries.of(made.replaces)
            if before is not None and not before.tracked.epochs:
                return session.replace(before.tracked, loader, epoch_length(loader))
            place = None if made.frame is None else place_of(made, kind, loader.dataset)
            return session.add(loader, kind, place, epoch_length(loader), shuffles=shuffles(loader))

        return __init__

    def iteration(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of ``DataLoader.__iter__`` that tunes loaders, or only counts their steps."""
        entries, session = self._entries, self._session

        @uncounted
        @functools.wraps(original)
        def __iter__(self: Any) -> Any:
            entry = entries.of(self)
            if entry is None or stock_worker.get_worker_info() is not None or _depth() > 0:
                return original(self)
            tuner = None
            try:
                tuner = _tuner(self, session, entry)
            except Exception as error:  # a defect of ours must not end the user's training
                session.leave_alone(entry.tracked, f"it cannot be tuned: {error!r}")
            _inside.depth = 1
            try:
                iterator = original(self) if tuner is None else tuner.iterate(self)
            finally:
                _inside.depth = 0
            return TrackedIterator(iterator, session, entry.tracked)

        return __iter__


def _tuner(loader: Any, session: TuningSession, entry: _TuningEntry) -> Tuner | None:
    """An epoch begins: return the loader's tuner, or None if it is left alone."""
    import torch

    tracked = entry.tracked = session.predecessor(entry.tracked)
    gradients = torch.is_grad_enabled()
    if not session.begin_epoch(tracked, gradients=gradients, optimizer=not gradients and _has_optimizer()):
        entry.tuner = None  # its workers stop, if a training loader has taken over
        return None
    if entry.tuner is None:
        entry.tuner = _inherited_tuner(loader, tracked) or _new_tuner(loader, session, tracked)
        if not loader.persistent_workers:  # otherwise it keeps workers, which should stop with their loader
            tracked.tuner = entry.tuner
    if entry.tuner.why_not is not None:
        session.leave_alone(tracked, entry.tuner.why_not)
        return None
    tracked.tuning = entry.tuner.tuning
    return entry.tuner


def shuffles(loader: Any) -> bool:
    """Whether the loader draws its order with one of torch's own random samplers."""
    from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler
    from torch.utils.data.distributed import DistributedSampler

    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    return isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)) or (
        isinstance(sampler, DistributedSampler) and bool(sampler.shuffle)
    )


def _has_optimizer() -> bool:
    """Whether the script has created an optimizer: torch keeps no list of them."""
    from torch.optim import Optimizer

    # By type: `isinstance` would run the code of objects that stand in for others.
    return any(issubclass(type(one), Optimizer) for one in gc.get_objects())


def _inherited_tuner(loader: Any, tracked: TrackedLoader) -> Tuner | None:
    """The tuner of an earlier loader like this one, created at the same place."""
    tuner: Tuner | None = tracked.tuner
    own = LoaderSettings(loader.num_workers, loader.prefetch_factor)
    return tuner if tuner is not None and tuner.own == own and not loader.persistent_workers else None


def _new_tuner(loader: Any, session: TuningSession, tracked: TrackedLoader) -> Tuner:
    # It needs all of torch, which is not there yet when torch's loader module is imported.
    from unstarve.tune.autotune import tuner_for

    arguments = {
        "budget_s": session.settings.budget_s,
        "budget_steps": session.settings.budget_steps,
        "images": session.settings.images,
        "parts": True,
        "past": _past(session, tracked),
        "on_change": lambda tuning: session.update(tracked, tuning),
    }
    tuner = tuner_for(loader, arguments)
    if tracked.place is not None:
        tuner.where = f"{short(tracked.place.file)}:{tracked.place.line}"
    return tuner


def _past(session: TuningSession, tracked: TrackedLoader) -> Any:
    """What earlier runs of this command measured of the loader, kept in the folder of its progress."""
    from unstarve.tune.live_search import Past  # needs all of torch, as above

    folder = session.folder
    if folder is None:
        return None
    path = folder / f"past-{session.rank}-{tracked.number}.pickle"
    past = Past(*pickle.loads(path.read_bytes())) if path.exists() else Past()  # our own file
    past.save = lambda now: path.write_bytes(
        pickle.dumps((now.windows, now.facts, now.memory, now.began_cache))
    )
    return past


class TrackedIterator:
    """An epoch of a loader that counts its steps; everything else passes through to its iterator."""

    def __init__(self, iterator: Iterator[Any], session: TuningSession, tracked: TrackedLoader) -> None:
        self._iterator = iterator
        self._session = session
        self._tracked = tracked

    def __iter__(self) -> TrackedIterator:
        return self

    @uncounted
    def __next__(self) -> Any:
        if _depth() == 0 and self._session.is_over(self._tracked):
            self._session.publish(self._session.snapshot())
            end_training()
        _inside.depth = _depth() + 1
        asked_s = time.monotonic()
        try:
            batch = next(self._iterator)
        finally:
            _inside.depth -= 1
        self._tracked.wait_s += time.monotonic() - asked_s
        self._tracked.steps += 1
        return batch

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]  # len() should raise the iterator's own TypeError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_iterator":
            raise AttributeError(name)  # copy and pickle look before the attributes are set
        return getattr(self._iterator, name)


def _depth() -> int:
    return getattr(_inside, "depth", 0)


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else default
