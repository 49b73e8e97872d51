"""Made-up runs whose memory grows as a test says: a look a second, nothing sleeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fakes import FakeTraining, run_of
from unstarve.model import Crew, Loader, Process, Pulse, Run
from unstarve.model.memory_looks import ContainerSizes, MemoryLook, MemoryRecord

S, MB, GB = 1_000_000_000, 1_000_000, 1_000_000_000
SECONDS = 60

Value = Callable[[int], float]
"""Of the second, from 0."""


@dataclass(frozen=True)
class Memory:
    """What a process holds, second by second."""

    allocated: Value = lambda _: 200 * MB
    copied: Value = lambda _: 0.0
    """Pages that were shared and are written to."""
    blocks: Value = lambda _: 600_000
    descriptors: Value = lambda _: 20
    shm: Value = lambda _: MB
    sizes: Value | None = None
    """Entries of ``self.cache``."""
    limit: int = 1024

    def looks(self) -> tuple[MemoryLook, ...]:
        return tuple(self._look(second) for second in range(SECONDS))

    def _look(self, second: int) -> MemoryLook:
        allocated, shared = round(self.allocated(second)), 150 * MB
        dirty = allocated - shared + round(self.copied(second))
        return MemoryLook(
            at_ns=second * S,
            uss_bytes=dirty,
            pss_bytes=dirty + shared // 3,
            anonymous_bytes=allocated,
            dirty_bytes=dirty,
            blocks=round(self.blocks(second)),
            descriptors=round(self.descriptors(second)),
            descriptor_limit=self.limit,
            major_faults=0,
            shm_bytes=round(self.shm(second)),
        )

    def record(self, **more: Any) -> MemoryRecord:
        sizes = () if self.sizes is None else self._container_sizes(self.sizes)
        return MemoryRecord(self.looks(), sizes, **more)

    def _container_sizes(self, sizes: Value) -> tuple[ContainerSizes, ...]:
        return tuple(ContainerSizes(s * S, {"self.cache": round(sizes(s))}) for s in range(SECONDS))


def memory_run(
    training: Memory | MemoryRecord | None = None,
    worker: Memory | MemoryRecord | None = None,
    *,
    workers: int = 2,
    dataset: Mapping[str, Any] | None = None,
    free_bytes: int | None = 20 * GB,
    source: str = "DataLoader(train_set, num_workers=2)",
    shm_total: int = 100 * MB,
) -> Run:
    """A training of a minute, ten batches a second, with `workers` equal workers."""
    played = FakeTraining(now_ns=0)
    played.epoch([(0.05, 0.05)] * 600)
    process = played.process()
    pids = tuple(range(200, 200 + workers))
    loader = Loader(
        0, "loader", "train.py:41", "DataLoader", {"num_workers": workers}, source, dataset=dataset or {}
    )
    main = replace(
        process,
        loaders=(loader,),
        crews=(Crew(0, 0, pids),) if workers else (),
        system={"free_bytes": free_bytes},
        memory=_record(training),
        pulses=tuple(Pulse(s * S, None, None, None, None, MB, 0, 0, shm_total) for s in range(SECONDS)),
    )
    return run_of(main, *(_worker(main, pid, worker) for pid in pids))


def _worker(main: Process, pid: int, memory: Memory | MemoryRecord | None) -> Process:
    pulses = tuple(pulse._replace(shm_total_bytes=None) for pulse in main.pulses)
    worker = replace(main, pid=pid, worker=True, batches=(), epochs=(), loaders=(), crews=())
    return replace(worker, pulses=pulses, memory=_record(memory))


def _record(memory: Memory | MemoryRecord | None) -> MemoryRecord:
    return memory if isinstance(memory, MemoryRecord) else (memory or Memory()).record()


def ids(findings: Sequence[Any]) -> list[str]:
    """The ids of findings."""
    return [one.id for one in findings]
