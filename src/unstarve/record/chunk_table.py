"""All chunks of a run file at once: for files of millions of small chunks, as a training writes them.

The marks at the beginning of chunks are found in one go. If they do not form a chain without gaps, or a
checksum is wrong, the file is scanned chunk by chunk: only `Scan` knows how to go on after damage.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unstarve.record import format as f
from unstarve.record.chunks import Chunk, Scan
from unstarve.record.rows import Packed

_HEADER = np.dtype(
    [("sync", "<u4"), ("stream", "<u4"), ("kind", "<u2"), ("row", "<u2"), ("length", "<u4"), ("crc", "<u4")]
)
_SYNC = int.from_bytes(f.SYNC, "little")


@dataclass
class StreamChunks:
    """What one process wrote."""

    metas: list[bytes] = field(default_factory=list)
    """Payloads of its METAs, in order."""
    rows: dict[int, list[Packed]] = field(default_factory=lambda: defaultdict(list))
    """By kind, joined."""


def chunks_by_stream(data: bytes, version: int) -> dict[int, StreamChunks]:
    """The whole chunks of a file by the process that wrote them."""
    found: dict[int, StreamChunks] = defaultdict(StreamChunks)
    if not _at_once(data, version, found):
        found.clear()
        for one in Scan(data, version, f.HEADER.size):
            _add(found, one)
    return found


def _at_once(data: bytes, version: int, found: dict[int, StreamChunks]) -> bool:
    octets = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(octets[: 1 - f.CHUNK.size] == f.SYNC[0]) if len(data) > f.CHUNK.size else octets[:0]
    heads = np.lib.stride_tricks.sliding_window_view(octets, f.CHUNK.size)[at].view(_HEADER)[:, 0]
    at, heads = at[heads["sync"] == _SYNC], heads[heads["sync"] == _SYNC]
    payloads = at + f.CHUNK.size
    ends = payloads + heads["length"]
    chained = len(at) and at[0] == f.HEADER.size and ends[-1] == len(data) and (ends[:-1] == at[1:]).all()
    if version == 1 or not chained:
        return False
    view, head = memoryview(data), len(f.SYNC)
    bounds = zip(at.tolist(), payloads.tolist(), ends.tolist(), heads["crc"].tolist(), strict=True)
    if any(
        zlib.crc32(view[begin:end], zlib.crc32(view[mark + head : mark + head + f.CHUNK_HEAD.size])) != crc
        for mark, begin, end, crc in bounds
    ):
        return False
    is_meta = heads["kind"] == f.META
    for place in np.flatnonzero(is_meta).tolist():
        found[int(heads["stream"][place])].metas.append(data[payloads[place] : ends[place]])
    rows = np.flatnonzero(~is_meta)
    kinds = heads[["stream", "kind", "row", "length"]][rows]
    alike, which = np.unique(kinds, return_inverse=True)
    for number, (stream, kind, row_size, length) in enumerate(alike.tolist()):
        known = f.ROW_KINDS.get(kind)
        if known is None or row_size < known.size or not length or length % row_size:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(octets, length)
        joined = windows[payloads[rows[which == number]]].tobytes()
        found[stream].rows[kind].append((row_size, joined))
    return True


def _add(found: dict[int, StreamChunks], one: Chunk) -> None:
    if one.kind == f.META:
        found[one.stream].metas.append(one.payload)
    elif one.kind in f.ROW_KINDS:
        found[one.stream].rows[one.kind].append((one.row_size, one.payload))


def joined_rows(packed: list[Packed]) -> list[tuple[int, Any]]:
    """Payloads of one size of row, each no larger than a chunk may be."""
    by_size: dict[int, list[bytes]] = defaultdict(list)
    for row_size, payload in packed:
        by_size[row_size].append(payload)
    pieces = []
    for row_size, payloads in by_size.items():
        whole, most = b"".join(payloads), f.MOST_BYTES // row_size * row_size
        pieces += [(row_size, whole[at : at + most]) for at in range(0, len(whole), most)]
    return pieces
