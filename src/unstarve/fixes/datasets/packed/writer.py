"""Samples, one after the other → a packed file that appears under its name only when it is whole."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.assemble import assemble, columns_for
from unstarve.fixes.datasets.packed.decode import record_layout
from unstarve.fixes.datasets.packed.encode import Encoded, dims_bytes, encode
from unstarve.fixes.datasets.packed.format import CHECKSUM, NAME_END, RECORD, header, record_alignment
from unstarve.fixes.datasets.packed.journal import (
    CHECKSUMS,
    NAME_ENDS,
    NAMES,
    RECORD_TABLE,
    RECORDS,
    Columns,
    Journal,
    column_stream,
)
from unstarve.fixes.datasets.packed.packed_schema import Schema
from unstarve.fixes.datasets.packed.streams import Partial
from unstarve.outputs import check_output, put_in_place

_CHECKPOINT_S = 2.0
_CHECKPOINT_SHARE = 0.1
"""Checkpoints may cost this share of the time at most, however slow the storage."""


class PackedWriter:
    """Write a packed file::

        with PackedWriter("train.packed") as writer:
            for sample in samples:
                writer.append(sample)

    The samples go to ``NAME.partial/``; `close` puts them together and gives them their name at once, so that
    there is never half a file under it. An exception inside ``with`` removes what was written, unless
    `resume` is set: then it stays, as it does after a kill, and the next writer with `resume` goes on behind
    its last checkpoint: `count` samples are already there.

    Raises UsageError where the name is taken and `overwrite` is not set. `about` is kept in the file's index
    (JSON) and is `PackedDataset.about` later; a resumed writer keeps the one it was begun with.
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
            raise UsageError(f"about must be what JSON can hold: {error}") from error
        self._partial = Partial(self.path, resume=resume)
        journal = self._partial.journal or Journal(about=about or {})
        self.count: int = journal.samples
        """Samples in the file so far."""
        self.about: dict[str, Any] = journal.about
        self.position: Any = journal.position
        """Whatever the caller wants to find again when the work is resumed; kept at every checkpoint."""
        self._named: bool | None = journal.named
        self._columns = journal.columns
        self._schemas: dict[Schema, int] = {schema: n for n, schema in enumerate(journal.schemas)}
        self._kept: int = self.count
        self._is_open = True
        self._sound = True  # all streams end behind the same sample
        self._next_checkpoint = time.monotonic() + _CHECKPOINT_S

    def append(self, sample: Any, name: str | None = None) -> None:
        """Add a sample: tensors, arrays, numbers, text, bytes, and tuples, lists and dicts of them.

        `name`, which all samples have or none, is found in `PackedDataset.names` later. Raises UsageError
        for a sample that cannot be packed, after which the writer can go on, and OSError.
        """
        try:
            encoded = encode(sample)
        except UsageError as error:
            raise UsageError(f"sample {self.count} {error}") from None
        self.append_encoded(encoded, name)

    def append_encoded(self, encoded: Encoded, name: str | None = None, position: Any = None) -> None:
        """Add a sample that was taken apart elsewhere; `position` becomes the writer's together with it."""
        self._check_usable()
        if self._named is None:
            self._named = name is not None
        if self._named != (name is not None):
            raise UsageError(f"sample {self.count} of {self.path}: all samples have a name or none has")
        self._sound = False
        if self.count == 0:
            self._columns = columns_for(encoded)
        if self._columns is not None and self._columns == Columns(encoded.schema, encoded.dims):
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
        """Make everything appended so far survive a kill or a power cut; by itself it happens every 2 s."""
        self._check_usable()
        begun = time.monotonic()
        self._partial.checkpoint(self._journal())
        self._kept = self.count
        now = time.monotonic()
        self._next_checkpoint = now + max(_CHECKPOINT_S, (now - begun) / _CHECKPOINT_SHARE)

    def close(self) -> None:
        """Put the file together and give it its name. Nothing happens the second time."""
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
        """Stop without finishing, and return how many samples stay for a writer with `resume`."""
        if self._is_open:
            if self._sound:
                with contextlib.suppress(OSError):  # a full disk: what was noted before stays
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
        except BaseException:  # also Ctrl-C: the lock is let go of
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
            raise UsageError(f"{self.path} exists already: choose another name, or overwrite it")

    def _check_usable(self) -> None:
        if not self._is_open:
            raise UsageError(f"the writer of {self.path} is closed")
        if not self._sound:
            raise UsageError(f"the writer of {self.path} has failed: leave it, and resume with another")
