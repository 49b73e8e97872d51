"""What parts read from storage, and how to make the system forget it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import torch


def tensor_files(folder: Path, count: int, size_bytes: int) -> list[Path]:
    """Return `count` files with a tensor of `size_bytes` each, made the first time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:05}.pt" for number in range(count)]
    generator = torch.Generator().manual_seed(0)
    for path in paths:
        if not path.exists():
            torch.save(torch.randn(size_bytes // 4, generator=generator), path)
    return paths


def forget(paths: Sequence[Path]) -> None:
    """Have the system drop these files from its page cache, which it does once they are on storage."""
    for path in paths:
        _write_out(path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@cache
def _write_out(path: Path) -> None:
    """See to it that a file, which does not change any more, is on storage; the first time is enough."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cached_share(paths: Sequence[Path]) -> float | None:
    """The share of these files that the page cache holds; None where the kernel does not say."""
    try:
        residency = import_module("unstarve.fixes.io.page_cache").residency
    except ImportError:
        return None
    shares = [residency(path) for path in paths]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None
