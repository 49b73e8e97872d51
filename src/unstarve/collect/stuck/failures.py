"""A loader raised: what only the training process can know, kept for the launcher to explain.

When a worker died, or a batch took longer than the timeout, exit codes and stacks of the workers can still be
read. What is found goes into one file per failure, next to the pages:

    4711-1.failed     a pickled `LoaderFailure`
"""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import dataclass, field
from pathlib import Path

from unstarve.model.stuck import Picture

_SUFFIX = ".failed"
_MOST = 20
"""A script may catch the exception and go on; the first failures explain the others."""


@dataclass(frozen=True, slots=True)
class LoaderFailure:
    """One exception about the workers of a loader."""

    message: str
    loader: str
    exits: dict[int, int] = field(default_factory=dict)
    """Exit codes of the workers that have ended, by pid; negative: the signal that ended it."""
    timeout_s: float | None = None
    picture: Picture | None = None
    """The workers when the time was up."""


def keep_failure(folder: Path, pid: int, failure: LoaderFailure) -> None:
    """Write it down, if there are not too many already."""
    number = len(list(folder.glob(f"*{_SUFFIX}"))) + 1
    if number <= _MOST:
        (folder / f"{pid}-{number}{_SUFFIX}").write_bytes(pickle.dumps(failure))


def failures_in(folder: Path) -> list[LoaderFailure]:
    """What the training processes of a run have written down, in order."""
    found = []
    for path in sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns):
        with contextlib.suppress(Exception):  # a process died while it wrote
            found.append(pickle.loads(path.read_bytes()))
    return [one for one in found if isinstance(one, LoaderFailure)]
