"""The result of tuning a loader: its trials, the chosen settings and the gain."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from unstarve.model.compared import Change
from unstarve.model.parts import IMAGES, PARTS

SCHEMA = "unstarve.tuning/1"


@dataclass(frozen=True, slots=True, order=True)
class LoaderSettings:
    """The tuned arguments of a `DataLoader`, under its own names."""

    num_workers: int
    prefetch_factor: int | None = None
    """Batches in flight per worker; None without workers."""
    part: str = ""
    """The part of unstarve that makes the batches or hands them over (`PARTS`); empty: torch's own loader."""

    @property
    def makers(self) -> tuple[str, int]:
        """What makes the batches. Settings with the same makers differ only in prefetch depth."""
        return self.part, self.num_workers

    @property
    def images(self) -> bool:
        """unstarve reads the images of an image folder."""
        return self.part == IMAGES

    @property
    def threads(self) -> bool:
        """Threads of the training process make the batches, not workers."""
        return self.part in PARTS and PARTS[self.part].threads

    @property
    def shared(self) -> bool:
        """All of these threads make each batch together, one per core: `num_workers` hardly matters."""
        return self.part in PARTS and PARTS[self.part].shared

    @property
    def price(self) -> float:
        """Factor on the time per step when settings are ranked: a change of parts must be worth it."""
        return PARTS[self.part].price if self.part in PARTS else 1.0

    @property
    def in_flight(self) -> int:
        """Most batches prefetched at a time."""
        return self.num_workers * (self.prefetch_factor or 0)


@dataclass(frozen=True, slots=True)
class Trial:
    """Training under one setting: a stretch of real steps, or a forecast."""

    settings: LoaderSettings
    kind: Literal["measured", "predicted"]
    steps: int
    """Measured steps, without those that filled the pipeline; 0 for a forecast."""
    seconds: float
    """Duration of these steps."""
    samples_per_s: float
    low: float
    """Lower end of the interval of `samples_per_s`."""
    high: float
    wait_share: float | None
    """Time inside ``next()`` over step time."""
    rss_bytes: int | None = None
    """Memory of the training process and its workers together, if known."""
    shm_bytes: int | None = None
    """Most shared memory that prefetched batches take."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The progress of tuning; once `settled`, its result."""

    where: str | None
    """``train.py:41``: where the loader was created; None if unknown."""
    before: LoaderSettings
    """The user's own settings."""
    chosen: LoaderSettings
    """The settings to use; until `settled`, the best so far."""
    trials: tuple[Trial, ...]
    """In order; one setting may be measured several times."""
    gain: Change | None
    """Samples per second of `chosen` over `before`; None if they are the same or not measured."""
    keep: bool
    """The user's own settings should stay."""
    reason: str
    """Why, in one sentence."""
    settled: bool
    steps: int
    """Training steps spent on tuning so far, including those that filled the pipeline."""
    seconds: float
    """Duration of these steps."""
    rounds: int = 1
    """Number of searches: one more each time conditions changed."""
    notes: tuple[str, ...] = ()
    """What was not tuned or tried, and why."""
    proven_steps: int = 0
    """Measured steps behind `gain`; 0 if there is none, or if it was only predicted."""

    @property
    def is_predicted(self) -> bool:
        """`chosen` was never measured: training ended first."""
        return self.chosen != self.before and not any(
            one.settings == self.chosen and one.kind == "measured" for one in self.trials
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as `json.dumps` takes it, schema ``unstarve.tuning/1``; unknown values are null."""
        plain = dataclasses.asdict(self)
        settings = {"before": _plain(self.before), "chosen": _plain(self.chosen)}
        trials = [
            trial | {"settings": _plain(one.settings)}
            for one, trial in zip(self.trials, plain["trials"], strict=True)
        ]
        return {"schema": SCHEMA} | plain | settings | {"trials": trials, "notes": list(self.notes)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Tuning:
        """The inverse of `to_json`; raises ValueError for anything else."""
        if plain.get("schema") != SCHEMA:
            raise ValueError(f"not a tuning: expected schema {SCHEMA!r}, got {plain.get('schema')!r}")
        try:
            fields = {name: value for name, value in plain.items() if name != "schema"}
            fields["before"] = _settings(fields["before"])
            fields["chosen"] = _settings(fields["chosen"])
            fields["trials"] = tuple(_trial(one) for one in fields["trials"])
            fields["gain"] = None if fields["gain"] is None else Change(**fields["gain"])
            fields["notes"] = tuple(fields["notes"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a tuning of this version of unstarve: {error}") from error


def _trial(plain: Mapping[str, Any]) -> Trial:
    return Trial(**{**plain, "settings": _settings(plain["settings"])})


def _plain(settings: LoaderSettings) -> dict[str, Any]:
    """`images` was a field before there were other parts; readers still find it."""
    return dataclasses.asdict(settings) | {"images": settings.images}


def _settings(plain: Mapping[str, Any]) -> LoaderSettings:
    fields = dict(plain)
    part = IMAGES if fields.pop("images", False) else ""
    return LoaderSettings(**({"part": part} | fields))
