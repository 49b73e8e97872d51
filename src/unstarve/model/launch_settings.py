"""What `unstarve run` asks of the processes it starts, carried in one environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from unstarve.model.saved import SavedLoader, saved_from_plain

VARIABLE = "UNSTARVE_LAUNCH"


@dataclass(frozen=True, slots=True)
class IdealSettings:
    """How `unstarve ideal` alternates between real and replayed batches."""

    pairs: int = 8
    """Replay blocks; each has a real block on both sides."""
    block_steps: int = 10
    """Measured steps per block, at least."""
    block_s: float = 0.1
    """Measured seconds per block, at least."""
    cached_batches: int = 8
    replay_on: str = "host"


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """When `unstarve tune` ends the training it tunes in."""

    stop: bool = True
    """End it; else it goes on to its own end."""
    budget_s: float | None = None
    budget_steps: int | None = None
    """Of the loader that is tuned."""
    images: bool = True
    """Try what unstarve makes of the images of an image folder, too."""


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """One recording, as the processes of the command see it."""

    parts: str
    """Folder in which each process appends to a file of its own."""
    version: str
    """The launcher's unstarve, which is the one that records."""
    steps: int | None = None
    """Stop recording after so many steps."""
    stop_after: int | None = None
    """End the process after so many steps."""
    ideal: IdealSettings | None = None
    engine: str | None = None
    """Of unstarve's engines, the one that is to run torch's loaders, or "auto"; None leaves them to torch."""
    tune: TuneSettings | None = None
    """Let training loaders tune themselves and record nothing; in `parts` they tell how that goes."""
    saved: tuple[SavedLoader, ...] = ()
    """Settings for loaders, by where they are made."""

    def to_environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> LaunchSettings | None:
        """The settings of the `unstarve run` this process was started by, if it was."""
        text = environment.get(VARIABLE)
        if not text:
            return None
        fields = json.loads(text)
        ideal, saved, tune = fields.pop("ideal"), fields.pop("saved"), fields.pop("tune")
        return cls(
            **fields,
            ideal=None if ideal is None else IdealSettings(**ideal),
            tune=None if tune is None else TuneSettings(**tune),
            saved=tuple(saved_from_plain(one) for one in saved),
        )
