"""Where the tensors lie in each file of a dataset, and the size and time at which that was true."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unstarve.fixes.io.formats import LAYOUT, UNSUPPORTED, Answer, find_layouts
from unstarve.fixes.io.reading import NOT_LOOKED_INTO, FileTable, Names
from unstarve.fixes.samples.file_structure import FileStructure, structure_of

Rows: TypeAlias = NDArray[np.int64]

# Columns of a row. A size below 0 means: not inspected yet, or not of the common structure.
SIZE, MTIME, COLUMNS = range(3)

_INSPECTED_FIRST = 8
_MAX_OTHERS = 100_000


@dataclass(frozen=True)
class Entry:
    """One file: its structure and row, or the answer that explains why there is no structure."""

    structure: FileStructure | None
    row: Rows
    answer: Answer | None


class LayoutTable:
    """The layouts of files, found when they are first needed. Threads may share it.

    The common structure is that of the first file that can be read. Files with this structure have a row each
    in memory that forked workers share, so that layouts found in one epoch are known in the next. Other
    layouts are kept per process. A `given` structure applies to all files, which are then the raw bytes of
    one tensor.
    """

    def __init__(
        self, names: Names, formats: NDArray[np.uint8], given: FileStructure | None = None, *, direct: bool
    ) -> None:
        self.names = names
        self._formats = formats
        self._direct = direct
        self._others: dict[int, Answer] = {}
        self.is_given = given is not None
        self._text, self.structure = (b"", given) if given is not None else self._find_common()
        self._rows = self._shared_rows()
        if given is not None:
            self._rows[:] = given.leaves[0].row_bytes, -1, 0
        self.files = self._file_table()

    def __len__(self) -> int:
        return len(self._formats)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_others": {}, "_rows": np.array(self._rows), "files": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        rows = self._rows
        self._rows = self._shared_rows()
        self._rows[:] = rows
        self.files = self._file_table()

    def path(self, index: int) -> str:
        """Return the path of a file."""
        return self.names.at(int(self.names.starts[index]))

    def format(self, index: int) -> int:
        """Return the format of a file."""
        return int(self._formats[index])

    def rows(self, indices: NDArray[np.int64]) -> Rows | None:
        """Return a row per file; None if one has another structure or cannot be read."""
        rows = self._rows[indices]
        unknown = rows[:, SIZE] < 0
        if not unknown.any():
            return rows
        self._inspect(indices[unknown])
        rows = self._rows[indices]
        return None if (rows[:, SIZE] < 0).any() else rows

    def has_others(self, indices: NDArray[np.int64]) -> bool:
        """Whether one of the files is known to have another structure."""
        return bool(self._others) and not self._others.keys().isdisjoint(indices.tolist())

    def entries(self, indices: NDArray[np.int64]) -> list[Entry]:
        """Return an entry per file, whatever its structure."""
        unknown = self._rows[indices, SIZE] < 0
        answers = self._inspect(indices[unknown]) if unknown.any() else {}
        entries = []
        for index, row in zip(indices.tolist(), self._rows[indices], strict=True):
            answer = self._others.get(index) or answers.get(index)
            if row[SIZE] >= 0:
                entries.append(Entry(self.structure, row, None))
            elif answer is not None and answer.found == LAYOUT and (found := structure_of(answer.text)):
                own_row = np.array([answer.size_bytes, answer.mtime_ns, *answer.columns])
                entries.append(Entry(found, own_row, None))
            else:
                entries.append(Entry(None, row, answer))
        return entries

    def forget(self, indices: NDArray[np.int64]) -> None:
        """Inspect these files again when they are next needed: they have changed."""
        if self.is_given:
            return
        self._rows[indices, SIZE] = NOT_LOOKED_INTO
        for index in indices.tolist():
            self._others.pop(index, None)

    def size_bytes(self) -> int:
        """Estimate the total size of all files from those that were inspected."""
        known = self._rows[self._rows[:, SIZE] >= 0, SIZE]
        return int(known.mean() * len(self)) if len(known) else 0

    def _inspect(self, indices: NDArray[np.int64]) -> dict[int, Answer]:
        """Inspect those of the files about which nothing is known."""
        wanted = np.array(sorted({i for i in indices.tolist() if i not in self._others}), np.int64)
        answers = self._ask(wanted)
        if len(self._others) > _MAX_OTHERS:
            self._others.clear()
        for index, answer in zip(wanted.tolist(), answers, strict=True):
            if answer.found == LAYOUT and answer.text.encode() == self._text:
                row = self._rows[index]
                row[COLUMNS:] = answer.columns
                row[MTIME] = answer.mtime_ns
                row[SIZE] = answer.size_bytes  # last: a row is valid once it has a size
            elif answer.found in (LAYOUT, UNSUPPORTED):
                self._others[index] = answer  # damaged and missing files may be fine next time
        return dict(zip(wanted.tolist(), answers, strict=True))

    def _ask(self, indices: NDArray[np.int64]) -> list[Answer]:
        if not len(indices):
            return []
        starts = self.names.starts[indices]
        return find_layouts(self.names, starts, self._formats[indices], direct=self._direct)

    def _find_common(self) -> tuple[bytes, FileStructure | None]:
        for answer in self._ask(np.arange(min(_INSPECTED_FIRST, len(self)))):
            if answer.found == LAYOUT and (found := structure_of(answer.text)) is not None:
                return answer.text.encode(), found
        return b"", None

    def blank_rows(self, count: int) -> Rows:
        """Return uninitialized rows."""
        return np.empty((count, self._rows.shape[1]), np.int64)

    def _file_table(self) -> FileTable | None:
        structure = self.structure
        if structure is None:
            return None
        columns, lengths = structure.tensor_columns, structure.tensor_bytes
        return FileTable(self.names, self._formats, self._rows, self._text, columns, lengths)

    def _shared_rows(self) -> Rows:
        width = COLUMNS + (0 if self.structure is None else len(self.structure.leaves))
        memory = mmap.mmap(-1, len(self) * width * 8)  # shared with forked workers, not limited by /dev/shm
        rows = np.frombuffer(memory, np.int64).reshape(len(self), width)
        rows[:, SIZE] = NOT_LOOKED_INTO
        return rows
