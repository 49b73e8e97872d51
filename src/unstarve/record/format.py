"""Layout of a run file, version 1.

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
            u32  payload length in bytes
            u32  CRC-32 of the payload
            payload

A META payload is one UTF-8 JSON object with a key ``meta`` that names what it is:

    launch   command, kind, started_at, pid, host                      (by the launcher, first)
    result   exit_code, error                                          (by the launcher, last)
    process  pid, host, rank, worker, versions, start_ns, offset_ns    (first of a process)
    loader   id, name, where, kind, config
    device   name, rank                                                (when training has begun, at its end)
    lost     message: something could not be recorded
    end      end_ns, stopped                                           (last of a process)
    reserve  padding: room to write ``lost`` when the disk is full

A row payload is a whole number of fixed-size rows. A later version may append fields to a row: readers
go by the row size in the chunk and ignore what they do not know. Everything is little-endian.
"""

from __future__ import annotations

import struct

MAGIC = b"UNSTARVE"
VERSION = 1
SUFFIX = ".unstarve"
PARTS_SUFFIX = ".parts"

HEADER = struct.Struct("<8sHHI")
CHUNK = struct.Struct("<4sIHHII")
SYNC = b"\xf5us\n"

META = 1
BATCH = 2
EPOCH_BEGIN = 3
EPOCH_END = 4

BATCH_ROW = struct.Struct("<HHIIIiqQQII")
"""loader, flags, epoch, index, thread, size (−1 unknown), bytes (−1 unknown), ask, got, own_ns, block."""
EPOCH_BEGIN_ROW = struct.Struct("<HHIIQQ")
"""loader, flags, epoch, thread, begin, ready."""
EPOCH_END_ROW = struct.Struct("<HHIQQ32s")
"""loader, flags, epoch, last ask, end, type of the exception that ended it (UTF-8, cut, NUL-padded)."""

ROW_KINDS = {BATCH: BATCH_ROW, EPOCH_BEGIN: EPOCH_BEGIN_ROW, EPOCH_END: EPOCH_END_ROW}

NESTED = 1
REPLAY = 2
SETTLING = 4

RESERVE_BYTES = 4096
"""Size of the ``reserve`` chunk's payload."""


def header() -> bytes:
    """The first bytes of a run file."""
    return HEADER.pack(MAGIC, VERSION, 0, 0)
