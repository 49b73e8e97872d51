"""How much memory a cache may take, and how much there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from unstarve.errors import UsageError

DEFAULT_SHARE = 0.5
"""Of the memory that is free when the cache is made: the model, its batches and the workers need the rest."""

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}{tail}": 1000**n for n, letter in enumerate("kmgt", 1) for tail in ("", "b")}
_UNITS |= {f"{letter}ib": 1024**n for n, letter in enumerate("kmgt", 1)}


@dataclass(frozen=True)
class Budget:
    """Bytes that may be taken, and where the number is from, in words."""

    size_bytes: int
    reason: str


def budget_of(wish: str | int | None) -> Budget:
    """Read what the user wrote: bytes, a text such as "8GB" or "512 MiB", or None for a safe share."""
    if wish is None:
        return Budget(
            int(available_bytes() * DEFAULT_SHARE), f"{DEFAULT_SHARE:.0%} of the memory that is free"
        )
    return Budget(parse_bytes(wish), "budget=")


def parse_bytes(wish: str | int) -> int:
    """Return a number of bytes. Raises UsageError for what is none."""
    if isinstance(wish, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", wish.lower())
        if match is not None and match[2] in _UNITS:
            return int(float(match[1]) * _UNITS[match[2]])
    elif isinstance(wish, int) and wish >= 0 and not isinstance(wish, bool):
        return wish
    raise UsageError(f'budget must be bytes or a text such as "8GB", not {wish!r}')


def available_bytes() -> int:
    """Memory that can be taken without swapping or being killed: of the machine or of the container."""
    return min([psutil.virtual_memory().available, *_left_in_cgroups()])


def _left_in_cgroups() -> Iterator[int]:
    for folder, limit_name, usage_name in _cgroup_folders():
        try:
            limit = (folder / limit_name).read_text().strip()
            if limit == "max":
                continue
            usage = int((folder / usage_name).read_text())
            yield max(0, int(limit) - usage + _reclaimable(folder))
        except (OSError, ValueError):  # this level sets no limit, or is not shown to us
            continue


def _cgroup_folders() -> Iterator[tuple[Path, str, str]]:
    """Folders of our cgroup and of those above it.

    Lines of ``/proc/self/cgroup``: ``0::/user.slice/session-1.scope`` in version 2, ``4:memory:/docker/ab12``
    in version 1. A container may see its own as the root.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            root, files = Path("/sys/fs/cgroup"), ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, files = Path("/sys/fs/cgroup/memory"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        path = root / name.lstrip("/")
        for folder in (path, *path.parents):
            yield folder, *files
            if folder == root:
                break


def _reclaimable(folder: Path) -> int:
    """Page cache that the kernel drops before it kills anybody."""
    found = re.search(r"^(?:total_)?inactive_file (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
