"""Puts the `Session` of `unstarve tune` between a script and its loaders."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader as stock
from torch.utils.data._utils import worker as stock_worker

from unstarve.collect.ending import end_training
from unstarve.collect.place import place_here
from unstarve.collect.settings import LaunchSettings, TuneSettings
from unstarve.collect.site import short
from unstarve.collect.tuning import Known, Ranks, Session, write_news
from unstarve.model.tune_run import TunedProcess

if TYPE_CHECKING:
    from unstarve.fixes.autotune.tuner import Tuner

_KNOWN = "_unstarve_known"
_TUNER = "_unstarve_tuner"

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

    _wrap_creation(session)
    _wrap_iteration(session)
    atexit.register(tell_in_the_end)
    # A process forked by multiprocessing leaves without its exit handlers, but not without these.
    Finalize(None, tell_in_the_end, exitpriority=0)


def _wrap_creation(session: Session) -> None:
    original: Any = stock.DataLoader.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _KNOWN not in self.__dict__ and stock_worker.get_worker_info() is None:
            kind = type(self).__name__
            place = place_here(kind)
            self.__dict__[_KNOWN] = session.made(self, kind, place, _length(self))

    stock.DataLoader.__init__ = __init__  # type: ignore[method-assign]  # for as long as the process lives


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:  # an endless stream, or a length of the user's own that cannot be told yet
        return None


def _wrap_iteration(session: Session) -> None:
    original: Any = stock.DataLoader.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        known = self.__dict__.get(_KNOWN)
        if known is None or stock_worker.get_worker_info() is not None or _depth() > 0:
            return original(self)
        import torch

        wanted = session.begin(known, gradients=torch.is_grad_enabled())
        tuner = None
        try:
            tuner = _tuner(self, session, known) if wanted else None
        except Exception as error:  # a defect of ours must not cost the user the training
            session.leave_alone(known, f"it cannot be tuned: {error!r}")
        _inside.depth = 1
        try:
            iterator = original(self) if tuner is None else tuner.iterate(self)
        finally:
            _inside.depth = 0
        return Followed(iterator, session, known)

    stock.DataLoader.__iter__ = __iter__  # type: ignore[method-assign]  # for as long as the process lives


def _tuner(loader: Any, session: Session, known: Known) -> Tuner | None:
    """What tunes the loader, made here the first time; None when it cannot be tuned."""
    from unstarve.fixes.autotune.loader import tuner_for

    tuner: Tuner | None = loader.__dict__.get(_TUNER)
    if tuner is None:
        asked = {
            "budget_s": session.settings.budget_s,
            "budget_steps": session.settings.budget_steps,
            "on_change": lambda tuning: session.news(known, tuning),
        }
        tuner = tuner_for(loader, asked)
        if known.place is not None:
            tuner.where = f"{short(known.place.file)}:{known.place.line}"
        if tuner.why_not is None:
            loader.__dict__[_TUNER] = tuner
            known.tuning = tuner.tuning
    if tuner.why_not is not None:
        session.leave_alone(known, tuner.why_not)
        return None
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
        try:
            batch = next(self._iterator)
        finally:
            _inside.depth -= 1
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
