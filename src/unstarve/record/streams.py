"""Chunks of a run → what each of its processes said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unstarve.model import Crew, Loader, Process, Sampled, TransformTime, Work
from unstarve.record import format as f
from unstarve.record.chunks import Chunk
from unstarve.record.events import Packed, epochs_of, events_of, unpacked
from unstarve.record.metas import LATEST_NS, meta_of

MOST_STREAMS = 1 << 17
"""Processes of a run: twenty thousand epochs of six workers each."""
_MOST_LOST = 1000
"""Sentences about losses that are kept of a process."""


class Stream:
    """What one process said, as its chunks are found."""

    __slots__ = ("crews", "loaders", "lost", "newest", "nonsense", "packed", "tensors", "usage_before")

    def __init__(self) -> None:
        # Many processes have but a few of these: an empty dictionary costs little.
        self.newest: dict[str, dict[str, Any]] = {}
        """By kind of META, the last one: of those that a process repeats, that one counts."""
        self.loaders: dict[int, dict[str, Any]] = {}
        self.tensors: dict[int, int | None] = {}
        self.crews: dict[tuple[int, int], Crew] = {}
        """By loader and epoch."""
        self.lost: list[str] = []
        self.usage_before: dict[str, Any] | None = None
        self.packed: dict[int, list[Packed]] = {}
        """Rows by kind, not yet unpacked."""
        self.nonsense = 0
        """Records that make no sense."""

    def take(self, chunk: Chunk) -> None:
        """One chunk that the process wrote; kinds that a later version added are passed over."""
        if chunk.kind == f.META:
            try:
                meta = meta_of(chunk.payload)
            except ValueError:
                self.nonsense += 1
                return
            if meta is not None:
                self.tell(meta)
        elif chunk.kind in f.ROW_KINDS:
            self.packed.setdefault(chunk.kind, []).append((chunk.row_size, chunk.payload))

    def tell(self, meta: dict[str, Any]) -> None:
        """One META, checked."""
        name = meta["meta"]
        if name == "loader":
            self.loaders[meta["id"]] = meta
        elif name == "batch":
            self.tensors[meta["loader"]] = meta.get("tensors")
        elif name == "crew":
            self.crews[meta["loader"], meta["epoch"]] = Crew(
                meta["loader"], meta["epoch"], tuple(meta["pids"])
            )
        elif name == "lost":
            if len(self.lost) < _MOST_LOST:
                self.lost.append(meta["message"])
        else:
            if name == "system" and name not in self.newest:
                self.usage_before = meta.get("usage")
            self.newest[name] = meta

    def process(self) -> Process | None:
        """What the process recorded; None when it has not said who it is."""
        who = self.newest.get("process")
        if who is None:
            return None
        device, end = self.newest.get("device", {}), self.newest.get("end", {})
        rank = device.get("rank")
        return Process(
            pid=who["pid"],
            host=who["host"],
            rank=who.get("rank") if rank is None else rank,
            worker=who["worker"],
            device=device.get("name", "cpu"),
            versions=who["versions"],
            start_ns=who["start_ns"],
            clock_offset_ns=who["offset_ns"],
            loaders=tuple(self._loader(meta) for meta in self.loaders.values()),
            epochs=self._epochs(),
            batches=self._events(f.BATCH),
            end_ns=end.get("end_ns"),
            stopped=end.get("stopped"),
            lost=tuple(self.lost),
            works=self._works(),
            sents=self._events(f.SENT),
            receipts=self._events(f.RECEIVED),
            crews=tuple(self.crews.values()),
            sampled=tuple(Sampled(*found) for found in self.newest.get("sampled", {"found": []})["found"]),
            transforms=tuple(
                TransformTime(*spent) for spent in self.newest.get("transforms", {"spent": []})["spent"]
            ),
            system=self._system(),
            stalls=self._events(f.STALL),
            readings=self._events(f.GAUGE),
            pulses=self._events(f.PULSE),
        )

    def _loader(self, meta: dict[str, Any]) -> Loader:
        number, tensors = meta["id"], self.tensors.get(meta["id"])
        return Loader(
            number, meta["name"], meta["where"], meta["kind"], meta["config"], meta.get("source"), tensors
        )

    def _system(self) -> dict[str, Any]:
        """The last that the process said, and how much CPU time had been used when it first did."""
        said = self.newest.get("system")
        if said is None:
            return {}
        return {name: v for name, v in said.items() if name != "meta"} | {"usage_before": self.usage_before}

    def _events(self, kind: int) -> tuple[Any, ...]:
        events, nonsense = events_of(kind, self.packed.pop(kind, ()))
        self.nonsense += nonsense
        return tuple(events)

    def _epochs(self) -> tuple[Any, ...]:
        rows = (
            list(unpacked(kind, self.packed.pop(kind, ())))
            for kind in (f.EPOCH_BEGIN, f.EPOCH_END, f.EPOCH_SAMPLER)
        )
        epochs, nonsense = epochs_of(*rows)
        self.nonsense += nonsense
        return epochs

    def _works(self) -> tuple[Work, ...]:
        helped: Iterator[f.HelpedRow] = unpacked(f.HELPED, self.packed.pop(f.HELPED, ()))
        helped_ns = {
            (None if row.loader == f.NO_LOADER else row.loader, row.iteration, row.task): row.cpu_ns
            for row in helped
        }
        works: tuple[Work, ...] = self._events(f.WORK)
        if not helped_ns:
            return works
        return tuple(
            w._replace(helped_ns=min(helped_ns.get((w.loader, w.iteration, w.task), 0), LATEST_NS))
            for w in works
        )
