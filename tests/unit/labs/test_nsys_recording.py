"""The made-up exports: each shows the bottleneck that was drawn, and only the right remedy helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.importers.nsys_export import read_nsys_export
from unstarve.importers.summarize import profile_of
from unstarve.labs.nsys_recording import BOTTLENECKS, STEPS, bottleneck_of, write_export
from unstarve.model.profile import Profile

SEEDS = {
    bottleneck: [seed for seed in range(60) if bottleneck_of(seed) == bottleneck][:2]
    for bottleneck in BOTTLENECKS
}


def recorded(path: Path, seed: int, remedy: str | None = None) -> Profile:
    write_export(path / "a.sqlite", seed, remedy)
    return profile_of(read_nsys_export(path / "a.sqlite", lambda _: None))


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_the_largest_share_of_the_time_names_the_bottleneck(bottleneck: str, tmp_path: Path) -> None:
    for seed in SEEDS[bottleneck]:
        profile = recorded(tmp_path, seed)
        (device,) = profile.devices
        shares = {
            "loader": device.starved_s,
            "copies": device.exposed_copy_s,
            "launch": device.launch_gap_s,
            "gpu": device.kernel_s,
        }
        assert max(shares, key=lambda name: shares[name]) == bottleneck
        assert device.launch_bound == (bottleneck == "launch")
        assert profile.steps == STEPS


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_only_the_right_remedy_helps(bottleneck: str, tmp_path: Path) -> None:
    for seed in SEEDS[bottleneck]:
        slow = recorded(tmp_path, seed).window_s
        gains = {remedy: slow / recorded(tmp_path, seed, remedy).window_s for remedy in BOTTLENECKS}
        assert gains.pop(bottleneck) > 1.5
        assert max(gains.values()) < 1.4


def test_a_seed_always_draws_the_same_export(tmp_path: Path) -> None:
    assert recorded(tmp_path, 5) == recorded(tmp_path, 5)
    assert recorded(tmp_path, 5) != recorded(tmp_path, 6)


def test_pageable_memory_alone_is_no_sign_of_the_bottleneck(tmp_path: Path) -> None:
    memories = {recorded(tmp_path, seed).copies[0].memory for seed in (1, 2)}
    assert {bottleneck_of(1), bottleneck_of(2)} == {"loader"}
    assert memories == {"pageable", "pinned"}
