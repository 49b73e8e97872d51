"""From recorded stalls and the driver's record to the `gpu` block."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fake_gpu import GpuTraining
from fake_gpu import gpu_training as training
from unstarve.analyze.device_summary import summarize_gpu
from unstarve.model import Phase


def test_the_stall_share_is_the_devices_and_not_the_hosts() -> None:
    summary = training().summary()
    assert summary.stall_share == pytest.approx(0.2, abs=0.01)
    assert training().timeline().wait_s / training().timeline().measured_s > 0.55


def test_idle_that_is_not_stall_is_the_hosts_lateness() -> None:
    made = training()
    made.read(0.5)
    summary = made.summary()
    assert summary.idle_share == pytest.approx(0.5)
    assert summary.host_late_share == pytest.approx(0.3, abs=0.01)
    assert (summary.utilization, summary.memory_total_bytes) == (pytest.approx(0.5), 140 * 2**30)


def test_without_the_drivers_record_idle_is_unknown_and_not_zero() -> None:
    made = training()
    made.read(None)
    summary = made.summary()
    assert (summary.idle_share, summary.host_late_share, summary.utilization) == (None, None, None)
    assert summary.memory_used_bytes == 10 * 2**30


def test_a_record_of_a_small_part_of_the_run_does_not_speak_for_all_of_it() -> None:
    made = training()
    made.read(0.5)
    made.readings = made.readings[:10]
    assert made.summary().utilization is None


def test_on_a_device_that_others_use_too_idle_is_unknown() -> None:
    made = training()
    made.read(0.9, shared=True)
    summary = made.summary()
    assert summary.utilization == pytest.approx(0.9)
    assert (summary.idle_share, summary.host_late_share) == (None, None)


def test_what_the_driver_says_of_engines_is_a_mean_over_readings_then_devices() -> None:
    made = GpuTraining()
    made.begin()
    made.say(power_mw=1_000_000)  # in the warm-up, which is not measured
    for number in range(100):
        made.step(0.06, 0.02, 0.04)
        if number in (40, 60):
            made.say(0, power_mw=200_000 + 5_000 * number, received_bytes_per_s=3e9)
            made.say(1, power_mw=100_000, sent_bytes_per_s=1e6)
    summary = made.summary()
    assert summary.power_w == pytest.approx((450 + 100) / 2)
    assert (summary.received_bytes_per_s, summary.sent_bytes_per_s) == (3e9, 1e6)
    assert summary.jpeg_engine_share is None


def test_a_coarse_record_cannot_make_idle_less_than_stall() -> None:
    made = training()
    made.read(0.82)
    summary = made.summary()
    assert summary.idle_share == summary.stall_share
    assert summary.host_late_share == 0


def test_waits_that_the_device_was_not_watched_in_make_the_stall_unknown() -> None:
    made = training()
    made.stalls = made.stalls[50:]
    assert made.summary().stall_share is None


def test_a_few_unwatched_waits_do_not() -> None:
    made = training(steps=200)
    del made.stalls[100:105]
    assert made.summary().stall_share == pytest.approx(0.2, abs=0.01)


def test_warm_up_does_not_count() -> None:
    made = GpuTraining()
    made.begin()
    for number in range(50):
        made.step(0.05, 0.05 if number < 5 else 0.0, 0.05)
    assert made.summary().stall_share == 0


def test_an_event_that_fires_late_cannot_make_a_stall_longer_than_its_wait() -> None:
    assert training(wait_s=0.05, stall_s=0.0502).summary().stall_share == pytest.approx(0.5, abs=0.01)


def test_replayed_steps_do_not_count() -> None:
    made = GpuTraining()
    made.begin()
    for block in (1, 2, 3):
        phase = Phase.REPLAY if block == 2 else Phase.REAL
        for _ in range(30):
            made.step(
                0.0 if block == 2 else 0.05, 0.0 if block == 2 else 0.03, 0.05, phase=phase, block=block
            )
    assert made.summary().stall_share == pytest.approx(0.3, abs=0.01)


def test_over_ranks_it_is_the_mean_and_one_that_does_not_know_makes_it_unknown() -> None:
    timelines = [training(stall_s=stall_s).timeline() for stall_s in (0.02, 0.04)]
    summary = summarize_gpu(timelines)
    assert summary is not None
    assert summary.stall_share == pytest.approx(0.3, abs=0.01)
    assert summary.devices == 2
    blind = training(stall_s=None)
    blind.read(0.5)
    summary = summarize_gpu([*timelines, blind.timeline()])
    assert summary is not None
    assert summary.stall_share is None


def test_a_training_on_the_cpu_has_no_gpu_block() -> None:
    assert summarize_gpu([training(stall_s=None).timeline()]) is None


def test_the_allocators_peaks_are_those_of_the_fullest_process() -> None:
    timelines = []
    for allocated, reserved in [(5, 9), (7, 8), (None, None)]:
        one = training().timeline()
        process = replace(one.process, allocated_peak_bytes=allocated, reserved_peak_bytes=reserved)
        timelines.append(replace(one, process=process))
    summary = summarize_gpu(timelines)
    assert summary is not None
    assert (summary.allocated_peak_bytes, summary.reserved_peak_bytes) == (7, 9)
