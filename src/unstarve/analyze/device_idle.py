"""A profile → sentences on its devices: why each was idle, and whether launching kernels limits it."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.model.profile import DeviceUse, Profile
from unstarve.words import duration, percent

_WORTH_TELLING = 0.01
"""Idle share of the window below which nothing is said."""


def device_findings(profile: Profile) -> tuple[str, ...]:
    """One sentence or two for each device that was idle; none without devices."""
    return tuple(text for device in profile.devices for text in _findings(device, profile.window_s or 1.0))


def _findings(device: DeviceUse, window_s: float) -> Iterator[str]:
    if device.idle_s < _WORTH_TELLING * window_s:
        return
    causes = (
        (device.starved_s, "waiting for the loader"),
        (device.launch_gap_s, "in launch gaps"),
        (device.late_s, "while the host did something else"),
    )
    parts = [f"{percent(seconds / window_s)} {what}" for seconds, what in causes if seconds > 0]
    bound = {None: "", False: " It is not launch-bound.", True: " It is launch-bound."}[device.launch_bound]
    idle = percent(device.idle_s / window_s)
    yield f"GPU {device.device} was idle {idle} of the time: {', '.join(parts)}.{bound}"
    if device.launch_bound and device.median_kernel_s is not None:
        yield (
            f"Half of its kernels take less than {duration(device.median_kernel_s)}, and the host launches "
            'them one by one. torch.compile(mode="reduce-overhead") and CUDA graphs launch many at once.'
        )
