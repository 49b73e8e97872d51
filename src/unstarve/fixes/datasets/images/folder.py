"""A folder per class, images in it: the same classes, files and order as torchvision's `ImageFolder`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Folder:
    """What was found: `targets` are numbers of classes, one for each of `paths`."""

    classes: list[str]
    paths: list[str]
    targets: list[int]


def look_through(
    root: str | Path, is_valid_file: Callable[[str], bool] | None = None, *, allow_empty: bool = False
) -> Folder:
    """Find classes and images. Paths begin with `root` as it was given.

    Files count by their suffix, or as `is_valid_file` says of their path. Raises FileNotFoundError, as
    torchvision does, where there is no class, or none of a class's files counts unless `allow_empty`.
    """
    root = os.path.expanduser(root)  # noqa: PTH111  # a Path would lose "./", which torchvision keeps
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {root}.")
    counts = is_valid_file or _has_suffix
    paths: list[str] = []
    targets: list[int] = []
    empty = []
    for number, name in enumerate(classes):
        found = [path for path in _files_below(os.path.join(root, name)) if counts(path)]  # noqa: PTH118  # as above
        paths += found
        targets += [number] * len(found)
        if not found:
            empty.append(name)
    if empty and not allow_empty:
        supported = f"Supported extensions are: {', '.join(SUFFIXES)}" if is_valid_file is None else ""
        raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}. {supported}")
    return Folder(classes, paths, targets)


def _has_suffix(path: str) -> bool:
    return path.lower().endswith(SUFFIXES)


def _files_below(folder: str) -> list[str]:
    """Folder by folder in the order of their paths, and by name in each."""
    found = sorted(os.walk(folder, followlinks=True))
    return [os.path.join(at, name) for at, _, names in found for name in sorted(names)]  # noqa: PTH118  # a million of them
