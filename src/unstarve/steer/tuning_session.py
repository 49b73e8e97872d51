"""`unstarve tune`: which loaders of a process are tuned, in which order, and when training may end.

A `TuningSession` knows nothing of torch. Its progress is kept in one file per process, rewritten after each
change, so that it survives whatever ends the command.
"""

from __future__ import annotations

import hashlib
import json
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from unstarve.model.launch_settings import TuneSettings
from unstarve.model.saved import Place
from unstarve.model.tune_run import TunedLoader, TunedProcess
from unstarve.model.tuning import Tuning
from unstarve.words import ordinal

_MATTERS = 0.1
"""A validation loader is tuned, too, if waiting for it takes more than this share of the time."""
_VALIDATES = "validation loader (iterated under no_grad)"
_BUSY = "was still being tuned"
_NOT_BEGUN = "not iterated before tuning was done (--finish tunes it, too)"
_MOST_PATIENCE_S = 60.0
"""How long a tuned loader's first epoch may go on to see whether another loader trains after it."""
_NOTICE_STEPS = 20
"""The first rank announces the end this many steps ahead; ranks run in step, so all learn it in time."""

_MOST_DATASETS = 4
"""Datasets of one line: train, validation and test differ; more than this vary from epoch to epoch."""


@dataclass(eq=False)
class TrackedLoader:
    """A loader that the script has created."""

    number: int
    kind: str
    place: Place | None
    length: int | None
    """Batches per epoch; None if unknown."""
    digest: str | None
    loader: Callable[[], Any]
    """Returns None once the script has dropped it."""
    shuffles: bool = False
    """Its order is random, as for training."""
    steps: int = 0
    epochs: int = 0
    wait_s: float = 0.0
    """Time spent waiting for its batches."""
    datasets: int = 1
    """Different datasets of loaders created at this line that exist at the same time."""
    nth: int | None = None
    """Its number among those whose datasets have the same class and length; None if there is only one."""
    trains: bool = False
    """It was iterated with gradients enabled."""
    tuning: Tuning | None = None
    tuner: Any = None
    """Its tuner, kept for the next loader created at the same place after it is gone."""
    left_alone: str | None = None

    @property
    def name(self) -> str:
        """Its variable, or its number; with its dataset if the line creates several loaders."""
        place = self.told_apart
        named = (None if place is None else place.name) or f"loader {self.number + 1}"
        if place is None or place.dataset is None:
            return named
        return f"{named} ({place.dataset}{'' if place.nth is None else f', {ordinal(place.nth)}'})"

    @property
    def told_apart(self) -> Place | None:
        """Its place, with what tells it from the other loaders of that line, if there are any."""
        if self.place is None:
            return None
        return replace(self.place, dataset=self.place.dataset if self.datasets > 1 else None, nth=self.nth)

    @property
    def expected_steps(self) -> int:
        """Loaders are ranked by this: the batches it gave, or will give in an epoch."""
        return max(self.steps, self.length or 0)

    @property
    def waits_its_turn(self) -> bool:
        """A training loader that will be tuned when its next epoch begins."""
        return self.trains and self.left_alone is not None and self.left_alone.endswith(_BUSY)

    @property
    def is_settled(self) -> bool:
        """Whether tuning it is finished."""
        return self.tuning is not None and self.tuning.settled


@dataclass(frozen=True, slots=True)
class AgreedEnd:
    """The step of a loader at which all ranks end."""

    loader: int
    """Its number, the same in all ranks because they run the same script."""
    steps: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks on this machine: the first decides when to end, the others read that from a file."""

    folder: Path
    one_machine: bool = True
    """All ranks are on this machine. Otherwise only a number of steps means the same to all."""

    def announce(self, end: AgreedEnd) -> None:
        """Tell all ranks when to end."""
        new = self.folder / "end.new"
        new.write_text(json.dumps(asdict(end)))
        new.replace(self.folder / "end")

    def announced(self) -> AgreedEnd | None:
        """What the first rank has announced."""
        path = self.folder / "end"
        return AgreedEnd(**json.loads(path.read_text())) if path.exists() else None


@dataclass
class TuningSession:
    """The loaders of one process; `publish` is called with a snapshot after each change."""

    settings: TuneSettings
    publish: Callable[[TunedProcess], object]
    pid: int
    rank: int = 0
    ranks: Ranks | None = None
    """Set if several ranks train together."""
    clock: Callable[[], float] = time.monotonic
    loaders: list[TrackedLoader] = field(default_factory=list)
    ended_by: str | None = None
    folder: Path | None = None
    """Where a run leaves what it measured for the next one of the same command."""
    _began_s: float | None = None
    _ended_with: TrackedLoader | None = None

    def add(
        self, loader: Any, kind: str, place: Place | None, length: int | None, *, shuffles: bool = False
    ) -> TrackedLoader:
        """The script has created a loader."""
        digest = _file_digest(place)
        tracked = TrackedLoader(len(self.loaders), kind, place, length, digest, weakref.ref(loader), shuffles)
        self.loaders.append(tracked)
        return tracked

    def replace(self, tracked: TrackedLoader, loader: Any, length: int | None) -> TrackedLoader:
        """A framework has created a loader again, with other arguments: it stands for the same one."""
        tracked.loader, tracked.length = weakref.ref(loader), length
        return tracked

    def predecessor(self, tracked: TrackedLoader) -> TrackedLoader:
        """The entry of the loader that this one replaces, created at the same place before. Else its own."""
        if tracked.epochs or tracked.place is None:
            return tracked
        anew = tracked.place.maker is not None and tracked.place.maker.makes_anew
        line = [one for one in self.loaders if one.epochs and _line(one.place) == _line(tracked.place)]
        varies = len({one.place for one in line}) >= _MOST_DATASETS
        gone = [
            one for one in line if (anew or one.loader() is None) and (varies or one.place == tracked.place)
        ]
        if not gone:
            return tracked
        self.loaders.remove(tracked)
        gone[-1].loader, gone[-1].digest = tracked.loader, tracked.digest
        return gone[-1]

    def begin_epoch(self, tracked: TrackedLoader, *, gradients: bool, optimizer: bool = False) -> bool:
        """An epoch begins. Returns whether to tune the loader; training loaders are tuned one after another.

        `optimizer`: the script has one, so it will train. Until then, what it iterates without gradients is
        a check of its validation or a first evaluation, and waiting for it says nothing.
        """
        if self._began_s is None:
            self._began_s = self.clock()
        tracked.epochs += 1
        tracked.trains = tracked.trains or gradients
        self._tell_apart(tracked)
        if tracked.tuning is not None:
            return True
        alive = [one for one in self.loaders if one is not tracked and one.loader() is not None]
        if tracked.trains:
            self._take_over(alive)
        busy = [one for one in alive if one.tuning is not None and not one.is_settled]
        before_training = optimizer and not any(one.trains for one in self.loaders)
        matters = not alive or tracked.wait_s > _MATTERS * self._seconds()
        if not tracked.trains and (before_training or not matters):
            tracked.left_alone = _VALIDATES
        elif busy:
            tracked.left_alone = f"{busy[0].name} {_BUSY}"
        else:
            tracked.left_alone = None
        return tracked.left_alone is None

    def _take_over(self, others: list[TrackedLoader]) -> None:
        """A training loader waits for none that only validates: tuning of those ends unfinished."""
        for one in others:
            if one.tuning is not None and not one.is_settled and not one.trains:
                one.tuning = one.tuner = None
                one.left_alone = _VALIDATES

    def _tell_apart(self, tracked: TrackedLoader) -> None:
        """Note the other loaders that exist now and that the same line has created for other datasets."""
        line = _line(tracked.place)
        beside = [(one, one.loader()) for one in self.loaders if _line(one.place) == line]
        alive = {one: id(getattr(loader, "dataset", None)) for one, loader in beside if loader is not None}
        tracked.datasets = max(tracked.datasets, len(set(alive.values())))
        twins = list(dict.fromkeys(its for one, its in alive.items() if one.place == tracked.place))
        if tracked in alive and len(twins) > 1:
            tracked.nth = twins.index(alive[tracked]) + 1

    def leave_alone(self, tracked: TrackedLoader, reason: str) -> None:
        """It cannot be tuned."""
        tracked.left_alone = reason

    def update(self, tracked: TrackedLoader, tuning: Tuning) -> None:
        """Tuning of this loader has come this far. Nothing changes if another one has taken over."""
        if tracked.left_alone is not None:
            return
        tracked.tuning = tuning
        self.publish(self.snapshot())

    def is_over(self, tracked: TrackedLoader) -> bool:
        """Whether training should end before this loader's next batch; `ended_by` then has the reason."""
        if not self.settings.stop or tracked.tuning is None:
            return False
        if self.ranks is None:
            self.ended_by = self._reason_to_end(tracked)
        else:
            self._end_together(tracked, self.ranks)
        self._ended_with = None if self.ended_by is None else tracked
        return self.ended_by is not None

    def _reason_to_end(self, tracked: TrackedLoader) -> str | None:
        steps, seconds = self.settings.budget_steps, self.settings.budget_s
        if steps is not None and tracked.steps >= steps:
            return "budget"
        if self.ranks is not None and not self.ranks.one_machine:
            return None
        if tracked.is_settled and not self._more_to_tune(tracked):
            return "settled"
        return "budget" if seconds is not None and self._seconds() >= seconds else None

    def _end_together(self, tracked: TrackedLoader, ranks: Ranks) -> None:
        """Ranks that train together wait for each other in each step, so all must end at the same one."""
        end = ranks.announced()
        if end is None and self.rank == 0:
            reason = self._reason_to_end(tracked)
            if reason is not None:
                ranks.announce(AgreedEnd(tracked.number, tracked.steps + _NOTICE_STEPS, reason))
        elif end is not None and end.loader == tracked.number and tracked.steps >= end.steps:
            self.ended_by = end.reason

    def _more_to_tune(self, tracked: TrackedLoader) -> bool:
        """Whether a loader with more steps, or another training loader, is still to be tuned."""
        others = [one for one in self.loaders if one is not tracked and one.loader() is not None]
        return (self._may_train(tracked) and self._epoch_is_nearly_over(tracked)) or any(
            one.waits_its_turn or (one.trains and one.expected_steps > tracked.expected_steps)
            if one.tuning is None
            else one.trains and not one.is_settled
            for one in others
        )

    def _may_train(self, tracked: TrackedLoader) -> list[TrackedLoader]:
        """The loaders that training may take batches from when the first epoch of this one is over."""
        return [
            one
            for one in self.loaders
            if not one.epochs
            and one.loader() is not None
            and (one.shuffles or one.expected_steps > tracked.expected_steps)
        ]

    def _epoch_is_nearly_over(self, tracked: TrackedLoader) -> bool:
        if tracked.length is None or tracked.epochs > 1:
            return False
        each_s = self._seconds() / max(tracked.steps, 1)
        return (tracked.length - tracked.steps) * each_s <= _MOST_PATIENCE_S

    def snapshot(self) -> TunedProcess:
        """The state of all loaders that were iterated, and of those that tuning did not wait for."""
        missed = [] if self._ended_with is None else self._may_train(self._ended_with)
        for one in missed:
            one.left_alone = _NOT_BEGUN
        loaders = tuple(self._described(one) for one in self.loaders if one.epochs or one in missed)
        return TunedProcess(self.pid, self.rank, loaders, self._seconds(), self.ended_by)

    def _seconds(self) -> float:
        return 0.0 if self._began_s is None else self.clock() - self._began_s

    def _described(self, one: TrackedLoader) -> TunedLoader:
        left_alone = None if one.tuning is not None else one.left_alone
        return TunedLoader(
            one.name, one.kind, one.told_apart, one.digest, one.datasets, one.steps, one.tuning, left_alone
        )


def write_progress(folder: Path, process: TunedProcess) -> None:
    """Replace the progress of this process; the launcher may read it at any time."""
    path = folder / f"{process.pid}.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(process.to_json()))
    new.replace(path)


def read_progress(folder: Path) -> list[TunedProcess]:
    """The progress of all processes: first rank first, then by number of steps."""
    found = [TunedProcess.from_json(json.loads(path.read_text())) for path in folder.glob("*.json")]
    return sorted(found, key=lambda process: (process.rank, -sum(one.steps for one in process.loaders)))


def _line(place: Place | None) -> Place | None:
    """The place of all loaders that one call creates, whatever their datasets."""
    return None if place is None else replace(place, dataset=None)


def _file_digest(place: Place | None) -> str | None:
    try:
        return None if place is None else hashlib.sha256(Path(place.file).read_bytes()).hexdigest()
    except OSError:  # a notebook, or a deleted file
        return None
