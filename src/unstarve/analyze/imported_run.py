"""An imported profile → `Diagnosis`: what the devices were doing decides."""

from __future__ import annotations

from itertools import pairwise

from unstarve.analyze.loader_summary import summarize_loaders
from unstarve.analyze.stats import spread_ms
from unstarve.analyze.verdict import Thresholds
from unstarve.model import (
    Cause,
    Diagnosis,
    GpuSummary,
    Headroom,
    Overhead,
    Process,
    Run,
    Share,
    State,
    Throughput,
    Verdict,
)
from unstarve.model.profile import CopyUse, DeviceUse, Profile
from unstarve.words import duration, percent, size, times

_WORTH_TELLING = 0.05
_FEWEST_WAITS = 2


def analyze_import(run: Run, process: Process, profile: Profile, limits: Thresholds) -> Diagnosis:
    """The diagnosis of an imported file. A trace says that training waits, but not what its loader did."""
    device = max(profile.devices, key=lambda one: one.starved_s + one.exposed_copy_s, default=None)
    spent = _seconds(profile, device)
    wait_share = profile.wait_s / profile.window_s if profile.waits >= _FEWEST_WAITS else None
    lost_s = spent.get(Cause.UNKNOWN, 0.0) + spent.get(Cause.COPY, 0.0)
    known = device is not None or wait_share is not None
    lost_share = lost_s / profile.window_s if known else None
    asks = [batch.ask_ns / 1e9 for batch in process.batches]
    steps_s = [after - before for before, after in pairwise(asks)]
    return Diagnosis(
        command=run.command,
        kind=run.kind,
        path=run.path,
        started_at=run.started_at,
        wall_s=profile.window_s,
        steps=len(process.batches),
        warmup_steps=0,
        ranks=1,
        device=process.device,
        versions=process.versions,
        cut_short=False,
        live=run.live,
        exit_code=None,
        verdict=_verdict(profile, device, spent, lost_share, limits),
        wait_share=wait_share,
        stall_share=_stall_share(profile, device, wait_share),
        throughput=Throughput(len(steps_s) / sum(steps_s) if steps_s else None, None),
        step_ms=spread_ms(steps_s),
        wait_ms=spread_ms([batch.wait_ns / 1e9 for batch in process.batches]),
        budget=tuple(
            Share(cause, seconds, seconds / profile.window_s)
            for cause, seconds in sorted(spent.items(), key=lambda one: -one[1])
            if seconds > 0
        ),
        headroom=_headroom(lost_share),
        overhead=Overhead(None, None),
        loaders=summarize_loaders([process]),
        lost=run.lost,
        gpu=_gpu(profile, device),
        waits=_waits(process, spent),
        profile=profile,
    )


def _seconds(profile: Profile, device: DeviceUse | None) -> dict[Cause, float]:
    """Seconds per cause; they sum to the window. Why a loader was slow is not in such a file: ``unknown``."""
    if device is None and not profile.waits:
        return {Cause.UNKNOWN: profile.window_s}
    if device is None:
        return {Cause.UNKNOWN: profile.wait_s, Cause.COMPUTE: profile.window_s - profile.wait_s}
    return {
        Cause.UNKNOWN: device.starved_s,
        Cause.COPY: device.exposed_copy_s,
        Cause.HOST: max(device.idle_s - device.starved_s, 0.0),
        Cause.COMPUTE: max(device.busy_s - device.exposed_copy_s, 0.0),
    }


def _stall_share(profile: Profile, device: DeviceUse | None, wait_share: float | None) -> float | None:
    return wait_share if device is None else device.starved_s / profile.window_s


def _headroom(lost_share: float | None) -> Headroom | None:
    if lost_share is None or lost_share >= 1:
        return None
    speedup = 1 / (1 - lost_share)
    return Headroom(speedup, speedup, speedup, "estimate")


def _waits(process: Process, spent: dict[Cause, float]) -> dict[Cause, float]:
    return {Cause.UNKNOWN: spent.get(Cause.UNKNOWN, 0.0)} if process.batches else {}


def _gpu(profile: Profile, device: DeviceUse | None) -> GpuSummary | None:
    if device is None:
        return None
    window_s = profile.window_s
    return GpuSummary(
        stall_share=device.starved_s / window_s,
        idle_share=device.idle_s / window_s,
        host_late_share=max(device.idle_s - device.starved_s, 0.0) / window_s,
        utilization=device.kernel_s / window_s,
        memory_used_bytes=None,
        memory_total_bytes=None,
        devices=len(profile.devices),
    )


def _verdict(
    profile: Profile,
    device: DeviceUse | None,
    spent: dict[Cause, float],
    lost_share: float | None,
    limits: Thresholds,
) -> Verdict:
    evidence = _evidence(profile, device)
    if lost_share is None:
        text = (
            "The file shows no device and no DataLoader, so it does not say whether training waits. "
            "Profile with NVTX ranges around next(loader), or record with unstarve run."
        )
        return Verdict(State.INCONCLUSIVE, Cause.UNKNOWN, text, evidence)
    if lost_share < limits.tight:
        cause = Cause.HOST if spent.get(Cause.HOST, 0.0) > spent[Cause.COMPUTE] else Cause.COMPUTE
        return Verdict(State.FED, cause, _fed(profile, device, lost_share, cause), evidence)
    state = State.STARVED if lost_share >= limits.starved else State.TIGHT
    copied = spent.get(Cause.COPY, 0.0) > spent.get(Cause.UNKNOWN, 0.0)
    cause = Cause.COPY if copied else Cause.UNKNOWN
    return Verdict(state, cause, _lost(profile, device, spent, cause, lost_share), evidence)


def _fed(profile: Profile, device: DeviceUse | None, lost_share: float, cause: Cause) -> str:
    if device is None:
        return f"Training is fed: it waits for data {percent(lost_share)} of the time."
    sentence = f"Training is fed: data kept GPU {device.device} waiting {percent(lost_share)} of the time."
    if cause is Cause.HOST:
        idle = percent(device.idle_s / profile.window_s)
        late = "launches its short kernels" if device.launch_bound else "gives it work"
        sentence += f" The GPU is idle {idle} of the time for another reason: the host {late} too late."
    return sentence


def _lost(
    profile: Profile, device: DeviceUse | None, spent: dict[Cause, float], cause: Cause, lost_share: float
) -> str:
    gain = f" Without that, training would run about {times(1 / max(1 - lost_share, 0.01))} as fast."
    if cause is Cause.COPY and device is not None:
        share = percent(spent[Cause.COPY] / profile.window_s)
        kernels = percent(device.kernel_s / profile.window_s)
        return (
            f"Training is copy-bound: copies from the host keep GPU {device.device} waiting {share} of the "
            f"time, and kernels run {kernels} of it.{gain}"
        )
    waited = percent(profile.wait_s / profile.window_s)
    if device is None:
        return f"Training waits for data {waited} of the time.{gain}"
    starved = percent(device.starved_s / profile.window_s)
    return f"GPU {device.device} starved {starved} of the time (the host waited {waited}).{gain}"


def _evidence(profile: Profile, device: DeviceUse | None) -> tuple[str, ...]:
    window_s = profile.window_s
    lines = [f"{profile.source} recorded {duration(window_s)}"]
    if profile.waits:
        lines.append(
            f"{profile.waits} waits for a DataLoader took {duration(profile.wait_s)} "
            f"({percent(profile.wait_s / window_s)})"
        )
    lines += [
        f"GPU {one.device} was busy {percent(one.busy_s / window_s)} of the time, with kernels "
        f"{percent(one.kernel_s / window_s)}"
        for one in profile.devices
    ]
    if device is not None:
        lines += [
            _copied(copy)
            for copy in profile.copies
            if copy.device == device.device and _large(copy, window_s)
        ]
    if profile.waits:
        lines.append("why loading is slow is not in such a file: record the training with unstarve run")
    return tuple(lines)


def _large(copy: CopyUse, window_s: float) -> bool:
    return copy.kind == "HtoD" and copy.seconds >= _WORTH_TELLING * window_s


def _copied(copy: CopyUse) -> str:
    memory = f" from {copy.memory} memory" if copy.memory else ""
    return (
        f"{copy.count} copies to GPU {copy.device}{memory} moved {size(copy.bytes)} in "
        f"{duration(copy.seconds)}; {duration(copy.exposed_s)} of it while no kernel ran"
    )
