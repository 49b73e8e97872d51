"""The operators that two profiles differ in."""

from __future__ import annotations

from rich.console import Console

from unstarve.analyze.operator_changes import operator_changes
from unstarve.model.profile import DeviceUse, NamedUse, Profile
from unstarve.present.terminal.profile_tables import operator_changes as shown


def profile(steps: int, on_device: bool = False, **own_ms: float) -> Profile:
    """With these operators' milliseconds over all steps, on the CPU or the device."""
    operators = tuple(
        NamedUse(f"aten::{name}", 1, ms / 1e3, *((0.0, ms / 1e3) if on_device else (ms / 1e3, None)))
        for name, ms in own_ms.items()
    )
    devices = (DeviceUse(0, 1, 1, 0, 0, 0),) if on_device else ()
    return Profile("torch.profiler", "", 1.0, 0, 0.0, devices, steps, operators=operators)


def test_changes_count_per_step_and_the_largest_comes_first() -> None:
    full = profile(1, mm=14, relu=2, add=1)
    mixed = profile(2, mm=7, relu=4, add=2, copy_=16)
    changes = operator_changes(full, mixed)
    assert [(one.name, one.a_s, one.b_s) for one in changes] == [
        ("aten::mm", 0.014, 0.0035),
        ("aten::copy_", 0.0, 0.008),
    ]


def test_operators_of_one_run_only_are_new_or_gone() -> None:
    table = shown(operator_changes(profile(1, mm=10, relu=4), profile(1, mm=2.6, copy_=8)))
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table)
    rows = {line.split()[0]: line.split()[-1] for line in captured.get().splitlines() if "aten::" in line}
    assert rows == {"aten::mm": "0.26×", "aten::relu": "gone", "aten::copy_": "new"}


def test_on_devices_the_time_on_the_device_counts() -> None:
    (one,) = operator_changes(profile(1, True, mm=10), profile(1, True, mm=5))
    assert (one.a_s, one.b_s) == (0.01, 0.005)
    assert operator_changes(profile(1, mm=1), None) == ()
