"""Layout of a run file, version 3.

While a command runs, ``NAME.unstarve`` holds only what the launcher knows, and every training process
appends to its own file in ``NAME.unstarve.parts/``. When the command ends, the launcher folds the parts
into ``NAME.unstarve`` and removes the folder. Both kinds of file have the same layout, so a run whose
launcher was killed can be read just as well::

    file    header chunk*
    header  8 s  magic  b"UNSTARVE"
            u16  version
            u16  reserved, 0
            u32  reserved, 0
    chunk   4 s  sync   b"\\xf5us\\n": lets a reader find the next chunk after damage
            u32  stream: identifies the process that wrote it; chunks of several may come in any order
            u16  kind: META or a key of ROWS
            u16  row size in bytes; 0 for META
            u32  payload length in bytes, at least 1
            u32  CRC-32 of stream, kind, row size, length and payload
            payload

A META payload is one UTF-8 JSON object; `metas` lists what they say.

A row payload is a whole number of fixed-size rows, all of the kind that the chunk names. `row_fields`
declares each kind once: the order, type, unit and meaning of its fields. A later version may append fields to
a row: readers go by the row size in the chunk and ignore the fields they do not know. Everything is
little-endian.

A chunk is never larger than `MOST_BYTES`, a META no larger than `MOST_META_BYTES`: a reader that looks for
the next chunk after damage skips anything else without hashing it.

Earlier versions are still read. Version 1 has a CRC that covers the payload alone, so a damaged header could
assign a payload to the wrong process or kind. Version 2 knows no `THINNED` rows: what stands for many steps
would be read as one.
"""

# ruff: noqa: I001  # names re-exported as themselves would take a statement each
import struct
from typing import NamedTuple

from unstarve.record.row_fields import (
    BackwardRow as BackwardRow,
    BatchRow as BatchRow,
    BucketRow as BucketRow,
    CopyRow as CopyRow,
    CountRow as CountRow,
    EnginesRow as EnginesRow,
    EpochBeginRow as EpochBeginRow,
    EpochEndRow as EpochEndRow,
    EpochNoGradRow as EpochNoGradRow,
    EpochSamplerRow as EpochSamplerRow,
    GaugeRow as GaugeRow,
    HelpedRow as HelpedRow,
    MeetingRow as MeetingRow,
    MemoryRow as MemoryRow,
    PulseRow as PulseRow,
    ReceivedRow as ReceivedRow,
    SentRow as SentRow,
    StallRow as StallRow,
    WindowRow as WindowRow,
    WorkRow as WorkRow,
)

MAGIC = b"UNSTARVE"
VERSION = 3
SUFFIX = ".unstarve"
PARTS_SUFFIX = ".parts"
PART_SUFFIX = ".part"
FOLDED = "folded.part"
"""The part into which closed segments of all processes have been thinned."""
FULL = "full"
"""A file in the parts folder: recording stops, because the run cannot be kept small enough."""

HEADER = struct.Struct("<8sHHI")
CHUNK = struct.Struct("<4sIHHII")
CHUNK_HEAD = struct.Struct("<IHHI")
"""The part of a chunk's header between the sync mark and the CRC."""
SYNC = b"\xf5us\n"

MOST_BYTES = 1 << 24
MOST_META_BYTES = 1 << 22
MOST_KINDS = 1 << 12
"""All kinds are smaller than this, those of later versions too."""
RESERVE_BYTES = 4096
"""Size of the ``reserve`` chunk's payload."""

META = 1

NESTED = 1
"""Flag: asked for while another loader's ``next()`` was running in the same thread."""
REPLAY = 2
"""Flag: `unstarve ideal` handed out a cached batch."""
SETTLING = 4
"""Flag: `unstarve ideal` has just changed phase, so the step says nothing about either."""
FAILED = 8
"""Flag: making the batch raised an exception."""
SHARED = 16
"""Flag: other processes use the device, too."""

PINNED = 64
"""Flag of copies: from page-locked memory."""
NON_BLOCKING = 128
"""Flag of copies: with ``non_blocking=True``."""
BESIDE = 256
"""Flag of copies: on another stream than training's."""

THINNED = 32
"""Flag of batches and work: the row stands for several, as a `CountRow` says; see `record.thinning`."""

NO_LOADER = 0xFFFF
"""The `loader` of a worker's rows: a worker does not know the number; readers find it by the worker's pid."""

BATCH_WAIT = 0
BEGIN_WAIT = 1
END_WAIT = 2
"""Kinds of wait: ``next()`` that returned a batch, ``iter()``, ``next()`` that returned none."""

PULSE_DOING = ("wait", "fetch", "collate", "step")
"""What a `PulseRow` can say the watched thread was doing, numbered from 1; a worker waits for indices."""
WAITS = 0
STEPS = 1
"""Measures of a `BucketRow`."""

BATCH = 2
EPOCH_BEGIN = 3
EPOCH_END = 4
STALL = 5
GAUGE = 6
PULSE = 7
EPOCH_SAMPLER = 8
WORK = 10
SENT = 11
RECEIVED = 12
HELPED = 13
EPOCH_NO_GRAD = 14
BACKWARD = 15
MEETING = 16
WINDOW = 17
MEMORY = 20
COUNT = 21
BUCKET = 22
COPY = 23
ENGINES = 24

ROWS: dict[int, type[NamedTuple]] = {
    BATCH: BatchRow,
    EPOCH_BEGIN: EpochBeginRow,
    EPOCH_END: EpochEndRow,
    STALL: StallRow,
    GAUGE: GaugeRow,
    PULSE: PulseRow,
    EPOCH_SAMPLER: EpochSamplerRow,
    WORK: WorkRow,
    SENT: SentRow,
    RECEIVED: ReceivedRow,
    HELPED: HelpedRow,
    EPOCH_NO_GRAD: EpochNoGradRow,
    BACKWARD: BackwardRow,
    MEETING: MeetingRow,
    WINDOW: WindowRow,
    MEMORY: MemoryRow,
    COUNT: CountRow,
    BUCKET: BucketRow,
    COPY: CopyRow,
    ENGINES: EnginesRow,
}
"""The declaration of each kind of row."""


def letters(kind: int) -> str:
    """The types of a row's fields in the notation of `struct`."""
    return "".join(declared.__metadata__[0] for declared in ROWS[kind].__annotations__.values())


ROW_KINDS = {kind: struct.Struct(f"<{letters(kind)}") for kind in ROWS}
"""The layout of each kind of row."""


def columns(kind: int, row_size: int, *names: str) -> struct.Struct:
    """A layout that reads only the named fields, in the order of the row, from rows of `row_size` bytes."""
    known = ROWS[kind].__annotations__.items()
    read = [
        declared.__metadata__[0] if name in names else f"{struct.calcsize('<' + declared.__metadata__[0])}x"
        for name, declared in known
    ]
    return struct.Struct(f"<{''.join(read)}{row_size - ROW_KINDS[kind].size}x")


def segment_name(stem: str, number: int) -> str:
    """The name of a process's part: its first segment has the number 0."""
    return f"{stem}{f'.{number:06}' if number else ''}{PART_SUFFIX}"


def segment_of(name: str) -> tuple[str, int]:
    """The stem of a part's name, and the number of the segment."""
    stem, _, number = name.removesuffix(PART_SUFFIX).rpartition(".")
    return (stem, int(number)) if stem and number.isdecimal() else (name.removesuffix(PART_SUFFIX), 0)


def header() -> bytes:
    """The first bytes of a run file."""
    return HEADER.pack(MAGIC, VERSION, 0, 0)
