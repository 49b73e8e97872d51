"""A synthetic training on a GPU: the host's waits, and the part of each in which the device starved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fakes import FakeTraining
from unstarve.analyze.device_summary import summarize_gpu
from unstarve.analyze.timeline import Timeline, build_timeline
from unstarve.model import Engines, GpuSummary, Process, Reading, Stall


@dataclass
class GpuTraining(FakeTraining):
    """Also says how long the device starved in each wait."""

    device: str = "NVIDIA H200"
    stalls: list[Stall] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    engines: list[Engines] = field(default_factory=list)

    def step(self, wait_s: float, stall_s: float | None, compute_s: float, **take: object) -> None:
        self.take(wait_s, **take)  # type: ignore[arg-type]  # passed on as it came
        if stall_s is not None:
            b = self.batches[-1]
            self.stalls.append(Stall(0, b.epoch, b.position, 0, b.ask_ns, b.got_ns, round(stall_s * 1e9)))
        self.spend(compute_s)

    def read(self, utilization: float | None, *, every_s: float = 0.2, shared: bool = False) -> None:
        """The driver's record over the whole of what happened so far."""
        begin = self.epochs[0].begin_ns
        for at in range(begin, self.now_ns, round(every_s * 1e9)):
            self.readings.append(Reading(0, at, utilization, 10 * 2**30, 140 * 2**30, shared))

    def say(self, device: int = 0, **known: float | None) -> None:
        """The driver says now what `known` has of `Engines`."""
        unknown = dict.fromkeys(("power_mw", "received_bytes_per_s", "sent_bytes_per_s", "jpeg_share"))
        self.engines.append(Engines(device, self.now_ns, **unknown | known))  # type: ignore[arg-type]  # as given

    def process(self) -> Process:
        recorded = FakeTraining.process(self)
        readings, engines = tuple(self.readings), tuple(self.engines)
        return replace(recorded, stalls=tuple(self.stalls), readings=readings, engines=engines)

    def timeline(self) -> Timeline:
        timeline = build_timeline(self.process(), warmup_steps=5)
        assert timeline is not None
        return timeline

    def summary(self) -> GpuSummary:
        summary = summarize_gpu([self.timeline()])
        assert summary is not None
        return summary


def gpu_training(steps: int = 100, wait_s: float = 0.06, stall_s: float | None = 0.02) -> GpuTraining:
    """Steps of 100 ms."""
    made = GpuTraining()
    made.begin()
    for _ in range(steps):
        made.step(wait_s, stall_s, 0.1 - wait_s)
    return made
