"""What loading costs on a machine: measured once, kept, and used where a run recorded nothing itself."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fake_forecaster import demands
from fakes import FakeTraining, run_of
from unstarve.model import MachineTimes, Scenario
from unstarve.predict import machine_times
from unstarve.predict.demand import BatchDemand
from unstarve.predict.forecast import model_loader, what_if
from unstarve.predict.machine_times import REFERENCE, TYPICAL, loading_costs
from unstarve.predict.recorded_run import EpochCosts, RecordedMachine

SLOW = REFERENCE._replace(message_s=3 * REFERENCE.message_s, crowded=1.8)


class FakeMeasuring:
    """Stands in for the process that measures: counts how often it is asked."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said, self.asked = said, 0

    def __call__(self, *command: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
        self.asked += 1
        return subprocess.CompletedProcess((), 0, json.dumps(self.said).encode())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNSTARVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def measuring(monkeypatch: pytest.MonkeyPatch, times: MachineTimes, *, quiet: bool) -> FakeMeasuring:
    fake = FakeMeasuring({"quiet": quiet, "times": times._asdict()})
    monkeypatch.setattr(subprocess, "run", fake)
    return fake


def test_this_machine_can_be_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_times, "_LONGEST_S", 300.0)  # however busy it is
    monkeypatch.setattr(machine_times, "_LARGEST_FACTOR", 1e6)
    times = machine_times.of_this_machine()
    assert times is not None
    assert min(times.message_s, times.descriptor_s, times.fork_s) > 0
    assert times.crowded >= times.half_crowded >= 1
    assert machine_times.known_times() == times


def test_a_machine_is_measured_once_and_sooner_again_if_it_was_busy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = measuring(monkeypatch, SLOW, quiet=False)
    assert machine_times.known_times() is None
    assert machine_times.of_this_machine() == machine_times.of_this_machine() == SLOW
    assert fake.asked == 1
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * 3600)
    assert machine_times.known_times() is None
    measuring(monkeypatch, SLOW, quiet=True)
    machine_times.of_this_machine()
    monkeypatch.setattr(time, "time", lambda: now + 48 * 3600)
    assert machine_times.known_times() == SLOW


@pytest.mark.parametrize(
    "wrong", [{"message_s": 9.0}, {"message_s": -1.0}, {"fork_s": float("nan")}, {"x": 1}]
)
def test_times_that_no_machine_has_are_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, float]
) -> None:
    fake = FakeMeasuring({"quiet": True, "times": SLOW._asdict() | wrong})
    monkeypatch.setattr(subprocess, "run", fake)
    assert [machine_times.of_this_machine() for _ in range(2)] == [None, None]
    assert fake.asked == 1  # and not again with every run


def test_only_the_machine_that_recorded_a_run_is_measured_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = measuring(monkeypatch, SLOW, quiet=True)
    process = FakeTraining().process()
    elsewhere, here = run_of(process), run_of(dataclasses.replace(process, host=socket.gethostname()))
    assert machine_times.on_its_machine(elsewhere, may_measure=True) is elsewhere
    live = dataclasses.replace(here, live=True)
    assert machine_times.on_its_machine(live, may_measure=True).machine is None
    assert machine_times.on_its_machine(here, may_measure=False).machine is None
    assert fake.asked == 0
    assert machine_times.on_its_machine(here, may_measure=True).machine == SLOW
    assert machine_times.on_its_machine(live, may_measure=False).machine == SLOW
    told = dataclasses.replace(here, machine=REFERENCE)
    assert machine_times.on_its_machine(told, may_measure=True) is told
    assert fake.asked == 1


def test_costs_grow_with_the_times_behind_them() -> None:
    costs = loading_costs(SLOW)
    assert costs.take_s == pytest.approx(3 * TYPICAL.take_s)
    assert costs.take_s_per_tensor == pytest.approx(TYPICAL.take_s_per_tensor)
    assert (costs.growth(1.0), costs.growth(0.0)) == (1.8, 1.0)
    assert dataclasses.astuple(loading_costs(REFERENCE)) == pytest.approx(
        (*dataclasses.astuple(TYPICAL)[:-1], True)
    )
    assert loading_costs(None) == TYPICAL
    damaged = loading_costs(MachineTimes(*(0.0,) * len(REFERENCE)))
    assert damaged.growth(1.0) == 1
    assert damaged.take_s > 0


def test_a_forecast_uses_the_machines_costs_only_for_what_the_run_did_not_record() -> None:
    work = BatchDemand(cpu_s=0.004, take_s=0.001, send_s=0.0005, step_delay_s=0.004)
    epochs = EpochCosts(batches=20, starts=1 / 20, iter_s=0.02, boot_s=0.01, end_s=0.02, between_s=0.0)
    machines = [
        RecordedMachine(8.0, 0.0, False, 1.0, 1.0, costs=loading_costs(times)) for times in (REFERENCE, SLOW)
    ]
    unseen, seen = (
        [model_loader(demands(work, workers, machine=m, epochs=epochs, period_s=0.02)) for m in machines]
        for workers in (0, 2)
    )
    quick, slow = (model(Scenario(workers=1)).speedup for model in unseen)
    assert slow < 0.95 * quick
    assert seen[0](Scenario(prefetch=4)).speedup == seen[1](Scenario(prefetch=4)).speedup
    assert [what_if(unseen[0], (1,)).costs, what_if(seen[0], (4,)).costs] == ["measured", "recorded"]
    assert what_if(model_loader(demands(work, 0)), (1,)).costs == "typical"


def test_a_fork_takes_longer_the_more_memory_there_is_to_describe() -> None:
    work = BatchDemand(cpu_s=0.004, step_delay_s=0.004)
    epochs = EpochCosts(batches=20, starts=1 / 20, iter_s=0.0, boot_s=0.0, end_s=0.0, between_s=0.0)
    small, large = (
        model_loader(
            demands(
                work, 0, machine=RecordedMachine(8.0, 0.0, False, 1.0, 1.0, private_bytes=size), epochs=epochs
            )
        )(Scenario(workers=4)).speedup
        for size in (1e8, 1e10)
    )
    assert large < 0.7 * small


def test_workers_that_are_ahead_of_training_do_not_crowd_the_cores() -> None:
    """Two of sixteen make what training uses: one alone computes hardly faster than they did."""
    work = BatchDemand(cpu_s=0.1, step_delay_s=0.05)
    machine = RecordedMachine(16.0, 0.0, False, 1.0, 1.0, costs=loading_costs(SLOW))
    ahead = model_loader(demands(work, 16, machine=machine, period_s=0.05))
    assert ahead(Scenario(workers=1)).speedup == pytest.approx(0.5, rel=0.06)
    starved = model_loader(demands(work._replace(step_delay_s=0.001), 16, machine=machine))
    assert starved(Scenario(workers=1)).speedup == pytest.approx(1.8 / 16, rel=0.1)
