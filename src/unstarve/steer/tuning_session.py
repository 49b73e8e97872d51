"""`unstarve tune`: which loaders of a process are tuned, in which order, and when training may end.

A `Session` knows nothing of torch. What it has found out so far lies in one file per process, written anew
whenever there is news, so that it survives whatever ends the command.
"""

from __future__ import annotations

import hashlib
import json
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unstarve.model.launch_settings import TuneSettings
from unstarve.model.saved import Place
from unstarve.model.tune_run import TunedLoader, TunedProcess
from unstarve.model.tuned import Tuning

_MATTERS = 0.1
"""Of all time: a loader of validation that is waited for longer than this is tuned, too."""
_NOTICE_STEPS = 20
"""So many steps before the last one the first rank says so: all others hear it in time, being in step."""


@dataclass(eq=False)
class Known:
    """A loader that the script has made."""

    number: int
    kind: str
    place: Place | None
    length: int | None
    """Batches of an epoch; None where it does not know."""
    digest: str | None
    loader: Callable[[], Any]
    """Gives None when the script has let go of it."""
    steps: int = 0
    epochs: int = 0
    wait_s: float = 0.0
    """Spent in asking it for batches."""
    datasets: int = 1
    """Of the loaders that are made at this place and used at the same time."""
    trains: bool = False
    """It was iterated where gradients are recorded."""
    tuning: Tuning | None = None
    tuner: Any = None
    """What tunes it, kept for a loader that is made at the same place after it is gone."""
    left_alone: str | None = None

    @property
    def name(self) -> str:
        """As people would call it."""
        named = None if self.place is None else self.place.name
        return named or f"loader {self.number + 1}"

    @property
    def expected_steps(self) -> int:
        """By which loaders are ranked: what it gave, or will give in an epoch."""
        return max(self.steps, self.length or 0)

    @property
    def is_settled(self) -> bool:
        """Whether it was tuned, and is done with that."""
        return self.tuning is not None and self.tuning.settled


@dataclass(frozen=True, slots=True)
class End:
    """The step of a loader with which all ranks end."""

    loader: int
    """Its number, which is the same in all ranks: they run the same script."""
    steps: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of one machine: the first decides when to end, the others read that from a file."""

    folder: Path
    alone: bool = True
    """There are no others on other machines, to whom only a number of steps means the same."""

    def agree(self, end: End) -> None:
        """Tell all."""
        new = self.folder / "end.new"
        new.write_text(json.dumps(asdict(end)))
        new.replace(self.folder / "end")

    def agreed(self) -> End | None:
        """What the first rank has said."""
        path = self.folder / "end"
        return End(**json.loads(path.read_text())) if path.exists() else None


@dataclass
class Session:
    """The loaders of one process; `tell` is given what is known whenever there is news."""

    settings: TuneSettings
    tell: Callable[[TunedProcess], object]
    pid: int
    rank: int = 0
    ranks: Ranks | None = None
    """Set where several train together."""
    clock: Callable[[], float] = time.monotonic
    known: list[Known] = field(default_factory=list)
    ended_by: str | None = None
    _began_s: float | None = None

    def made(self, loader: Any, kind: str, place: Place | None, length: int | None) -> Known:
        """The script has made a loader."""
        known = Known(len(self.known), kind, place, length, _digest(place), weakref.ref(loader))
        self.known.append(known)
        return known

    def heir(self, known: Known) -> Known:
        """What is known of a loader that is made anew for each epoch: it goes on where the last one ended."""
        if known.epochs or known.place is None:
            return known
        gone = [one for one in self.known if one.place == known.place and one.epochs and one.loader() is None]
        if not gone:
            return known
        self.known.remove(known)
        gone[-1].loader, gone[-1].digest = known.loader, known.digest
        return gone[-1]

    def begin(self, known: Known, *, gradients: bool) -> bool:
        """An epoch begins: whether the loader is to be tuned from now on. One is, after the other."""
        if self._began_s is None:
            self._began_s = self.clock()
        known.epochs += 1
        known.trains = known.trains or gradients
        beside = [one.loader() for one in self.known if one.place == known.place]
        sets = {id(getattr(loader, "dataset", None)) for loader in beside if loader is not None}
        known.datasets = max(known.datasets, len(sets))
        if known.tuning is not None:
            return True
        alive = [one for one in self.known if one is not known and one.loader() is not None]
        busy = [one for one in alive if one.tuning is not None and not one.is_settled]
        if not known.trains and alive and known.wait_s <= _MATTERS * self._seconds():
            known.left_alone = "it is not training's: it is iterated without gradients"
        elif busy:
            known.left_alone = f"{busy[0].name} was still being tuned"
        else:
            known.left_alone = None
        return known.left_alone is None

    def leave_alone(self, known: Known, reason: str) -> None:
        """It cannot be tuned."""
        known.left_alone = reason

    def news(self, known: Known, tuning: Tuning) -> None:
        """So far has tuning come."""
        known.tuning = tuning
        self.tell(self.now())

    def is_over(self, known: Known) -> bool:
        """Asked before each batch: whether training is to end here; `ended_by` then has the reason."""
        if not self.settings.stop or known.tuning is None:
            return False
        if self.ranks is None:
            self.ended_by = self._reason_to_end(known)
        else:
            self._end_together(known, self.ranks)
        return self.ended_by is not None

    def _reason_to_end(self, known: Known) -> str | None:
        steps, seconds = self.settings.budget_steps, self.settings.budget_s
        if steps is not None and known.steps >= steps:
            return "budget"
        if self.ranks is not None and not self.ranks.alone:
            return None
        if known.is_settled and not self._more_to_tune(known):
            return "settled"
        return "budget" if seconds is not None and self._seconds() >= seconds else None

    def _end_together(self, known: Known, ranks: Ranks) -> None:
        """Ranks that train together wait for each other in each step, so that all end with the same one."""
        end = ranks.agreed()
        if end is None and self.rank == 0:
            reason = self._reason_to_end(known)
            if reason is not None:
                ranks.agree(End(known.number, known.steps + _NOTICE_STEPS, reason))
        elif end is not None and end.loader == known.number and known.steps >= end.steps:
            self.ended_by = end.reason

    def _more_to_tune(self, known: Known) -> bool:
        """Whether a loader with more steps is yet to be tuned."""
        others = [one for one in self.known if one.loader() is not None and one.tuning is None]
        return any(
            one.expected_steps > known.expected_steps and (one.trains or not one.epochs) for one in others
        )

    def now(self) -> TunedProcess:
        """What is known of all loaders that were iterated."""
        loaders = tuple(self._described(one) for one in self.known if one.epochs)
        return TunedProcess(self.pid, self.rank, loaders, self._seconds(), self.ended_by)

    def _seconds(self) -> float:
        return 0.0 if self._began_s is None else self.clock() - self._began_s

    def _described(self, one: Known) -> TunedLoader:
        left_alone = None if one.tuning is not None else one.left_alone
        return TunedLoader(
            one.name, one.kind, one.place, one.digest, one.datasets, one.steps, one.tuning, left_alone
        )


def write_news(folder: Path, process: TunedProcess) -> None:
    """Replace what this process has told; the launcher reads it at any time."""
    path = folder / f"{process.pid}.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(process.to_json()))
    new.replace(path)


def read_news(folder: Path) -> list[TunedProcess]:
    """What the processes have told, the first rank first, then the one with most steps."""
    found = [TunedProcess.from_json(json.loads(path.read_text())) for path in folder.glob("*.json")]
    return sorted(found, key=lambda process: (process.rank, -sum(one.steps for one in process.loaders)))


def _digest(place: Place | None) -> str | None:
    try:
        return None if place is None else hashlib.sha256(Path(place.file).read_bytes()).hexdigest()
    except OSError:  # a notebook, or a file that is gone
        return None
