"""The work of `unstarve pack`: load samples in several processes, write them in order, resume."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing as mp
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.errors import StoppedError, UnstarveError, UsageError
from unstarve.fixes.datasets.packed.packed_codec import Encoded, encode
from unstarve.fixes.datasets.packed.packed_partial import partial_folder
from unstarve.fixes.datasets.packed.packed_writer import PackedWriter
from unstarve.fixes.datasets.packed.packing_nodes import HeldFiles, Nodes
from unstarve.fixes.datasets.packed.packing_sources import (
    FileSamples,
    Origin,
    StreamedSamples,
    find_origin,
    in_words,
)
from unstarve.fixes.datasets.packed.source_files import Links

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class PackOrder:
    """What to pack and how, from the command line."""

    sources: tuple[str, ...]
    destination: Path
    labels: bool = False
    raw: bool = False
    jobs: int = 1
    seed: int = 0
    skip_bad: bool = False
    force: bool = False
    restart: bool = False


@dataclass(frozen=True)
class PackResult:
    """The result of packing."""

    samples: int
    size_bytes: int
    resumed_from: int
    left_out: tuple[str, ...]
    links: Links
    """Symbolic links in the source that the user should know about."""


class PackListener(Protocol):
    """Receives progress and notes."""

    def reach(self, done: int, total: int | None) -> None:
        """Report that `done` of `total` samples (None: unknown) are done."""
        ...

    def note(self, text: str) -> None:
        """Report something the user should know."""
        ...


def pack(order: PackOrder, listener: PackListener, nodes: Nodes | None = None) -> PackResult:
    """Pack the sources; with `nodes`, other machines load the samples of the files that they hold.

    Raises UnstarveError, which says what failed, what was kept and how to continue.
    """
    elsewhere = None if nodes is None else HeldFiles(nodes)
    try:
        origin = find_origin(
            order.sources,
            labels=order.labels,
            raw=order.raw,
            leave_out=order.destination,
            elsewhere=elsewhere,
        )
        if order.destination.is_file() and not order.force:
            raise UsageError(
                f"{order.destination} exists already: choose another name, or replace it with --force"
            )
        writer = PackedWriter(
            order.destination, overwrite=order.force, resume=not order.restart, about=origin.about
        )
    except OSError as error:
        raise UnstarveError(_write_error(error, order.destination)) from error
    try:
        state = _resumed(order, origin, writer)
        return _pack(order, origin, writer, state, listener, elsewhere)
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; {_what_is_kept(writer)}") from None
    except UsageError:
        raise
    except UnstarveError as error:
        error.args = (f"{error}; {_what_is_kept(writer)}",)
        raise
    except OSError as error:
        raise UnstarveError(f"{_write_error(error, writer.path)}; {_what_is_kept(writer)}") from error
    except RuntimeError as error:  # from torch's loader: a worker was killed
        raise UnstarveError(f"{in_words(error)}; {_what_is_kept(writer)}") from error
    finally:
        writer.leave()


class _PackState:
    """Which of the origin's samples are done; saved at each checkpoint."""

    def __init__(self, order: PackOrder, origin: Origin | StreamedSamples) -> None:
        self._origin = origin
        kind = [origin.kind, order.labels, order.raw, order.seed, origin.about.get("classes")]
        self._digest = hashlib.sha256(json.dumps(kind).encode())
        if not isinstance(origin, FileSamples):
            self._digest.update(origin.about["source"].encode())
        self.done = 0
        self.left_out: tuple[str, ...] = ()

    def advance(self, left_out: str | None = None) -> None:
        """Count one more sample, packed or skipped."""
        self._digest.update(b"\0" + (self.name() or "").encode("utf-8", "surrogatepass"))
        self.done += 1
        if left_out is not None:
            self.left_out += (left_out,)

    def name(self) -> str | None:
        """Return the name of the next sample."""
        return None if isinstance(self._origin, StreamedSamples) else self._origin.name(self.done)

    def position(self) -> dict[str, Any]:
        """Return the state to save."""
        return {"done": self.done, "left_out": self.left_out, "digest": self._digest.hexdigest()}


def _resumed(order: PackOrder, origin: Origin | StreamedSamples, writer: PackedWriter) -> _PackState:
    """Return the state of the last attempt. Raises UsageError if it packed something else."""
    state = _PackState(order, origin)
    before = writer.position
    if before is None:
        return state
    match before:
        case {"left_out": list(left_out), "digest": str(digest)}:
            done = writer.count + len(left_out)
            while state.done < (done if isinstance(origin, StreamedSamples) else min(done, len(origin))):
                state.advance()
            state.left_out = tuple(map(str, left_out))
            if state.position()["digest"] == digest:
                return state
    raise UsageError(
        f"{order.destination} was begun with other samples or options: start over with --restart"
    )


def _pack(
    order: PackOrder,
    origin: Origin | StreamedSamples,
    writer: PackedWriter,
    state: _PackState,
    listener: PackListener,
    elsewhere: HeldFiles | None,
) -> PackResult:
    resumed_from = state.done
    if resumed_from:
        listener.note(f"resuming after sample {resumed_from}, where the last attempt stopped")
    elif is_random(origin, order.seed):
        listener.note(
            "the first sample differs when it is loaded twice: random transforms are packed as drawn now; "
            "to draw a new one in every epoch, pack without them and pass them as PackedDataset(transform=…)"
        )
    total = None if isinstance(origin, StreamedSamples) else len(origin)
    samples = encoded_samples(origin, resumed_from, jobs=order.jobs, seed=order.seed, elsewhere=elsewhere)
    for first_try in samples:
        name = state.name()
        result = first_try
        if isinstance(first_try, FailedSample):
            result = _once_more(origin, state.done, order.seed) or first_try
        if isinstance(result, FailedSample):
            text = f"sample {state.done}{'' if name is None else f' ({name})'} {result.message}"
            if not order.skip_bad:
                raise UnstarveError(f"{text}; repair it, or skip it with --skip-bad")
            listener.note(f"skipped: {text}")
            state.advance(left_out=name or str(state.done))
            writer.position = state.position()
            continue
        state.advance()
        writer.append_encoded(result, name, state.position())
        listener.reach(state.done, total)
    if writer.count == 0:
        raise UsageError(f"no samples in {' '.join(order.sources)}")
    if state.left_out:
        writer.about["left_out"] = list(state.left_out)
    writer.close()
    links = origin.links if isinstance(origin, FileSamples) else Links()
    return PackResult(writer.count, writer.path.stat().st_size, resumed_from, state.left_out, links)


def _once_more(origin: Origin | StreamedSamples, number: int, seed: int) -> Encoded | None:
    """Load a sample that could not be loaded again: storage may have failed for a moment."""
    again = None if isinstance(origin, StreamedSamples) else EncodeTask(origin, seed).encode(number)
    return again if isinstance(again, Encoded) else None


def _what_is_kept(writer: PackedWriter) -> str:
    kept = writer.leave()
    if kept == 0:
        return "nothing was packed yet"
    folder = partial_folder(writer.path)
    return f"{kept} samples are kept in {folder}: run the same command again to resume"


def _write_error(error: OSError, path: Path) -> str:
    if error.errno in _FULL:
        return f"no space left for {path} ({error.strerror})"
    return f"{error.filename or path}: {error.strerror or error}"


_TASK_BYTES = 4 << 20
_TASK_S = 0.2
_MAX_PER_TASK = 64
_FEW_SAMPLES = 32
"""Packing fewer samples takes less time than starting a process."""


@dataclass(frozen=True, slots=True)
class FailedSample:
    """Why a sample could not be loaded or encoded."""

    message: str


def encoded_samples(
    origin: Origin | StreamedSamples, first: int, *, jobs: int, seed: int, elsewhere: HeldFiles | None = None
) -> Iterator[Encoded | FailedSample]:
    """Yield the samples from number `first` on.

    Random generators are seeded for each sample, so that the result does not depend on the process or
    attempt.
    """
    if isinstance(origin, StreamedSamples):
        yield from _streamed(origin, first)
        return
    task = EncodeTask(origin, seed)
    numbers = range(first, len(origin))
    if elsewhere is not None:
        first_one = list(elsewhere.load(task.__getitems__, numbers[:1], origin.file, 1))
        yield from first_one
        size_bytes = max((one.size_bytes for one in first_one if isinstance(one, Encoded)), default=0)
        most = max(1, min(_TASK_BYTES // max(size_bytes, 1), _MAX_PER_TASK))
        yield from elsewhere.load(task.__getitems__, numbers[1:], origin.file, most)
        return
    if jobs < 2 or len(numbers) < _FEW_SAMPLES:
        for number in numbers:
            yield task.encode(number)
        return
    begun = time.monotonic()
    opening = task.encode(first)
    seconds = time.monotonic() - begun
    yield opening
    size = opening.size_bytes if isinstance(opening, Encoded) else 0
    step = min(_TASK_BYTES // max(size, 1), int(_TASK_S / max(seconds, 1e-6)), len(numbers) // jobs)
    step = max(1, min(step, _MAX_PER_TASK))
    groups = [list(range(at, min(at + step, numbers.stop))) for at in range(first + 1, numbers.stop, step)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # the user asked for this many
        loader: DataLoader[Any] = DataLoader(
            task,
            batch_sampler=groups,
            num_workers=jobs,
            collate_fn=_unchanged,
            # A script's objects cannot always be pickled; a forked process has them.
            multiprocessing_context="fork" if "fork" in mp.get_all_start_methods() else None,
        )
        groups_done = iter(loader)
    for group in groups_done:
        yield from group


class EncodeTask(Dataset[Any]):
    """The work of a worker process: load and encode samples."""

    def __init__(self, origin: Origin, seed: int) -> None:
        self._origin = origin
        self._seed = seed

    def encode(self, number: int) -> Encoded | FailedSample:
        """Load and encode one sample, with generators seeded for it."""
        seed_everything(self._seed * 0x9E3779B97F4A7C15 + number)
        try:
            sample = self._origin.load(number)
            return encode(sample)
        except UnstarveError as error:
            return FailedSample(str(error))
        except Exception as error:  # whatever a user's dataset raises
            return FailedSample(f"failed with {in_words(error)}")

    def __getitems__(self, numbers: Sequence[int]) -> list[Encoded | FailedSample]:
        return [_sendable(self.encode(number)) for number in numbers]


def is_random(origin: Origin | StreamedSamples, seed: int) -> bool:
    """Whether the first sample differs when it is loaded twice."""
    if isinstance(origin, StreamedSamples) or len(origin) == 0:
        return False
    one, other = EncodeTask(origin, seed).encode(0), EncodeTask(origin, seed + 1).encode(0)
    return isinstance(one, Encoded) and isinstance(other, Encoded) and one.checksum != other.checksum


def seed_everything(seed: int) -> None:
    """Seed the generators that a dataset may use."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed % 2**63)  # torch.manual_seed asks every device: 90 µs


def _streamed(origin: StreamedSamples, first: int) -> Iterator[Encoded | FailedSample]:
    samples = iter(origin)
    number = 0
    while True:
        try:
            sample = next(samples)
        except StopIteration:
            return
        except Exception as error:  # whatever a user's dataset raises; a stream cannot continue after it
            raise UnstarveError(f"sample {number} failed with {in_words(error)}") from error
        if number >= first:
            try:
                yield encode(sample)
            except UnstarveError as error:
                yield FailedSample(str(error))
        number += 1


def _sendable(result: Encoded | FailedSample) -> Encoded | FailedSample:
    if isinstance(result, FailedSample):
        return result
    return replace(result, payloads=tuple(bytes(payload) for payload in result.payloads))


def _unchanged(group: Any) -> Any:
    return group
