"""Twice as long a run is twice the work to analyse, however it is made up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import pytest

from counted_work import grows_with_its_input
from fake_work import MS, work_of
from fakes import FakeTraining, run_of
from run_files import slow_loading_run
from unstarve.analyze.batch_production import productions, workers_of
from unstarve.analyze.blame import blame
from unstarve.analyze.device_summary import utilization_share
from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.live_training import live_of
from unstarve.analyze.loader_summary import MOST_LOADERS, summarize_loaders
from unstarve.analyze.memory_summary import memory_of
from unstarve.analyze.timeline import build_timeline
from unstarve.model import Batch, Crew, Epoch, Loader, Process, Pulse, Reading, Scenario, Tail
from unstarve.predict import head_start
from unstarve.predict import scenario as scenario_module
from unstarve.predict.forecast import model_run


def short_epochs(count: int) -> Process:
    """Two batches each, then something else."""
    made = [
        (
            Epoch(0, n, at, at + MS, 0, False, at + 4 * MS, at + 5 * MS),
            [Batch(0, n, k, at + (1 + k) * MS, at + (2 + k) * MS, 8, 64, False, 0, 10) for k in range(2)],
        )
        for n, at in enumerate(range(1000 * MS, (1000 + 6 * count) * MS, 6 * MS))
    ]
    return process(batches=[b for _, batches in made for b in batches], epochs=[e for e, _ in made])


def waits(count: int, **fields: object) -> list[Batch]:
    return [
        Batch(0, 0, n, n * MS, n * MS + MS // 2, 8, 64, False, 0, 0, task=n)._replace(**fields)
        for n in range(count)
    ]


def process(batches: Iterable[Batch] = (), epochs: Iterable[Epoch] = (), **fields: object) -> Process:
    training = FakeTraining()
    training.number("train")
    made = dataclasses.replace(training.process(), batches=tuple(batches), epochs=tuple(epochs))
    return dataclasses.replace(made, **fields)


def many_epochs(count: int) -> Callable[[], object]:
    made = short_epochs(count)
    return lambda: build_timeline(made, 5)


def waits_at_one_time(count: int) -> Callable[[], object]:
    together = process([b._replace(ask_ns=0, got_ns=count * MS) for b in waits(count)])
    crew = [process(worker=True, pid=1, works=tuple(work_of(n, n, cpu_ms=0.9) for n in range(count)))]
    made = productions(process(crews=(Crew(0, 0, (1,)),)), workers_of(crew))[0, 0]

    def run() -> None:
        timeline = build_timeline(together, 0)
        assert timeline is not None
        for batch in timeline.batches:
            blame(batch, made)

    return run


def positions_that_repeat(count: int) -> Callable[[], object]:
    made = process([b._replace(position=0, block=1) for b in waits(count)])
    return lambda: build_timeline(made, 0)


def batches_held_back(count: int) -> Callable[[], object]:
    """Every other batch was done long before the one that training waits for, by one worker of many."""
    places = range(count // 5)
    crew = [
        process(
            worker=True,
            pid=place,
            works=tuple(work_of(n, n - n % 2 * 5, cpu_ms=0.9) for n in range(place, count, len(places))),
        )
        for place in places
    ]
    made = productions(process(crews=(Crew(0, 0, tuple(places)),)), workers_of(crew))[0, 0]
    return lambda: [blame(b, made) for b in waits(count)]


def works_at_one_time(count: int) -> Callable[[], object]:
    works = tuple(work_of(n, 0, cpu_ms=count)._replace(done_ns=count * MS + n) for n in range(count))
    crew = [process(worker=True, pid=1, works=works)]

    def run() -> None:
        made = productions(process(crews=(Crew(0, 0, (1,)),)), workers_of(crew))[0, 0]
        for batch in waits(count):
            blame(batch, made)

    return run


def processes_of_one_pid(count: int) -> Callable[[], object]:
    crew = [process(worker=True, pid=1, start_ns=n) for n in range(count)]
    crews = tuple(Crew(0, n, (1,)) for n in range(count))
    epochs = [Epoch(0, n, n, n, 0, False, n, n) for n in range(count)]
    return lambda: productions(process(crews=crews, epochs=epochs), workers_of(crew))


def pulses_of_many(count: int) -> Callable[[], object]:
    pulses = tuple(Pulse(at * 1000 * MS, None, None, None, None, 1, 1, 1, 1) for at in range(10))
    made = [process(pid=n, pulses=pulses) for n in range(count)]
    return lambda: memory_of(made[0], made, 0)


def readings_and_pauses(count: int) -> Callable[[], object]:
    steps = [b._replace(block=1, settling=b.position % 2 == 0) for b in waits(count)]
    readings = tuple(Reading(0, at * MS, 0.5, 1, 1, False) for at in range(count))
    timeline = build_timeline(process(steps, readings=readings), 0)
    assert timeline is not None
    return lambda: utilization_share(timeline)


@pytest.mark.parametrize(
    "make",
    [
        many_epochs, waits_at_one_time, positions_that_repeat, batches_held_back, works_at_one_time,
        processes_of_one_pid, pulses_of_many, readings_and_pauses,
    ],
)  # fmt: skip
def test_twice_the_events_are_twice_the_work(make: Callable[[int], Callable[[], object]]) -> None:
    assert grows_with_its_input(make, 200)


def test_a_queue_that_is_never_emptied_is_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated: list[int] = []
    play = scenario_module.simulate
    for module in (scenario_module, head_start):
        monkeypatch.setattr(
            module,
            "simulate",
            lambda works, count, *more: simulated.append(count) or play(works, count, *more),
        )
    model = model_run(slow_loading_run(60, workers=2, prefetch_factor=10**6))
    deep = model(Scenario(workers=32))
    assert max(simulated) < 1000
    usual = model_run(slow_loading_run(60, workers=2, prefetch_factor=16))(Scenario(workers=32))
    assert deep.speedup == pytest.approx(usual.speedup)


def test_of_loaders_without_number_the_busiest_are_told() -> None:
    loaders = tuple(Loader(n, f"l{n}", "t.py:1", "DataLoader") for n in range(MOST_LOADERS + 10))
    batches = [b._replace(loader=MOST_LOADERS + 5) for b in waits(3)]
    told = summarize_loaders([process(batches, loaders=loaders)])
    assert len(told) == MOST_LOADERS
    assert told[0].name == f"l{MOST_LOADERS + 5}"


def test_the_workers_of_a_loader_know_whether_its_samples_are_random() -> None:
    loaders = tuple(Loader(n, f"l{n}", "t.py:1", "DataLoader") for n in range(3))
    crews = (Crew(0, 0, (1, 2)), Crew(1, 0, (3,)), Crew(2, 0, (4,)))
    made = process(loaders=loaders, crews=crews)
    told = {1: False, 2: True, 3: False, 4: None}
    crew = [process(worker=True, pid=pid, draws=drew) for pid, drew in told.items()]
    found = {one.name: dict(one.dataset) for one in summarize_loaders([made], crew)}
    assert found == {"l0": {"draws": True}, "l1": {"draws": False}, "l2": {}}


def test_a_look_at_a_run_shows_few_of_many_loaders() -> None:
    made = process(waits(3), host="here", pid=7)
    delivered = {("here", 7): dict.fromkeys(range(1000), 1)}
    (trainer,) = live_of(Tail(run_of(made), delivered, 5.0, 0.0)).trainers
    assert trainer.loader.steps == 1
    assert len(trainer.loaders) < 100


def test_a_process_that_only_iterates_inside_of_another_loader_is_looked_at() -> None:
    made = process(waits(3, nested=True))
    assert live_of(Tail(run_of(made), {}, 5.0, 0.0)).trainers == ()


def test_batches_that_take_no_time_are_no_steps() -> None:
    still = process([b._replace(ask_ns=5, got_ns=5) for b in waits(100)])
    assert analyze_run(run_of(still)).steps == 0
    assert build_timeline(still, 5) is None
