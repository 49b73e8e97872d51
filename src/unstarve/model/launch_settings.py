"""Settings for the processes that unstarve starts, passed in one environment variable."""

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
    """Minimum of measured steps per block."""
    block_s: float = 0.1
    """Minimum of measured seconds per block."""
    cached_batches: int = 8
    replay_on: str = "host"


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """How `unstarve tune` tunes, and when it ends the training."""

    stop: bool = True
    """End training when tuning is done; otherwise it runs to its own end."""
    budget_s: float | None = None
    budget_steps: int | None = None
    """Steps of the tuned loader."""
    images: bool = True
    """Also try reading the images of an image folder with unstarve."""


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """The window of `unstarve run --profile`, in steps."""

    wait: int = 5
    warmup: int = 1
    active: int = 3
    repeat: int = 1
    stacks: bool = False
    """Also record the Python stack of every operator."""
    memory_snapshot: str | None = None
    """Where to write a snapshot of CUDA memory over the window."""


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """How far `unstarve check` lets a command run."""

    batches: int = 3
    """The command ends when a loader is asked for more batches than these."""
    fetch_limit_s: float = 30.0
    """How long fetching may take from the loaders that the command did not iterate itself."""
    samples: int = 0
    """Samples of each dataset to time alone."""


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """What each process of the command should do."""

    parts: str
    """Folder in which each process writes its own file."""
    version: str
    """Version of the launcher's unstarve, which also records."""
    steps: int | None = None
    """Stop recording after this many steps."""
    stop_after: int | None = None
    """End the process after this many steps."""
    ideal: IdealSettings | None = None
    engine: str | None = None
    """The engine to run torch's loaders on, or "auto"; None leaves them to torch."""
    tune: TuneSettings | None = None
    """Tune the training loaders and record nothing; progress is written to `parts`."""
    saved: tuple[SavedLoader, ...] = ()
    """Settings for loaders, by the place of their creation."""
    profile: ProfileSettings | None = None
    io: bool = False
    """Count file reads; see `launch.io_library`."""
    ledger: bool = False
    """Digest every sample that is delivered, for data without indices."""
    copies: bool = False
    """Time copies to a CUDA device in a few steps."""
    perf: bool = False
    """Read the processor's counters around steps and fetches."""
    check: CheckSettings | None = None
    """Check the loaders and record nothing; each process writes its report to `parts`."""
    only_ranges: bool = False
    """Record nothing: only mark steps and phases for a profiler. `parts` is empty then."""
    memory: bool = False
    """Look at memory more often, and trace allocations for a while."""
    state: str | None = None
    """Folder in which processes keep a page of what they do, and show their stacks; see `collect.stuck`."""
    segment_bytes: int | None = None
    """Begin a new file whenever one has this size; see `record.fold`."""
    raises_on_hang: bool = False
    """Training raises a `HangError` when the launcher finds that it hangs."""

    def to_environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> LaunchSettings | None:
        """The settings that this process was started with; None if unstarve did not start it."""
        text = environment.get(VARIABLE)
        if not text:
            return None
        fields = json.loads(text)
        ideal, saved, tune = fields.pop("ideal"), fields.pop("saved"), fields.pop("tune")
        profile, check = fields.pop("profile"), fields.pop("check")
        return cls(
            **fields,
            ideal=None if ideal is None else IdealSettings(**ideal),
            tune=None if tune is None else TuneSettings(**tune),
            saved=tuple(saved_from_plain(one) for one in saved),
            profile=None if profile is None else ProfileSettings(**profile),
            check=None if check is None else CheckSettings(**check),
        )
