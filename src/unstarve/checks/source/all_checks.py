"""Every check of source, and how files are found and read.

The text alone decides: a rule speaks only where the source shows all of it: a dataset, the loader that
iterates it and that it has workers. Python's own parser is used rather than libcst: nothing is rewritten, and
it is many times faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unstarve.checks.source import epochs, random_numbers, repeated_work, worker_start
from unstarve.checks.source.project import Project, project_of
from unstarve.checks.source.syntax import Source
from unstarve.errors import UsageError
from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding

SourceCheck = Callable[[Project], Iterable[Finding]]

SOURCE_CHECKS: tuple[SourceCheck, ...] = (
    random_numbers.generator_before_fork,
    random_numbers.worker_seeds_equal,
    epochs.iterable_not_split,
    epochs.set_epoch_missed,
    epochs.set_epoch_lost,
    worker_start.handle_before_fork,
    worker_start.cuda_in_worker,
    worker_start.not_picklable,
    worker_start.missing_main_guard,
    worker_start.threads_per_worker,
    repeated_work.resampling_in_getitem,
    repeated_work.whole_video_for_a_frame,
    repeated_work.column_first,
    repeated_work.kept_batches,
)

_SKIPPED = {"__pycache__", "node_modules", "site-packages", "build", "dist"}
_CONCERNED = re.compile(rb"\b(DataLoader|\w*Dataset|load_dataset|load_from_disk)\b")
"""Files without any of these words are not parsed."""
_MOST_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Checked:
    """What was read, and what was found in it."""

    findings: tuple[Finding, ...]
    files: int
    not_python: tuple[str, ...]
    """Files that this version of Python cannot parse."""


def check_paths(paths: Sequence[Path]) -> Checked:
    """Check these files, and all Python files below these folders.

    Raises `UsageError` for a path that is missing or cannot be read.
    """
    sources: list[Source] = []
    broken: list[str] = []
    files = 0
    for path in _python_files(paths):
        files += 1
        try:
            if path.stat().st_size > _MOST_BYTES:
                continue
            text = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        if _CONCERNED.search(text) is None:
            continue
        source = Source.parse(text, path)
        if source is None:
            broken.append(str(path))
        else:
            sources.append(source)
    return Checked(tuple(check_sources(sources)), files, tuple(broken))


def check_sources(sources: Sequence[Source]) -> list[Finding]:
    """All findings in these files, the worst first; each once."""
    project = project_of(sources)
    found = {one for check in SOURCE_CHECKS for one in check(project)}
    return by_harm(list(found))


def _python_files(paths: Sequence[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no {path}")
        for file in _below(path) if path.is_dir() else [path]:
            if file not in seen:
                seen.add(file)
                yield file


def _below(folder: Path) -> Iterator[Path]:
    """Python files below a folder, without hidden folders, caches and virtual environments."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            hidden = path.name.startswith(".") or path.name in _SKIPPED
            if not hidden and not path.is_symlink() and not (path / "pyvenv.cfg").exists():
                yield from _below(path)
        elif path.suffix == ".py":
            yield path
