"""`PackedWriter`: samples → a packed file that gets its name only when it is complete.

When the writer closes, the largest stream becomes the file and the others are appended to it; each stream
begins with room for a header.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.packed_codec import Encoded, dims_bytes, encode, record_layout
from unstarve.fixes.datasets.packed.packed_format import (
    BLOCK_BYTES,
    CHECKSUM,
    HEADER_BYTES,
    NAME_END,
    RECORD,
    TABLE_ALIGNMENT,
    Footer,
    Schema,
    header,
    record_alignment,
    to_json,
)
from unstarve.fixes.datasets.packed.packed_partial import (
    CHECKSUMS,
    MAX_COLUMNS,
    NAME_ENDS,
    NAMES,
    RECORD_TABLE,
    RECORDS,
    AppendedFile,
    ColumnLayout,
    Journal,
    Partial,
    column_stream,
    is_column,
)
from unstarve.outputs import check_output, put_in_place

_CHECKPOINT_S = 2.0
_CHECKPOINT_SHARE = 0.1
"""Most of the time that checkpoints may take, however slow the storage."""


class PackedWriter:
    """Write a packed file::

        with PackedWriter("train.packed") as writer:
            for sample in samples:
                writer.append(sample)

    Samples are written to ``NAME.partial/``; `close` joins them and gives the file its name at once, so that
    there is never half a file under that name. An exception inside ``with`` removes what was written, unless
    `resume` is set: then it stays, as after a kill, and the next writer with `resume` continues after the
    last checkpoint, with `count` samples already there.

    Raises UsageError if the file exists and `overwrite` is not set. `about` is stored in the file's index
    (JSON) and returned by `PackedDataset.about`; a resumed writer keeps the one it was begun with.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        resume: bool = False,
        about: dict[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self._overwrite = overwrite
        self._resume = resume
        self._check_name()
        try:
            json.dumps(about)
        except (TypeError, ValueError) as error:
            raise UsageError(f"about must be serializable as JSON: {error}") from error
        self._partial = Partial(self.path, resume=resume)
        journal = self._partial.journal or Journal(about=about or {})
        self.count: int = journal.samples
        """Samples in the file so far."""
        self.about: dict[str, Any] = journal.about
        self.position: Any = journal.position
        """The caller's own state, saved at every checkpoint and restored when the work is resumed."""
        self._named: bool | None = journal.named
        self._columns = journal.columns
        self._schemas: dict[Schema, int] = {schema: n for n, schema in enumerate(journal.schemas)}
        self._kept: int = self.count
        self._is_open = True
        self._sound = True  # all streams end after the same sample
        self._next_checkpoint = time.monotonic() + _CHECKPOINT_S

    def append(self, sample: Any, name: str | None = None) -> None:
        """Add a sample: tensors, arrays, numbers, text, bytes, and tuples, lists and dicts of them.

        All samples have a `name` or none has; `PackedDataset.names` returns them. Raises UsageError for a
        sample that cannot be packed, after which the writer can continue, and OSError.
        """
        try:
            encoded = encode(sample)
        except UsageError as error:
            raise UsageError(f"sample {self.count} {error}") from None
        self.append_encoded(encoded, name)

    def append_encoded(self, encoded: Encoded, name: str | None = None, position: Any = None) -> None:
        """Add a sample that was encoded elsewhere; `position` becomes the writer's with it."""
        self._check_usable()
        if self._named is None:
            self._named = name is not None
        if self._named != (name is not None):
            raise UsageError(f"sample {self.count} of {self.path}: all samples must have a name, or none")
        self._sound = False
        if self.count == 0:
            self._columns = columns_for(encoded)
        if self._columns is not None and self._columns == ColumnLayout(encoded.schema, encoded.dims):
            self._add_row(encoded)
        else:
            self._add_record(encoded)
        self._partial.stream(CHECKSUMS).write(np.array(encoded.checksum, CHECKSUM).tobytes())
        if name is not None:
            self._add_name(name)
        self.count += 1
        self.position = position
        self._sound = True
        if time.monotonic() >= self._next_checkpoint:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Make everything appended so far survive a kill or a power cut. Called automatically every 2 s."""
        self._check_usable()
        begun = time.monotonic()
        self._partial.checkpoint(self._journal())
        self._kept = self.count
        now = time.monotonic()
        self._next_checkpoint = now + max(_CHECKPOINT_S, (now - begun) / _CHECKPOINT_SHARE)

    def close(self) -> None:
        """Assemble the file and give it its name. Does nothing the second time."""
        if not self._is_open:
            return
        self._check_name()
        self.checkpoint()
        self._sound = False
        whole = assemble(self._partial, self._journal())
        whole.sync()
        put_in_place(whole.path, self.path)
        self._is_open = False
        self._partial.remove()

    def leave(self) -> int:
        """Stop without finishing; return how many samples stay for a writer with `resume`."""
        if self._is_open:
            if self._sound:
                with contextlib.suppress(OSError):  # a full disk: the last checkpoint stays
                    self.checkpoint()
            self._is_open = False
            if self._kept:
                self._partial.close()
            else:
                self._partial.remove()
        return self._kept

    def discard(self) -> None:
        """Stop, and remove what was written."""
        if self._is_open:
            self._is_open = False
            self._partial.remove()

    def __enter__(self) -> PackedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            if self._resume:
                self.leave()
            else:
                self.discard()
            return
        try:
            self.close()
        except BaseException:  # also Ctrl-C: release the lock
            self.leave()
            raise

    def _add_row(self, encoded: Encoded) -> None:
        for number, payload in enumerate(encoded.payloads):
            if len(payload):
                self._partial.stream(column_stream(number), header()).write(payload)

    def _add_record(self, encoded: Encoded) -> None:
        schema = self._schemas.setdefault(encoded.schema, len(self._schemas))
        starts, size = record_layout(encoded.dims, [len(payload) for payload in encoded.payloads])
        stream = self._partial.stream(RECORDS, header())
        stream.pad(record_alignment(size))
        offset = stream.size
        stream.write(dims_bytes(encoded.dims))
        for start, payload in zip(starts, encoded.payloads, strict=True):
            stream.write(bytes(offset + start - stream.size))
            stream.write(payload)
        row = np.array((self.count, offset, size, schema, 0), RECORD)
        self._partial.stream(RECORD_TABLE).write(row.tobytes())

    def _add_name(self, name: str) -> None:
        text = self._partial.stream(NAMES)
        text.write(name.encode("utf-8", "surrogatepass"))
        self._partial.stream(NAME_ENDS).write(np.array(text.size, NAME_END).tobytes())

    def _journal(self) -> Journal:
        return Journal(
            self.count, self._columns, tuple(self._schemas), self._named, self.about, self.position
        )

    def _check_name(self) -> None:
        check_output(self.path)
        if self.path.exists() and not self._overwrite:
            raise UsageError(f"{self.path} exists already: choose another name, or pass overwrite=True")

    def _check_usable(self) -> None:
        if not self._is_open:
            raise UsageError(f"the writer of {self.path} is closed")
        if not self._sound:
            raise UsageError(f"the writer of {self.path} has failed: create another one with resume=True")


def columns_for(first: Encoded) -> ColumnLayout | None:
    """Return the columns for samples like the first one; None if they are better stored as records."""
    leaves = first.schema.leaves
    if len(leaves) > MAX_COLUMNS or not all(leaf.has_fixed_size for leaf in leaves):
        return None
    return ColumnLayout(first.schema, first.dims)


def assemble(partial: Partial, journal: Journal) -> AppendedFile:
    """Join the streams; return the one that is the whole file now."""
    whole, starts = _joined_data(partial)
    index = {
        "samples": journal.samples,
        "columns": _columns_entry(journal, partial, starts),
        "records": _records_entry(journal, partial, whole, starts),
        "checksums": _table_entry(whole, _content(partial, CHECKSUMS)),
        "names": {
            "ends": _table_entry(whole, _content(partial, NAME_ENDS)),
            "text": _table_entry(whole, _content(partial, NAMES)),
        }
        if journal.named
        else None,
        "about": journal.about,
    }
    text = json.dumps(index, separators=(",", ":")).encode()
    whole.pad(TABLE_ALIGNMENT)
    footer = Footer(whole.size, len(text), zlib.crc32(text))
    whole.write(text)
    whole.write(footer.pack())
    return whole


def _joined_data(partial: Partial) -> tuple[AppendedFile, dict[str, int]]:
    """Return the stream that holds the bytes of all samples, and where each stream starts in it."""
    names = sorted(name for name in partial.streams if name == RECORDS or is_column(name))
    if not names:
        return partial.stream(RECORDS, header()), {}
    base = max(names, key=lambda name: partial.streams[name].size)
    whole = partial.streams[base]
    starts = {base: HEADER_BYTES}
    for name in names:
        if name != base:
            whole.pad(BLOCK_BYTES)
            starts[name] = whole.size
            whole.append_file(partial.streams[name], HEADER_BYTES)
    return whole, starts


def _columns_entry(journal: Journal, partial: Partial, starts: dict[str, int]) -> dict[str, Any] | None:
    columns = journal.columns
    if columns is None:
        return None
    record_count = partial.streams[RECORD_TABLE].size // RECORD.itemsize if RECORDS in starts else 0
    leaves = [
        {"shape": list(shape), "offset": starts.get(column_stream(number), HEADER_BYTES)}
        for number, shape in enumerate(columns.dims)
    ]
    return {"schema": to_json(columns.schema), "rows": journal.samples - record_count, "leaves": leaves}


def _records_entry(
    journal: Journal, partial: Partial, whole: AppendedFile, starts: dict[str, int]
) -> dict[str, Any] | None:
    if RECORDS not in starts:
        return None
    rows = np.frombuffer(_content(partial, RECORD_TABLE), RECORD).copy()
    rows["offset"] += starts[RECORDS] - HEADER_BYTES
    return {
        "schemas": [to_json(schema) for schema in journal.schemas],
        "table": _table_entry(whole, rows.tobytes()),
    }


def _content(partial: Partial, name: str) -> bytes:
    return partial.stream(name).content()


def _table_entry(whole: AppendedFile, content: bytes) -> dict[str, int]:
    whole.pad(TABLE_ALIGNMENT)
    place = {"offset": whole.size, "bytes": len(content), "crc": zlib.crc32(content)}
    whole.write(content)
    return place
