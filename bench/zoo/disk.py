"""Samples that come from local storage, and not from the page cache.

Reads are cold: the training process drops the files from the page cache during every step, so that loading
itself does nothing but read.
"""

from __future__ import annotations

import functools
import mmap
import os
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.cgroups import limited, needs, slow_disk
from zoo.data import Items, Stream, fit
from zoo.truth import Truth
from zoo.work import Device

FILE = "samples.bin"
MIB = 1 << 20
SIZE = 512 * MIB


def write_file(name: str, size: int) -> None:
    """A file on the disk and not in memory."""
    piece = os.urandom(MIB)
    with Path(name).open("wb") as file:
        for _ in range(size // MIB):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@functools.cache
def buffer(size: int) -> mmap.mmap:
    """Aligned, as O_DIRECT requires, and mapped once, so that a read causes no page faults."""
    return mmap.mmap(-1, size)


@dataclass(frozen=True)
class ColdReads:
    """A sample is as many blocks at random places as come within `ms`, or `blocks` of them."""

    block: int
    ms: float = 0.0
    blocks: int = 0
    flags: int = os.O_RDONLY

    def __call__(self, index: int) -> torch.Tensor:
        places = random.Random(index)
        descriptor = os.open(FILE, self.flags)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        until, count = time.perf_counter() + self.ms / 1e3, 0
        while count < self.blocks or time.perf_counter() < until:
            os.preadv(descriptor, [buffer(self.block)], places.randrange(SIZE // self.block) * self.block)
            count += 1
        os.close(descriptor)
        return torch.tensor(count)


@dataclass(frozen=True)
class ColdFile:
    """A sample is one whole file, read in one piece."""

    names: Sequence[str]
    size: int

    def __call__(self, index: int) -> torch.Tensor:
        with Path(self.names[index % len(self.names)]).open("rb", buffering=0) as file:
            return torch.tensor(file.readinto(buffer(self.size)))


@dataclass(frozen=True)
class ColdPages:
    """A sample is what can be touched of a memory-mapped file within `ms`, at random places."""

    ms: float

    def __call__(self, index: int) -> torch.Tensor:
        places = random.Random(index)
        with Path(FILE).open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            until, total = time.perf_counter() + self.ms / 1e3, 0
            while time.perf_counter() < until:
                total += view[places.randrange(SIZE)]
        return torch.tensor(total)


@dataclass(frozen=True)
class ForgetfulDevice:
    """A training step that waits for an accelerator, on a machine short of memory: the cache is lost."""

    ms: float
    names: Sequence[str] = (FILE,)

    def __call__(self, batch: Any) -> None:
        for name in self.names:
            with Path(name).open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(self.ms / 1e3)


def random_reads(truth: Truth) -> None:
    """Random reads out of one packed file, one worker."""
    write_file(FILE, SIZE)
    data = Items(560, ColdReads(1 << 17, ms=4.0))
    fit(truth, DataLoader(data, batch_size=8, num_workers=1), ForgetfulDevice(8))


def direct_stream(truth: Truth) -> None:
    """Reads past the page cache, in the training process."""
    write_file(FILE, SIZE)
    data = Stream(560, ColdReads(1 << 19, ms=4.0, flags=os.O_RDONLY | os.O_DIRECT))
    fit(truth, DataLoader(data, batch_size=8), Device(10))


def whole_files(truth: Truth) -> None:
    """Large files, one per sample, one worker."""
    names = [f"{number}.bin" for number in range(24)]
    for name in names:
        write_file(name, 8 * MIB)
    data = Items(640, ColdFile(names, 8 * MIB))
    fit(truth, DataLoader(data, batch_size=8, num_workers=1), ForgetfulDevice(2, names))


def memory_map(truth: Truth) -> None:
    """Page faults, one worker."""
    write_file(FILE, SIZE)
    fit(truth, DataLoader(Items(560, ColdPages(ms=4.0)), batch_size=8, num_workers=1), ForgetfulDevice(1))


def throttled(truth: Truth) -> None:
    """A disk of 40 MB/s, 1.6 MB a batch, two workers."""
    write_file(FILE, SIZE)
    with limited("blkio", slow_disk(40 * 10**6)):
        data = Items(560, ColdReads(1 << 15, blocks=6))
        fit(truth, DataLoader(data, batch_size=8, num_workers=2), ForgetfulDevice(8))


def no_cold_reads() -> str | None:
    """Say why a file in the temporary folder cannot be read cold, for example because it is in memory."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(os.urandom(4 * MIB))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            before = _bytes_from_storage()
            file.seek(0)
            file.read()
            read = _bytes_from_storage() - before
    except (OSError, ValueError) as error:
        return f"cold reads cannot be made here: {error}"
    return None if read >= 4 * MIB else f"{tempfile.gettempdir()} is not on a disk that can be read cold"


def _bytes_from_storage() -> int:
    """From a line like ``read_bytes: 4096``."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


CASES = (
    Case("disk-random-reads", random_reads, "starved", "disk", why_not=no_cold_reads),
    Case("disk-direct-stream", direct_stream, "starved", "disk", quick=True, why_not=no_cold_reads),
    Case("disk-whole-files", whole_files, "starved", "disk", why_not=no_cold_reads),
    Case("disk-memory-map", memory_map, "starved", "disk", why_not=no_cold_reads),
    Case("disk-throttled", throttled, "starved", "disk", why_not=needs("blkio", lambda: slow_disk(10**6))),
)
