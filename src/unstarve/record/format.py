"""Layout of a run file, version 2.

While a command runs, ``NAME.unstarve`` holds only what the launcher knows; every training process
appends to a file of its own in ``NAME.unstarve.parts/``. When the command ends, the launcher folds the
parts into ``NAME.unstarve`` and removes the folder. Both kinds of file have the same layout, so a run
whose launcher was killed reads just as well::

    file    header chunk*
    header  8 s  magic  b"UNSTARVE"
            u16  version
            u16  reserved, 0
            u32  reserved, 0
    chunk   4 s  sync   b"\\xf5us\\n": where a reader finds its feet again behind damage
            u32  stream: which process wrote it; chunks of several may follow each other in any order
            u16  kind: META or one of ROW_KINDS
            u16  row size in bytes; 0 for META
            u32  payload length in bytes, at least 1
            u32  CRC-32 of stream, kind, row size, length and payload
            payload

A META payload is one UTF-8 JSON object with a key ``meta`` that names what it is:

    launch   command, kind, started_at, pid, host                      (by the launcher, first)
    result   exit_code, error; folded: false where the parts stayed    (by the launcher, last)
    process  pid, host, rank, worker, versions, start_ns, offset_ns    (first of a process)
    loader   id, name, where, kind, config, source
    batch    loader, tensors: in its first batch
    crew     loader, epoch, pids: the workers of an epoch
    sampled  found, cpu_s: what the stack sampler has seen so far      (again and again: the last one counts)
    system   cores, quota, …: what the process knows of its machine    (the same)
    transforms  spent: name, seconds, calls of single transforms       (the same)
    device   name, rank                                                (when training has begun, at its end)
    lost     message: something could not be recorded
    end      end_ns, stopped                                           (last of a process)
    reserve  padding: room to write ``lost`` or ``result`` when the disk is full

A row payload is a whole number of fixed-size rows. A later version may append fields to a row: readers
go by the row size in the chunk and ignore what they do not know. Everything is little-endian.

A chunk is never larger than `MOST_BYTES`, a META no larger than `MOST_META_BYTES`: a reader that looks for
the next chunk behind damage passes over anything else without hashing it.

Version 1, which is still read, is the same but for the CRC: it covers the payload alone, so that a damaged
header could give a payload to another process or kind.
"""

from __future__ import annotations

import struct

MAGIC = b"UNSTARVE"
VERSION = 2
SUFFIX = ".unstarve"
PARTS_SUFFIX = ".parts"
PART_SUFFIX = ".part"

HEADER = struct.Struct("<8sHHI")
CHUNK = struct.Struct("<4sIHHII")
CHUNK_HEAD = struct.Struct("<IHHI")
"""Of a chunk: what stands between the sync mark and the CRC."""
SYNC = b"\xf5us\n"

MOST_BYTES = 1 << 24
MOST_META_BYTES = 1 << 22
MOST_KINDS = 1 << 12
"""Kinds are smaller than this, those of later versions too."""

META = 1
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

BATCH_ROW = struct.Struct("<HHIIIiqQQIIiiQQqQq")
"""loader, flags, epoch, index, thread, size, bytes, ask, got, own_ns, block,
task, ready, sampler_ns, wait_cpu_ns, wait_queued_ns, step_cpu_ns, step_queued_ns; −1 is unknown."""
EPOCH_BEGIN_ROW = struct.Struct("<HHIIQQ")
"""loader, flags, epoch, thread, begin, ready."""
EPOCH_SAMPLER_ROW = struct.Struct("<HHIQ")
"""loader, flags, epoch, sampler_ns: what the sampler took of the time from begin to ready, if any."""
EPOCH_END_ROW = struct.Struct("<HHIQQ32s")
"""loader, flags, epoch, last ask, end, type of the exception that ended it (UTF-8, cut, NUL-padded)."""
STALL_ROW = struct.Struct("<HHIIHHQQQ")
"""loader, kind of wait, epoch, index, device, flags, ask, got, stall_ns: the part of the wait in which the
device had nothing to do. Written some steps later, when the device has come that far."""
GAUGE_ROW = struct.Struct("<HHQiqq")
"""device, flags, at, utilization since the row before (percent), memory used, memory of the device (bytes);
−1 is unknown."""
PULSE_ROW = struct.Struct("<HHQqqqqqqq")
"""doing (0 unknown, then as in `PULSE_DOING`), flags, at; of the watched thread since it began: cpu_ns,
queued_ns; of the process: bytes read from storage, resident bytes, of these shared ones; of the machine's
/dev/shm: bytes in use, bytes in all; −1 is unknown. About one a second and process."""
WORK_ROW = struct.Struct("<HHIIIQQQQqqqqqqqqqqqqqI")
"""loader, flags, iteration, task, samples, received, begin, collate, done; of fetching: cpu_ns, system_ns,
queued_ns, asked_bytes, storage_bytes, delay_ns, major_faults, switches; of collating: cpu_ns, system_ns,
queued_ns; slow_index, slow_ns, opens; −1 is unknown."""
SENT_ROW = struct.Struct("<IIQQQq")
"""task, iteration, put, begin, end, cpu_ns."""
RECEIVED_ROW = struct.Struct("<HHIIQQQ")
"""loader, flags, epoch, task, arrived, ready, pinned."""
HELPED_ROW = struct.Struct("<IIQH")
"""task, iteration, cpu_ns, loader: what other threads of the process computed for that batch while it was
made. Only where it is much; what sends batches is not counted."""

ROW_KINDS = {
    BATCH: BATCH_ROW,
    EPOCH_BEGIN: EPOCH_BEGIN_ROW,
    EPOCH_SAMPLER: EPOCH_SAMPLER_ROW,
    EPOCH_END: EPOCH_END_ROW,
    STALL: STALL_ROW,
    GAUGE: GAUGE_ROW,
    PULSE: PULSE_ROW,
    WORK: WORK_ROW,
    SENT: SENT_ROW,
    RECEIVED: RECEIVED_ROW,
    HELPED: HELPED_ROW,
}

NESTED = 1
REPLAY = 2
SETTLING = 4
FAILED = 8
SHARED = 16
NO_LOADER = 0xFFFF
"""A worker does not know its loader's number; the training process tells it by the worker's pid."""

BATCH_WAIT = 0
BEGIN_WAIT = 1
END_WAIT = 2
"""Kinds of wait: ``next()`` that gave a batch, ``iter()``, ``next()`` that gave none."""

PULSE_DOING = ("wait", "fetch", "collate", "step")
"""What the watched thread was found doing, counted from 1. A worker waits for indices to fetch."""

RESERVE_BYTES = 4096
"""Size of the ``reserve`` chunk's payload."""


def letters(kind: int) -> str:
    """The fields of a kind of row, one letter each."""
    return ROW_KINDS[kind].format.removeprefix("<")


def header() -> bytes:
    """The first bytes of a run file."""
    return HEADER.pack(MAGIC, VERSION, 0, 0)
