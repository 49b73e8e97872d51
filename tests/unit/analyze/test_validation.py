from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fake_work import work_of
from fakes import FakeTraining, run_of
from run_files import write_run
from unstarve.analyze.batch_production import productions
from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.timeline import build_timeline
from unstarve.api import diagnose, load_run
from unstarve.model import Crew, Diagnosis, Run, Sampled, State
from unstarve.predict.recorded_run import recorded_batches
from unstarve.present.exports.markdown import markdown
from unstarve.present.exports.report_json import report
from unstarve.present.page.notebook import html_of
from unstarve.present.terminal.report_card import print_report

TRAIN = [(0.001, 0.099)] * 40


def run_with(validation: list[tuple[float, float]], *, other: int = 0) -> Run:
    training = FakeTraining()
    for _ in range(2):
        training.train(TRAIN)
        training.validate(validation, "val_loader")
        training.validate([(0.001, 0.099)] * other, "test_loader")
    return run_of(training)


@pytest.fixture(scope="module")
def waiting() -> Diagnosis:
    return diagnose(run_with([(0.08, 0.02)] * 30, other=10))


def test_validation_that_takes_long_has_its_own_sentence_and_verdict(waiting: Diagnosis) -> None:
    assert waiting.verdict.state is State.FED
    first, second = waiting.verdict.headline.split(" Validation ")
    assert first.startswith("Training is fed")
    assert second == "(val_loader) takes 35% of the run and waits for data 80% of that time."
    by_name = {loader.name: loader for loader in waiting.loaders}
    verdict = by_name["val_loader"].verdict
    assert verdict is not None
    assert (verdict.state, verdict.headline) == (State.STARVED, f"Validation {second}")
    assert verdict.evidence[0].startswith("60 measured steps took ")
    other = by_name["test_loader"].verdict
    assert other is not None
    assert other.headline.startswith("Validation (test_loader) takes 12% of the run and waits for data 1%")
    assert by_name["train"].verdict is None


def test_a_run_file_holds_what_tells_training_from_validation(tmp_path: Path, waiting: Diagnosis) -> None:
    file = write_run(tmp_path / "run.unstarve", run_with([(0.08, 0.02)] * 30, other=10))
    assert [(x.name, x.role) for x in diagnose(load_run(file)).loaders] == [
        (x.name, x.role) for x in waiting.loaders
    ]


def test_short_validation_is_not_mentioned() -> None:
    diagnosis = diagnose(run_with([(0.08, 0.02)] * 2))
    assert "Validation" not in diagnosis.verdict.headline
    assert all(loader.verdict is None for loader in diagnosis.loaders)


def test_few_long_steps_of_validation_are_mentioned_but_not_judged() -> None:
    diagnosis = diagnose(run_with([(2.0, 0.5)] * 2))
    assert diagnosis.verdict.headline.endswith(" Validation (val_loader) takes 53% of the run.")


def test_every_view_shows_validation_and_what_lies_outside(waiting: Diagnosis) -> None:
    card = io.StringIO()
    print_report(waiting, Console(file=card, width=80))
    shown = " ".join(card.getvalue().split())
    for text in (shown, html_of(waiting) or "", markdown(waiting)):
        assert "outside the measured steps" in text
        assert "8.00 s" in text  # of validation
    assert "validation with val_loader · 60 measured steps took" in shown
    assert "train.py:1, validation" in shown
    assert max(len(line) for line in card.getvalue().splitlines()) <= 80
    entries = {entry["name"]: entry for entry in json.loads(json.dumps(report(waiting)))["loaders"]}
    assert entries["train"]["role"] == "train"
    assert entries["val_loader"]["role"] == "validation"
    assert entries["val_loader"]["verdict"]["state"] == "starved"


def test_functions_of_validation_workers_are_not_trainings() -> None:
    process = run_with([(0.08, 0.02)] * 30).processes[0]
    train, val = (loader.id for loader in process.loaders[:2])
    crews = tuple(Crew(loader, epoch, (loader + 1,)) for loader in (train, val) for epoch in range(2))
    workers = [
        dataclasses.replace(
            FakeTraining().process(),
            pid=loader + 1,
            worker=True,
            sampled=(Sampled("fetch", name, "data.py", 1, True, False, 1.0),),
        )
        for loader, name in ((train, "augment"), (val, "resize"))
    ]
    run = run_of(dataclasses.replace(process, crews=crews), *workers)
    assert [cost.name for cost in analyze_run(run).functions] == ["augment"]


def test_a_step_with_validation_inside_is_left_out_of_the_model() -> None:
    training = FakeTraining()
    training.begin()
    for position in range(10):
        training.take(0.01)
        training.backward()
        training.spend(0.05)
        if position == 4:
            training.validate([(0.08, 0.02)] * 30)
    training.end()
    process = training.process()
    process = dataclasses.replace(
        process,
        batches=tuple(batch._replace(task=batch.position) for batch in process.batches),
        works=tuple(work_of(task, task, cpu_ms=5, loader=0) for task in range(10)),
    )
    timeline = build_timeline(process, warmup_steps=0)
    assert timeline is not None
    made = {epoch: one for (loader, epoch), one in productions(process, {}).items() if loader == 0}
    recorded = recorded_batches(timeline, made)
    assert [one.batch.position for one in recorded] == [0, 1, 2, 3, 5, 6, 7, 8]


def test_the_time_of_starts_is_a_share_of_its_own_loop() -> None:
    training = FakeTraining()
    training.train(TRAIN, start_s=1.0)
    training.validate([(0.08, 0.02)] * 30)
    told = analyze_run(run_of(training)).verdict.evidence
    assert "starting loaders and waiting for first batches took 1.00 s (20% of training)" in told
