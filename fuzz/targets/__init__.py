"""The targets, one module each, with these functions:

`seeds()`
    valid inputs, small, made by the library's own writers
`hostile()`
    known attacks by name; those that were found as bytes lie in ``tests/corpus/TARGET/``
`changed(data, random)`
    the input, changed along its structure: checksums and lengths are right again, so that readers go on
`run(data, folder)`
    feeds an input to the public API; raises nothing but `UnstarveError`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Protocol, cast

from fuzz import CORPUS

NAMES = ("run_file", "trace", "pt", "npy", "safetensors", "packed", "jpeg", "profile", "web")


class Target(Protocol):
    """What a module of this folder has."""

    seeds: Callable[[], list[bytes]]
    hostile: Callable[[], Mapping[str, bytes]]
    changed: Callable[[bytes, Random], bytes]
    run: Callable[[bytes, Path], None]


def load(name: str) -> Target:
    """The target of this name."""
    return cast(Target, import_module(f"fuzz.targets.{name}"))


def known_attacks(name: str) -> dict[str, bytes]:
    """What once broke a target or was built to: made by code, and the files of the corpus."""
    folder = CORPUS / name
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return dict(load(name).hostile()) | {file.name: file.read_bytes() for file in files}
