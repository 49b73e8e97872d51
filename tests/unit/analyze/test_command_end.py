"""How a command ended, and what is told of a run without batches."""

from __future__ import annotations

import dataclasses

import pytest

from fakes import FakeTraining, run_of
from unstarve.advise.all_rules import advise
from unstarve.analyze.command_end import after, ended_early, failed
from unstarve.analyze.diagnose import analyze_run
from unstarve.model import BatchFunction, Diagnosis, LoopPlace, LoopProfile, Run, State


def ended(exit_code: int | None, failure: str | None = None) -> Run:
    return dataclasses.replace(run_of(), exit_code=exit_code, failure=failure)


@pytest.mark.parametrize(
    ("exit_code", "failure", "told"),
    [
        (1, "ValueError: x.", "The command failed after 1 step (exit code 1): ValueError: x"),
        (1, "KeyboardInterrupt", "The command was interrupted after 1 step"),
        (7, None, "The command failed after 1 step (exit code 7)"),
        (-9, None, "The command was killed by SIGKILL after 1 step: memory may have run out"),
        (137, None, "The command was killed by SIGKILL after 1 step: memory may have run out"),
        (-11, "old news", "The command was killed by SIGSEGV after 1 step"),
        (-2, None, "The command was interrupted after 1 step"),
        (200, None, "The command failed after 1 step (exit code 200)"),
    ],
)
def test_the_end_is_told_in_one_sentence(exit_code: int, failure: str | None, told: str) -> None:
    run = ended(exit_code, failure)
    assert failed(run)
    assert ended_early(run, after(1)) == told


def test_a_good_end_and_an_unknown_one_are_no_failures() -> None:
    assert not failed(ended(0))
    assert not failed(ended(None))


def test_a_training_that_failed_keeps_its_verdict() -> None:
    training = FakeTraining()
    training.epoch([(0.008, 0.001)] * 40)
    run = dataclasses.replace(run_of(training), exit_code=1, failure="ValueError: x")
    verdict = analyze_run(run).verdict
    assert verdict.state is State.STARVED
    assert verdict.evidence[-1] == "the command failed after 40 steps (exit code 1): ValueError: x"


def without_loader(batches: BatchFunction | None, exit_code: int = 0) -> Diagnosis:
    places = (LoopPlace("loss.backward()", "train.py", 40, 6.0), LoopPlace("get_batch", "train.py", 9, 3.0))
    process = dataclasses.replace(
        run_of(FakeTraining()).processes[0], loop=LoopProfile(10.0, places, batches)
    )
    run = dataclasses.replace(ended(exit_code), processes=(process,), limit="--steps 5")
    diagnosis = analyze_run(run)
    return dataclasses.replace(diagnosis, advice=advise(diagnosis)[0])


def test_a_loop_without_a_loader_is_told_by_where_its_time_went() -> None:
    found = without_loader(BatchFunction("function", "get_batch", "src/train.py", 9, "", 3.0))
    assert found.verdict.state is State.INCONCLUSIVE
    assert found.verdict.headline.startswith("No DataLoader was iterated")
    assert found.verdict.evidence == (
        "where the training loop spent its time: loss.backward() (train.py:40) 60%, "
        "get_batch (train.py:9) 30%",
        "--steps 5 had no effect: no batch was delivered",
    )
    assert [(cost.name, cost.share) for cost in found.functions] == [
        ("loss.backward()", 0.6),
        ("get_batch", 0.3),
    ]


def test_a_loop_that_nobody_saw_running_is_not_told_about() -> None:
    process = dataclasses.replace(run_of(FakeTraining()).processes[0], loop=LoopProfile(0.1, (), None))
    run = dataclasses.replace(ended(1), processes=(process,))
    assert analyze_run(run).verdict.evidence == ()


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        (
            BatchFunction("function", "data.get_batch", "src/data.py", 116, "", 3.0),
            "import unstarve\nget_batch = unstarve.watch(get_batch)   # data.py:116",
        ),
        (
            BatchFunction("method", "loader.next_batch", "train.py", 4, "", 3.0),
            "import unstarve\n@unstarve.watch   # train.py:4",
        ),
        (
            BatchFunction("generator", "batches", "t.py", 7, "for i, x in enumerate(batches(f(2), 3)):", 3.0),
            "import unstarve\nfor i, x in enumerate(unstarve.watch(batches(f(2), 3))):   # t.py:7",
        ),
        (
            BatchFunction("generator", "batches", "t.py", 7, "for x in batches(", 3.0),
            "import unstarve\nfor batch in unstarve.watch(batches(…)):   # t.py:7",
        ),
    ],
)
def test_the_line_to_add_has_the_users_own_names(batches: BatchFunction, code: str) -> None:
    (advice,) = without_loader(batches).advice
    assert (advice.id, advice.code, advice.change) == ("watch-batches", code, {})
    assert advice.why.endswith("where it spends 30% of its time")


def test_without_a_candidate_the_headline_says_what_to_wrap() -> None:
    found = without_loader(None)
    assert "for batch in unstarve.watch(batches)" in found.verdict.headline
    assert found.advice == ()


def test_a_loop_without_a_loader_that_failed_is_not_said_to_have_failed_before_it() -> None:
    headline = without_loader(None, exit_code=1).verdict.headline
    assert headline == "The command failed without iterating a DataLoader (exit code 1)."
