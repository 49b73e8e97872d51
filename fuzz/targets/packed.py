"""Packed datasets: columns, records, tables and an index in JSON, each with a checksum."""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

import unstarve
from fuzz.changes import NUMBERS, bytes_changed, deep_json, json_changed, json_text
from packed_samples import ONE_OF_EACH, images, mixed, ragged
from unstarve.errors import UnstarveError
from unstarve.fixes.datasets.packed.packed_contents import verify
from unstarve.fixes.datasets.packed.packed_format import FOOTER, Footer


@functools.cache
def seeds() -> list[bytes]:
    samples: list[list[Any]] = [images(5), ragged(5), mixed(6), [ONE_OF_EACH], [(1, 2.5)] * 3, []]
    return [_packed(some, named=number % 2 == 0) for number, some in enumerate(samples)]


def hostile() -> dict[str, bytes]:
    """An index that promises more than there is; its checksum is right."""
    columns, records = seeds()[0], seeds()[1]
    return {
        "very many samples": _with_index(columns, samples=2**61),
        "very many rows of nothing": _with_index(
            columns, columns={"schema": {"tuple": []}, "rows": 2**61, "leaves": []}, samples=2**61
        ),
        "0 × 10^18 × 10^18": _with_index(
            columns,
            columns={
                "schema": ["tensor", "float32", 3],
                "rows": 5,
                "leaves": [{"shape": [0, 10**18, 10**18], "offset": 4096}],
            },
        ),
        "a schema without end": _with_index(
            columns, records={"schemas": [json.loads(deep_json(300))], "table": {}}
        ),
        "an index of nested lists": _refooted(columns, deep_json(100_000)),
        "an index that is a list": _refooted(columns, b"[]"),
        "names that end before they start": _with_table(records, "checksums", b"\xff" * 20),
    }


def changed(data: bytes, random: Random) -> bytes:
    """Another index or another table, with checksums that are right."""
    try:
        index = _index(data)
    except (ValueError, RecursionError):
        return bytes_changed(data, data, random)
    tables = _tables(index)
    if tables and random.random() < 0.4:
        return _other_table(data, index, random.choice(tables), random)
    return _refooted(data, json_text(json_changed(index, random)))


def run(data: bytes, folder: Path) -> None:
    file = folder / "input.packed"
    file.write_bytes(data)
    with contextlib.suppress(UnstarveError):  # opening it says the same
        verify(file)
    for read in ("pread", "view"):
        dataset = unstarve.PackedDataset(file, read=read)
        repr((dataset.about, dataset.classes, dataset.names and dataset.names[:3]))
        indices = sorted({0, len(dataset) // 2, len(dataset) - 1}) if len(dataset) else []
        for index in indices:
            repr(dataset[index])
        if indices and dataset.rows() is not None:
            dataset.read_batch(indices)


def _other_table(data: bytes, index: dict[str, Any], table: dict[str, int], random: Random) -> bytes:
    start, size = table["offset"], table["bytes"]
    content = bytearray(data[start : start + size])
    for _ in range(random.randint(1, 3)):
        at = random.randrange(max(len(content), 1)) // 8 * 8
        content[at : at + 8] = (random.choice(NUMBERS) % 2**64).to_bytes(8, "little")
    content = content[:size].ljust(size, b"\0")
    table["crc"] = zlib.crc32(content)
    return _refooted(data[:start] + content + data[start + size :], json_text(index))


def _tables(value: Any) -> list[dict[str, int]]:
    """All tables of an index, to be changed in place."""
    if not isinstance(value, dict):
        return []
    if value.keys() == {"offset", "bytes", "crc"} and all(
        type(v) is int and 0 <= v < 2**32 for v in value.values()
    ):
        return [value]
    return [table for part in value.values() for table in _tables(part)]


def _with_index(data: bytes, **changes: Any) -> bytes:
    return _refooted(data, json_text(_index(data) | changes))


def _with_table(data: bytes, name: str, content: bytes) -> bytes:
    index = _index(data)
    table = index[name]
    table["crc"] = zlib.crc32(content.ljust(table["bytes"], b"\0")[: table["bytes"]])
    start, end = table["offset"], table["offset"] + table["bytes"]
    return _refooted(
        data[:start] + content.ljust(end - start, b"\0")[: end - start] + data[end:], json_text(index)
    )


def _index(data: bytes) -> Any:
    start, length = _footer(data)
    return json.loads(data[start : start + length])


def _footer(data: bytes) -> tuple[int, int]:
    start, length, *_ = FOOTER.unpack(data[-FOOTER.size :].rjust(FOOTER.size, b"\0"))
    return start, length


def _refooted(data: bytes, text: bytes) -> bytes:
    """The file with another index."""
    start, _ = _footer(data)
    return data[:start] + text + Footer(start, len(text), zlib.crc32(text)).pack()


def _packed(samples: list[Any], *, named: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "seed")
        with unstarve.PackedWriter(file, about={"classes": ["cat", "dog"]}) as writer:
            for number, sample in enumerate(samples):
                writer.append(sample, f"sample {number}" if named else None)
        return file.read_bytes()
