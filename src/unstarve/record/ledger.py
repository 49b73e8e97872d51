"""Rows of events between the moment they are taken and the moment they are written."""

from __future__ import annotations

from typing import Any

from unstarve.native import native


class PythonLedger:
    """The packed rows of one process, for all its threads, and what its hot paths ask of the recording.

    The twin of ``_native.Ledger``.
    """

    __slots__ = ("_rows", "active", "has_device", "next_flush_ns", "own_ns", "special")

    def __init__(self) -> None:
        self._rows: dict[int, list[bytes]] = {}
        self.active = True
        """Whether anything is to be recorded, now and here."""
        self.special = True
        """Whether a batch takes more than being timed: limits to look at, batches to replay."""
        self.has_device = False
        """Whether there may be an accelerator whose side of a wait is to be timed, too."""
        self.own_ns = 0
        """unstarve's own time since the last recorded batch."""
        self.next_flush_ns = 0
        """When the rows are to be written at the latest."""

    def append(self, kind: int, row: bytes) -> None:
        """Keep one row."""
        self._rows.setdefault(kind, []).append(row)

    def take(self) -> list[tuple[int, bytes]]:
        """What was appended since the last time, by kind."""
        rows, self._rows = self._rows, {}
        return [(kind, b"".join(rows[kind])) for kind in sorted(rows)]


_native: Any = native()
Ledger: type[PythonLedger] = PythonLedger if _native is None else _native.Ledger
