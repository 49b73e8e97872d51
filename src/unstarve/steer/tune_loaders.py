"""Puts the `Session` of `unstarve tune` between a script and its loaders."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader as stock
from torch.utils.data._utils import worker as stock_worker

from unstarve.collect.call_site import short
from unstarve.collect.end_training import end_training
from unstarve.model.launch_settings import LaunchSettings, TuneSettings
from unstarve.model.tune_run import TunedProcess
from unstarve.model.tuned import LoaderSettings
from unstarve.steer.loader_place import place_here
from unstarve.steer.tuning_session import Known, Ranks, Session, write_news

if TYPE_CHECKING:
    from unstarve.tune.tuner import Tuner


_MACHINES_STEPS = 1000
"""Where ranks on several machines train together, they end after so many steps unless told otherwise."""

_inside = threading.local()
"""``depth``: iterators and batches that this thread is asking for, one for the sake of another."""


def tune_loaders(settings: LaunchSettings, tune: TuneSettings) -> None:
    """Let the training loaders of this process tune themselves from now on."""
    folder, process = Path(settings.parts), os.getpid()
    world = _number("WORLD_SIZE", 1)
    ranks = Ranks(folder, alone=_number("LOCAL_WORLD_SIZE", world) == world) if world > 1 else None
    if ranks is not None and not ranks.alone and tune.budget_steps is None:
        tune = replace(tune, budget_steps=_MACHINES_STEPS)

    def tell(news: TunedProcess) -> None:
        try:
            if os.getpid() == process:  # else a forked child, that its parent tells about
                write_news(folder, news)
        except OSError as error:  # training goes on
            print(f"unstarve: cannot tell how tuning goes: {error}", file=sys.stderr)

    # By the number on this machine: each has a launcher of its own, and a first rank.
    session = Session(tune, tell, process, _number("LOCAL_RANK", _number("RANK", 0)), ranks)

    def tell_in_the_end() -> None:
        if folder.is_dir() and any(one.epochs for one in session.known):
            tell(session.now())

    loaders = _Loaders()
    _wrap_creation(session, loaders)
    _wrap_iteration(session, loaders)
    atexit.register(tell_in_the_end)
    # A process forked by multiprocessing leaves without its exit handlers, but not without these.
    Finalize(None, tell_in_the_end, exitpriority=0)


@dataclass
class _Held:
    """What belongs to one loader; kept beside it, as scripts may pickle and copy their loaders."""

    known: Known
    tuner: Tuner | None = None


class _Loaders:
    """By loader, for as long as it lives."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], _Held]] = {}

    def add(self, loader: Any, known: Known) -> None:
        key = id(loader)
        self._held[key] = weakref.ref(loader, lambda _: self._held.pop(key, None)), _Held(known)

    def of(self, loader: Any) -> _Held | None:
        found = self._held.get(id(loader))
        return None if found is None or found[0]() is not loader else found[1]


def _wrap_creation(session: Session, loaders: _Loaders) -> None:
    original: Any = stock.DataLoader.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        with contextlib.suppress(Exception):  # a defect of ours must not cost the user the training
            if loaders.of(self) is None and stock_worker.get_worker_info() is None:
                kind = type(self).__name__
                loaders.add(self, session.made(self, kind, place_here(kind), _length(self)))

    stock.DataLoader.__init__ = __init__  # type: ignore[method-assign]  # for as long as the process lives


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:  # an endless stream, or a length of the user's own that cannot be told yet
        return None


def _wrap_iteration(session: Session, loaders: _Loaders) -> None:
    original: Any = stock.DataLoader.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        held = loaders.of(self)
        if held is None or stock_worker.get_worker_info() is not None or _depth() > 0:
            return original(self)
        tuner = None
        try:
            tuner = _tuner(self, session, held)
        except Exception as error:  # a defect of ours must not cost the user the training
            session.leave_alone(held.known, f"it cannot be tuned: {error!r}")
        _inside.depth = 1
        try:
            iterator = original(self) if tuner is None else tuner.iterate(self)
        finally:
            _inside.depth = 0
        return Followed(iterator, session, held.known)

    stock.DataLoader.__iter__ = __iter__  # type: ignore[method-assign]  # for as long as the process lives


def _tuner(loader: Any, session: Session, held: _Held) -> Tuner | None:
    """An epoch begins: what tunes the loader in it; None where it is left alone."""
    import torch

    known = held.known = session.heir(held.known)
    if not session.begin(known, gradients=torch.is_grad_enabled()):
        return None
    if held.tuner is None:
        held.tuner = _inherited(loader, known) or _new_tuner(loader, session, known)
        if not loader.persistent_workers:  # else it has workers, which are to go with their loader
            known.tuner = held.tuner
    if held.tuner.why_not is not None:
        session.leave_alone(known, held.tuner.why_not)
        return None
    known.tuning = held.tuner.tuning
    return held.tuner


def _inherited(loader: Any, known: Known) -> Tuner | None:
    """What has tuned a loader like this one, that was made at the same place before."""
    tuner: Tuner | None = known.tuner
    own = LoaderSettings(loader.num_workers, loader.prefetch_factor)
    return tuner if tuner is not None and tuner.own == own and not loader.persistent_workers else None


def _new_tuner(loader: Any, session: Session, known: Known) -> Tuner:
    from unstarve.tune.loader import tuner_for

    asked = {
        "budget_s": session.settings.budget_s,
        "budget_steps": session.settings.budget_steps,
        "images": session.settings.images,
        "on_change": lambda tuning: session.news(known, tuning),
    }
    tuner = tuner_for(loader, asked)
    if known.place is not None:
        tuner.where = f"{short(known.place.file)}:{known.place.line}"
    return tuner


class Followed:
    """An epoch of a loader whose steps are counted; anything else passes through to its iterator."""

    def __init__(self, iterator: Iterator[Any], session: Session, known: Known) -> None:
        self._iterator = iterator
        self._session = session
        self._known = known

    def __iter__(self) -> Followed:
        return self

    def __next__(self) -> Any:
        if _depth() == 0 and self._session.is_over(self._known):
            self._session.tell(self._session.now())
            end_training()
        _inside.depth = _depth() + 1
        asked_s = time.monotonic()
        try:
            batch = next(self._iterator)
        finally:
            _inside.depth -= 1
        self._known.wait_s += time.monotonic() - asked_s
        self._known.steps += 1
        return batch

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]  # a TypeError of its own is what len() should give

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_iterator":
            raise AttributeError(name)  # copy and pickle probe an object before it has its attributes
        return getattr(self._iterator, name)


def _depth() -> int:
    return getattr(_inside, "depth", 0)


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else default
