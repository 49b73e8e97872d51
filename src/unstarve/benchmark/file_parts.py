"""Parts d and e: one tensor per file, in the page cache and not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.benchmark.bench_data import cached_share, forget, tensor_files
from unstarve.benchmark.bench_plan import (
    Anew,
    BenchEntry,
    Missing,
    PartPlan,
    Sizes,
    faster,
    ours,
    public,
    stock,
)
from unstarve.benchmark.disk_limit import DiskAlone, files_alone, stretches_alone
from unstarve.model import Bar, Kind, Promise
from unstarve.words import percent

_PACKED = "all.packed"
_COLD = 0.02
"""Share of the files that may still be in the page cache."""
_CHUNK_BYTES = 1 << 20
"""Bytes of a packed file per read, for the limit."""


class LoadedFiles(Dataset[Any]):
    """As most people write it: one `torch.load` per sample."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return torch.load(self.paths[index])


@dataclass(frozen=True)
class Stored:
    """Files with one tensor each; `folder` also takes other formats of the same data."""

    paths: list[Path]
    batch_size: int
    folder: Path

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for loaders."""
        return {"batch_size": self.batch_size, "shuffle": True}

    @property
    def batches(self) -> int:
        """Batches in an epoch."""
        return -(-len(self.paths) // self.batch_size)

    @property
    def everything(self) -> list[Path]:
        """All files that any entry reads."""
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def packed(self) -> Path:
        """The same samples in one packed file, created the first time."""
        path = self.folder / _PACKED
        if not path.exists():
            with public("PackedWriter")(path) as writer:
                for source in self.paths:
                    writer.append(torch.load(source))
        return path


def _prepare(sizes: Sizes, folder: Path) -> Stored:
    folder = folder / "files"
    return Stored(tensor_files(folder, sizes.files, sizes.file_bytes), sizes.file_batch, folder)


def _prepare_cold(sizes: Sizes, folder: Path) -> Stored:
    if not hasattr(os, "posix_fadvise"):
        raise Missing("this system cannot drop files from the page cache")
    stored = _prepare(sizes, folder)
    forget(stored.paths)
    if (cached_share(stored.paths) or 0.0) > 0.1:
        raise Missing(f"{folder} is in memory; pass --folder with a folder on a disk")
    return stored


def _forget(stored: Stored) -> None:
    """Drop all files from the page cache, or raise: a time with cached files would be wrong."""
    forget(stored.everything)
    packed = stored.folder / _PACKED
    for paths in (stored.paths, [packed] if packed.exists() else []):
        share = cached_share(paths)
        if share is not None and share > _COLD:
            raise Missing(f"{percent(share)} of the files could not be dropped from the page cache")


def _chunked(stored: Stored, **options: Any) -> Any:
    dataset = public("PackedDataset")(stored.packed(), **options)
    sampler = dataset.chunk_sampler()
    return public("DataLoader")(dataset, batch_size=stored.batch_size, sampler=sampler)


def _files(loader: Any, stored: Stored, **options: Any) -> Any:
    return loader(public("TensorFileDataset")(stored.paths, **options), **stored.options)


def _packed(loader: Any, stored: Stored, **options: Any) -> Any:
    return loader(public("PackedDataset")(stored.packed(), **options), **stored.options)


def _rows_alone(stored: Stored) -> DiskAlone:
    path = stored.packed()
    return stretches_alone(path, path.stat().st_size // len(stored.paths), stored.batches, shuffle=True)


def _chunks_alone(stored: Stored) -> DiskAlone:
    return stretches_alone(stored.packed(), _CHUNK_BYTES, stored.batches, shuffle=False)


_STOCK = stock(lambda stored: DataLoader(LoadedFiles(stored.paths), **stored.options))
_EMPTY = Bar(Promise.CACHED_SHARE, 0.01)
_CACHE_ALONE = BenchEntry(
    "the page cache alone",
    Kind.LIMIT,
    lambda stored: files_alone(stored.paths, stored.batches, direct=False),
)
_FILES_ALONE = BenchEntry(
    "the disk alone, files", Kind.LIMIT, lambda stored: files_alone(stored.paths, stored.batches)
)
_ROWS_ALONE = BenchEntry("the disk alone, packed", Kind.LIMIT, _rows_alone)
_CHUNKS_ALONE = BenchEntry("the disk alone, in chunks", Kind.LIMIT, _chunks_alone)

FROM_FILES = (
    PartPlan(
        "d", "files",
        lambda s: f"{s.files} .pt files of {s.file_bytes // 1000} KB in the page cache, batch {s.file_batch}",
        _prepare,
        (
            _STOCK,
            ours("TensorFileDataset, torch's", lambda stored: _files(DataLoader, stored), faster(10)),
            ours(
                "TensorFileDataset, ours",
                lambda stored: _files(public("DataLoader"), stored),
                faster(25),
                rival="TensorFileDataset, torch's",
            ),
            ours(
                "TensorFileDataset, first epoch",
                lambda stored: Anew(lambda: _files(public("DataLoader"), stored)),
            ),
            ours("PackedDataset, torch's", lambda stored: _packed(DataLoader, stored)),
            ours(
                "PackedDataset, ours",
                lambda stored: _packed(public("DataLoader"), stored),
                faster(25),
                rival="PackedDataset, torch's",
            ),
            _CACHE_ALONE,
        ),
    ),
    PartPlan(
        "e", "cold-files",
        lambda s: f"the same {s.files} files, not in the page cache, batch {s.file_batch}", _prepare_cold,
        (
            _STOCK,
            ours("TensorFileDataset, ours", lambda stored: _files(public("DataLoader"), stored)),
            # Created for each measurement: a dataset keeps a small file in memory.
            ours("PackedDataset, ours", lambda stored: _packed(public("DataLoader"), stored), afresh=True),
            ours("PackedDataset, chunks", _chunked, same_batches=False, afresh=True),
            ours(
                "TensorFiles, direct",
                lambda stored: _files(public("DataLoader"), stored, direct=True),
                faster(12),
                _EMPTY,
                limit=_FILES_ALONE.name,
                read_directly=lambda stored: stored.paths,
            ),
            ours(
                "Packed, direct",
                lambda stored: _packed(public("DataLoader"), stored, read="direct"),
                faster(14),
                _EMPTY,
                limit=_ROWS_ALONE.name,
                read_directly=lambda stored: [stored.packed()],
            ),
            ours(
                "chunks, direct",
                lambda stored: _chunked(stored, read="direct"),
                faster(17),
                _EMPTY,
                limit=_CHUNKS_ALONE.name,
                same_batches=False,
                read_directly=lambda stored: [stored.packed()],
            ),
            _FILES_ALONE,
            _ROWS_ALONE,
            _CHUNKS_ALONE,
        ),
        before=_forget,
    ),
)  # fmt: skip
