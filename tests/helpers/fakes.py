"""Synthetic runs on a fake clock: a test gives the cost of each step, and nothing sleeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unstarve.model import (
    Backward,
    Batch,
    Cause,
    CopyKind,
    CopySummary,
    Demand,
    Diagnosis,
    Epoch,
    Headroom,
    Loader,
    LoaderSummary,
    Overhead,
    Phase,
    Process,
    Run,
    State,
    Throughput,
    Verdict,
)


@dataclass
class FakeTraining:
    """Plays a training loop: every call moves the clock forward and leaves events behind."""

    now_ns: int = 1_000_000_000
    rank: int | None = None
    device: str = "cpu"
    thread: int = 0
    batches: list[Batch] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    loaders: dict[str, int] = field(default_factory=dict)
    backwards: list[Backward] = field(default_factory=list)
    _taken: dict[tuple[int, int], int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return self.loaders.setdefault(name, len(self.loaders))

    def spend(self, seconds: float) -> None:
        """Time that passes in the training loop itself."""
        self.now_ns += round(seconds * 1e9)

    def begin(self, name: str = "train", start_s: float = 0.0, *, no_grad: bool = False) -> None:
        """``iter(loader)``; its batches are asked for with or without gradients."""
        number = self.number(name)
        begin = self.now_ns
        self.spend(start_s)
        epoch = sum(1 for e in self.epochs if e.loader == number)
        self.epochs.append(
            Epoch(number, epoch, begin, self.now_ns, self.thread, nested=False, no_grad=no_grad)
        )

    def backward(self) -> None:
        """A backward pass that takes no time."""
        self.backwards.append(Backward(self.thread, self.now_ns))

    def take(
        self,
        wait_s: float,
        name: str = "train",
        *,
        size: int | None = 8,
        nested: bool = False,
        phase: Phase = Phase.REAL,
        block: int = 0,
        settling: bool = False,
    ) -> None:
        """``next()`` that gives a batch."""
        number = self.number(name)
        epoch = max(e.epoch for e in self.epochs if e.loader == number)
        index = self._taken.get((number, epoch), 0)
        self._taken[number, epoch] = index + 1
        ask = self.now_ns
        self.spend(wait_s)
        row = (
            number,
            epoch,
            index,
            ask,
            self.now_ns,
            size,
            64,
            nested,
            self.thread,
            5_000,
            phase,
            block,
            settling,
        )
        self.batches.append(Batch(*row))

    def end(self, name: str = "train", wait_s: float = 0.0) -> None:
        """``next()`` that finds the loader exhausted."""
        number = self.number(name)
        ask = self.now_ns
        self.spend(wait_s)
        at = max(i for i, e in enumerate(self.epochs) if e.loader == number)
        self.epochs[at] = replace(self.epochs[at], last_ask_ns=ask, end_ns=self.now_ns)

    def epoch(self, steps: Iterable[tuple[float, float]], name: str = "train", start_s: float = 0.0) -> None:
        """A whole epoch of (wait, compute) steps."""
        self.begin(name, start_s)
        for wait_s, compute_s in steps:
            self.take(wait_s, name)
            self.spend(compute_s)
        self.end(name)

    def train(self, steps: Iterable[tuple[float, float]], name: str = "train", start_s: float = 0.0) -> None:
        """A whole epoch of (wait, compute) steps, each with a backward pass."""
        self.begin(name, start_s)
        for wait_s, compute_s in steps:
            self.take(wait_s, name)
            self.backward()
            self.spend(compute_s)
        self.end(name)

    def validate(
        self, steps: Iterable[tuple[float, float]], name: str = "val", *, no_grad: bool = True
    ) -> None:
        """A whole epoch of (wait, compute) steps; without `no_grad`, gradients are off in its body only."""
        self.begin(name, no_grad=no_grad)
        for wait_s, compute_s in steps:
            self.take(wait_s, name)
            self.spend(compute_s)
        self.end(name)

    def process(self) -> Process:
        return Process(
            pid=100 + (self.rank or 0),
            host="here",
            rank=self.rank,
            worker=False,
            device=self.device,
            versions={"torch": "2.13.0"},
            start_ns=0,
            clock_offset_ns=0,
            loaders=tuple(
                Loader(n, name, "train.py:1", "DataLoader", {}) for name, n in self.loaders.items()
            ),
            epochs=tuple(self.epochs),
            batches=tuple(self.batches),
            end_ns=self.now_ns,
            stopped=None,
            lost=(),
            backwards=tuple(self.backwards),
        )


def run_of(*trainings: FakeTraining | Process, kind: str = "run", exit_code: int | None = 0) -> Run:
    """A finished run of the given processes."""
    processes = tuple(t.process() if isinstance(t, FakeTraining) else t for t in trainings)
    return Run("fake.unstarve", ("train.py",), kind, 0.0, processes, exit_code, live=False, lost=())


def simple_run(steps: Sequence[tuple[float, float]]) -> Run:
    """One process, one loader, one epoch of (wait, compute) steps."""
    training = FakeTraining()
    training.epoch(steps)
    return run_of(training)


def copies_of(
    share: float, memory: str = "pageable", *, blocking: bool = True, overlapped: bool = False
) -> CopySummary:
    """Copies of one kind in 20 steps, on the critical path this share of the time."""
    kind = CopyKind(0, memory, blocking, overlapped, 20, 20 * 38_535_168, 0.02 * 20, 0.025 * 20)
    return CopySummary(20, share, (kind,))


def diagnosis_of(
    cause: Cause,
    *,
    state: State = State.STARVED,
    workers: int = 2,
    step_s: float = 0.05,
    free_s: float = 0.02,
    waits: Mapping[Cause, float] | None = None,
    cores: int = 2,
    system: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    source: str | None = None,
    kind: str = "DataLoader",
    dataset: Mapping[str, Any] | None = None,
    epochs: int = 1,
    batch_bytes: int | None = 1000,
    tensors: int | None = None,
    torch: str = "2.13.0+cpu",
    copies: CopySummary | None = None,
    **demand: float,
) -> Diagnosis:
    """A diagnosis as advice sees it: steps of `step_s` that would take `free_s`, waiting for one cause.

    `demand` sets fields of the loader's `Demand`; the fetch takes what its parts do.
    """
    steps = 200
    per_batch = dict.fromkeys(("cpu_s", "disk_s", "remote_s", "queued_s"), 0.0) | {
        "collate_s": 0.0, "handoff_s": 0.0, "pin_s": 0.0, "sampler_s": 0.0, "opens": 0.0, "tail": 1.5,
    } | demand  # fmt: skip
    fetch_s = sum(per_batch[part] for part in ("cpu_s", "disk_s", "remote_s", "queued_s"))
    room = step_s / free_s
    summary = LoaderSummary(
        "loader", "train.py:1", kind, {"num_workers": workers} | dict(config or {}), steps, epochs,
        1.0, 0.5, steps * 8, None if batch_bytes is None else batch_bytes * steps, False, False, None, source,
        tensors, dataset=dataset or {},
    )  # fmt: skip
    made = Demand(
        "loader",
        workers,
        steps,
        8.0,
        fetch_s,
        storage_bytes=0.0,
        busy_share=0.9 if workers else None,
        **per_batch,
    )
    return Diagnosis(
        command=("train.py",), kind="run", path="fake.unstarve", started_at=0.0, wall_s=steps * step_s,
        steps=steps, warmup_steps=5, ranks=1, device="cpu", versions={"torch": torch}, cut_short=False,
        live=False, exit_code=0, verdict=Verdict(state, cause, "headline", ()), wait_share=1 - 1 / room,
        stall_share=1 - 1 / room, throughput=Throughput(1 / step_s, 8 / step_s), step_ms=None, wait_ms=None,
        budget=(), headroom=Headroom(room, room * 0.95, room * 1.05, "estimate"),
        overhead=Overhead(None, None), loaders=(summary,), lost=(),
        waits=waits or {cause: steps * (step_s - free_s)}, demand=made,
        system={"cores": cores} | dict(system or {}), copies=copies,
        walk=("Does training wait?  yes: 60% of the time", "Which stage?         on CPU 40 ms"),
    )  # fmt: skip
