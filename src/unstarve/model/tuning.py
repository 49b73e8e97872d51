"""What tuning a loader found: settings, what was measured under each, and what was chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from unstarve.model.compared import Change

SCHEMA = "unstarve.tuning/1"


@dataclass(frozen=True, slots=True, order=True)
class LoaderSettings:
    """What is tuned, named as `DataLoader` names it."""

    num_workers: int
    prefetch_factor: int | None = None
    """Batches per worker that are under way; None without workers."""
    images: bool = False
    """unstarve reads the images of an image folder, in `num_workers` threads instead of processes."""

    @property
    def makers(self) -> tuple[bool, int]:
        """Who makes the batches: settings that agree in this differ in their depth alone."""
        return self.images, self.num_workers

    @property
    def in_flight(self) -> int:
        """Batches that are made ahead, at most."""
        return self.num_workers * (self.prefetch_factor or 0)


@dataclass(frozen=True, slots=True)
class Trial:
    """Training under one setting: a stretch of real steps, or what a model expects of them."""

    settings: LoaderSettings
    kind: Literal["measured", "predicted"]
    steps: int
    """Measured steps, without those at the beginning that filled the pipeline; 0 for a prediction."""
    seconds: float
    """What these steps took."""
    samples_per_s: float
    low: float
    """Of `samples_per_s`: where it lies in most cases."""
    high: float
    wait_share: float | None
    """Time inside ``next()`` over step time."""
    rss_bytes: int | None = None
    """Memory of the training process and its workers together, as far as it is known."""
    shm_bytes: int | None = None
    """Shared memory that the batches under way take, at most."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How far tuning has come, or, when `settled`, what it found."""

    where: str | None
    """``train.py:41``: where the loader was made; None where that is not known."""
    before: LoaderSettings
    """The user's own."""
    chosen: LoaderSettings
    """What runs from now on; while it is not `settled`, the best so far."""
    trials: tuple[Trial, ...]
    """In the order they were made; one setting may be measured several times."""
    gain: Change | None
    """Samples per second of `chosen` over those of `before`; None where they are the same or unmeasured."""
    keep: bool
    """The user's own settings are the answer."""
    reason: str
    """Why, in one sentence."""
    settled: bool
    steps: int
    """Training steps that tuning has taken so far, those that filled the pipeline included."""
    seconds: float
    """What they took."""
    rounds: int = 1
    """How often it was searched: once more each time conditions changed."""
    notes: tuple[str, ...] = ()
    """What was not tuned or tried, and why, in sentences."""

    def to_json(self) -> dict[str, Any]:
        """Return what `json.dumps` takes, schema ``unstarve.tuning/1``; what is not known is null."""
        plain = dataclasses.asdict(self)
        return {"schema": SCHEMA} | plain | {"trials": list(plain["trials"]), "notes": list(self.notes)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Tuning:
        """Return what `to_json` was given; raises ValueError for anything else."""
        if plain.get("schema") != SCHEMA:
            raise ValueError(f"not a tuning: its schema is {plain.get('schema')!r}, not {SCHEMA!r}")
        try:
            fields = {name: value for name, value in plain.items() if name != "schema"}
            fields["before"] = LoaderSettings(**fields["before"])
            fields["chosen"] = LoaderSettings(**fields["chosen"])
            fields["trials"] = tuple(_trial(one) for one in fields["trials"])
            fields["gain"] = None if fields["gain"] is None else Change(**fields["gain"])
            fields["notes"] = tuple(fields["notes"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a tuning of this version of unstarve: {error}") from error


def _trial(plain: Mapping[str, Any]) -> Trial:
    return Trial(**{**plain, "settings": LoaderSettings(**plain["settings"])})
