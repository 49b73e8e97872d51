"""Pack an origin into a file: in parallel, and where the last attempt left off."""

from __future__ import annotations

import errno
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from unstarve.errors import StoppedError, UnstarveError, UsageError
from unstarve.fixes.datasets.packed.crew import Trouble, encoded_samples, is_random
from unstarve.fixes.datasets.packed.origins import Files, Origin, Streamed, find_origin, in_words
from unstarve.fixes.datasets.packed.source_files import Links
from unstarve.fixes.datasets.packed.streams import partial_folder
from unstarve.fixes.datasets.packed.writer import PackedWriter

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Order:
    """What to pack and how, as asked for on the command line."""

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
class Packed:
    """What was packed."""

    samples: int
    size_bytes: int
    resumed_from: int
    left_out: tuple[str, ...]
    links: Links
    """Symbolic links in the source that a user should know of."""


class Witness(Protocol):
    """Is told how the work goes."""

    def reach(self, done: int, total: int | None) -> None:
        """So many samples of so many (None: nobody knows) are done."""
        ...

    def note(self, text: str) -> None:
        """Something a person should know."""
        ...


def pack(order: Order, witness: Witness) -> Packed:
    """Pack what is asked for. UnstarveError says what went wrong, what is kept and how to go on."""
    try:
        origin = find_origin(order.sources, labels=order.labels, raw=order.raw, leave_out=order.destination)
        if order.destination.is_file() and not order.force:
            raise UsageError(
                f"{order.destination} exists already: choose another name, or --force to replace it"
            )
        writer = PackedWriter(
            order.destination, overwrite=order.force, resume=not order.restart, about=origin.about
        )
    except OSError as error:
        raise UnstarveError(_why_not_written(error, order.destination)) from error
    try:
        track = _taken_up(order, origin, writer)
        return _pack(order, origin, writer, track, witness)
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; {_what_stays(writer)}") from None
    except UsageError:
        raise
    except UnstarveError as error:
        error.args = (f"{error}; {_what_stays(writer)}",)
        raise
    except OSError as error:
        raise UnstarveError(f"{_why_not_written(error, writer.path)}; {_what_stays(writer)}") from error
    except RuntimeError as error:  # torch's loader: a worker was killed
        raise UnstarveError(f"{in_words(error)}; {_what_stays(writer)}") from error
    finally:
        writer.leave()


class _Track:
    """Which of the origin's samples were taken, as noted at each checkpoint."""

    def __init__(self, order: Order, origin: Origin | Streamed) -> None:
        self._origin = origin
        kind = [type(origin).__name__, order.labels, order.raw, order.seed, origin.about.get("classes")]
        self._digest = hashlib.sha256(json.dumps(kind).encode())
        if not isinstance(origin, Files):
            self._digest.update(origin.about["source"].encode())
        self.done = 0
        self.left_out: tuple[str, ...] = ()

    def advance(self, left_out: str | None = None) -> None:
        """One more was taken, or was left out."""
        self._digest.update(b"\0" + (self.name() or "").encode("utf-8", "surrogatepass"))
        self.done += 1
        if left_out is not None:
            self.left_out += (left_out,)

    def name(self) -> str | None:
        """What the next sample is called."""
        return None if isinstance(self._origin, Streamed) else self._origin.name(self.done)

    def position(self) -> dict[str, Any]:
        """As noted."""
        return {"done": self.done, "left_out": self.left_out, "digest": self._digest.hexdigest()}


def _taken_up(order: Order, origin: Origin | Streamed, writer: PackedWriter) -> _Track:
    """Stand where the attempt before stood; UsageError where it packed something else."""
    track = _Track(order, origin)
    before = writer.position
    if before is None:
        return track
    match before:
        case {"left_out": list(left_out), "digest": str(digest)}:
            done = writer.count + len(left_out)
            while track.done < (done if isinstance(origin, Streamed) else min(done, len(origin))):
                track.advance()
            track.left_out = tuple(map(str, left_out))
            if track.position()["digest"] == digest:
                return track
    raise UsageError(
        f"{order.destination} was begun with other samples or options: begin anew with --restart"
    )


def _pack(
    order: Order, origin: Origin | Streamed, writer: PackedWriter, track: _Track, witness: Witness
) -> Packed:
    resumed_from = track.done
    if resumed_from:
        witness.note(f"going on behind sample {resumed_from}, where the last attempt was stopped")
    elif is_random(origin, order.seed):
        witness.note(
            "the first sample differs when it is made twice: random changes are packed as they fall this "
            "once; to draw them anew in every epoch, pack without them and give PackedDataset a transform"
        )
    total = None if isinstance(origin, Streamed) else len(origin)
    for result in encoded_samples(origin, resumed_from, jobs=order.jobs, seed=order.seed):
        name = track.name()
        if isinstance(result, Trouble):
            text = f"sample {track.done}{'' if name is None else f' ({name})'} {result.message}"
            if not order.skip_bad:
                raise UnstarveError(f"{text}; repair it, or pack without it by --skip-bad")
            witness.note(f"left out: {text}")
            track.advance(left_out=name or str(track.done))
            writer.position = track.position()
            continue
        track.advance()
        writer.append_encoded(result, name, track.position())
        witness.reach(track.done, total)
    if writer.count == 0:
        raise UsageError(f"there is not one sample in {' '.join(order.sources)}")
    if track.left_out:
        writer.about["left_out"] = list(track.left_out)
    writer.close()
    links = origin.links if isinstance(origin, Files) else Links()
    return Packed(writer.count, writer.path.stat().st_size, resumed_from, track.left_out, links)


def _what_stays(writer: PackedWriter) -> str:
    kept = writer.leave()
    if kept == 0:
        return "nothing was packed yet"
    folder = partial_folder(writer.path)
    return f"{kept} samples are kept in {folder}: run the same command again to go on from there"


def _why_not_written(error: OSError, path: Path) -> str:
    if error.errno in _FULL:
        return f"there is no room for {path} ({error.strerror})"
    return f"{error.filename or path}: {error.strerror or error}"
