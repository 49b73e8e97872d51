"""The profiler's window: how many steps, how large a trace, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from unstarve.collect import profiler_window
from unstarve.collect.profiler_window import ProfilerWindow
from unstarve.importers.summarize import profile_of
from unstarve.importers.torch_trace import read_torch_trace
from unstarve.model.launch_settings import ProfileSettings
from unstarve.model.profile import Profile


def profiled(folder: Path, settings: ProfileSettings, steps: int) -> tuple[Profile, list[str]]:
    lost: list[str] = []
    window = ProfilerWindow(settings, folder, lost.append)
    for _ in range(steps):
        window.before_batch(0)
        torch.ones(10).sum()
    window.close()
    (trace,) = folder.iterdir()
    return profile_of(read_torch_trace(trace, lambda done: None)), lost


def test_a_short_window_is_profiled_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    profile, lost = profiled(tmp_path, ProfileSettings(wait=1, warmup=1, active=2), 10)
    assert (profile.steps, lost) == (2, [])
    assert "unstarve:" not in capfd.readouterr().err


def test_a_long_window_is_measured_first_and_left_alone_if_small(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    profile, lost = profiled(tmp_path, ProfileSettings(wait=1, warmup=1, active=12), 30)
    assert (profile.steps, lost) == (12, [])
    assert "unstarve:" not in capfd.readouterr().err


def test_a_window_that_would_write_too_much_is_announced_and_cut(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler_window, "LARGE_BYTES", 1)
    monkeypatch.setattr(profiler_window, "MOST_BYTES", 1)
    profile, lost = profiled(tmp_path, ProfileSettings(wait=1, warmup=1, active=12), 30)
    assert profile.steps == 1
    assert lost[0].startswith("the profile has 1 of 12 steps: ")
    assert "unstarve: a profile of 12 steps writes about " in capfd.readouterr().err


def test_a_training_that_ends_while_it_is_measured_keeps_that_step(tmp_path: Path) -> None:
    profile, lost = profiled(tmp_path, ProfileSettings(wait=1, warmup=1, active=12), 3)
    assert (profile.steps, lost) == (1, [])


def test_tensors_older_than_the_profiler_are_freed_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old = [torch.ones(1000) for _ in range(3000)]  # torch speaks of one in a thousand
    window = ProfilerWindow(ProfileSettings(wait=0, warmup=1, active=2), tmp_path, lambda message: None)
    window.before_batch(0)
    window.before_batch(0)
    old.clear()
    window.before_batch(0)
    window.close()
    assert "Memory block of unknown size" not in capfd.readouterr().err
