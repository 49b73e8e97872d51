"""The result of `unstarve tune`: the loaders of a command and their tunings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unstarve.model.saved import Place, Setting, place_from_plain
from unstarve.model.tuning import LoaderSettings, Tuning

SCHEMA = "unstarve.tune/1"


@dataclass(frozen=True, slots=True)
class TunedLoader:
    """One loader of a process, tuned or left alone."""

    name: str
    """The variable it was assigned to, if known, else ``loader N``."""
    kind: str
    """Class name."""
    place: Place | None
    digest: str | None
    """SHA-256 of the source file when the loader was created; None if it could not be read."""
    datasets: int
    """How many datasets had a loader created at this place."""
    steps: int
    """Batches delivered."""
    tuning: Tuning | None
    left_alone: str | None = None
    """Why it was not tuned."""

    @property
    def was_measured(self) -> bool:
        """Whether any setting was measured."""
        return self.tuning is not None and any(trial.kind == "measured" for trial in self.tuning.trials)

    def settings(self) -> dict[str, Setting]:
        """The best arguments found, which may be the present ones; empty without a tuning."""
        if self.tuning is None:
            return {}
        chosen = self.tuning.chosen
        depth = {} if chosen.prefetch_factor is None else {"prefetch_factor": chosen.prefetch_factor}
        part = {chosen.part: True} if chosen.part else {}
        return {"num_workers": chosen.num_workers, **depth, **part}

    def change(self) -> dict[str, Setting]:
        """The arguments to change; empty if the present ones should stay."""
        tuning = self.tuning
        if tuning is None or tuning.keep or tuning.chosen == tuning.before or not self.was_measured:
            return {}
        return self.settings()

    def to_json(self) -> dict[str, Any]:
        """As `json.dumps` takes it."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain["place"] = None if self.place is None else dataclasses.asdict(self.place)
        return plain | {"tuning": None if self.tuning is None else self.tuning.to_json()}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> TunedLoader:
        """The inverse of `to_json`."""
        place, tuning = plain["place"], plain["tuning"]
        return cls(
            **{
                **plain,
                "place": None if place is None else place_from_plain(place),
                "tuning": None if tuning is None else Tuning.from_json(tuning),
            }
        )


@dataclass(frozen=True, slots=True)
class TunedProcess:
    """The progress of one training process of the command."""

    pid: int
    rank: int
    loaders: tuple[TunedLoader, ...]
    seconds: float
    """Since its first loader was iterated."""
    ended_by: str | None = None
    """``settled`` or ``budget`` if unstarve ended training, else None."""

    def to_json(self) -> dict[str, Any]:
        """As `json.dumps` takes it."""
        loaders = [loader.to_json() for loader in self.loaders]
        return {**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, "loaders": loaders}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> TunedProcess:
        """The inverse of `to_json`."""
        return cls(**{**plain, "loaders": tuple(TunedLoader.from_json(one) for one in plain["loaders"])})


@dataclass(frozen=True, slots=True)
class SettingSummary:
    """All trials of one setting."""

    settings: LoaderSettings
    times: int
    """Number of trials; 0 for a forecast."""
    steps: int
    samples_per_s: float
    low: float
    high: float
    wait_share: float | None
    rss_bytes: int | None
    shm_bytes: int | None
    speedup: float | None
    """Over the user's own settings, from these numbers alone; None if those were not measured."""
    own: bool
    chosen: bool
    unproven: bool = False
    """Measured faster than what was chosen, but by no more than the noise, or too few times to tell."""


@dataclass(frozen=True, slots=True)
class TuneRun:
    """The result for the whole command."""

    command: tuple[str, ...]
    exit_code: int
    ranks: int
    seconds: float
    ended_by: str | None
    """``settled``, ``budget`` or ``interrupt`` if training did not end by itself."""
    loaders: tuple[TunedLoader, ...]
    """Loaders of the first rank: tuned ones first, then by number of steps."""
    runs: int = 1
    """How often the command was started; everything else here is about the last time."""
    files_written: tuple[str, ...] = ()
    """Files below the working folder that changed during the run, the largest first."""

    @property
    def tuned(self) -> tuple[TunedLoader, ...]:
        """The loaders that were tuned."""
        return tuple(loader for loader in self.loaders if loader.tuning is not None)

    def to_json(self) -> dict[str, Any]:
        """As `json.dumps` takes it, schema ``unstarve.tune/1``."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        changed = {"command": list(self.command), "loaders": [_with_change(one) for one in self.loaders]}
        return {"schema": SCHEMA} | plain | changed


def _with_change(loader: TunedLoader) -> dict[str, Any]:
    return loader.to_json() | {"change": loader.change()}
