"""How a dataset wants to be loaded: constructed clocks for the logic, tiny real runs for the rest."""

from __future__ import annotations

import ast
import json
import random
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import unstarve
from sample_loaders import Failing, Stream
from unstarve.errors import UsageError
from unstarve.evaluate.handbook.diagnose_loader import conclude, start_cost
from unstarve.evaluate.handbook.sample_cost import costly, function_profile, sample_cost
from unstarve.evaluate.handbook.setting_trials import Trials
from unstarve.model import (
    Advice,
    Diagnosis,
    Gain,
    LoaderArguments,
    ProfiledFunction,
    Rejected,
    SampleCost,
    StartCost,
    Tried,
    WorkerSearch,
)


class Numbers(Dataset[tuple[torch.Tensor, int]]):
    """Draws from every random stream there is."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(4) + random.random(), index


class Timed(Dataset[torch.Tensor]):
    """Sample i takes i milliseconds, half of it on a CPU, of a clock that nothing else moves."""

    wall_s = cpu_s = 0.0

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> torch.Tensor:
        self.wall_s += index / 1e3
        self.cpu_s += index / 2e3
        return torch.zeros(8)


# --- single samples ---


def test_samples_are_timed_wall_and_cpu() -> None:
    dataset = Timed()
    cost = sample_cost(dataset, 1e9, clock=lambda: dataset.wall_s, cpu_clock=lambda: dataset.cpu_s)
    assert cost.samples == 8  # all but the first
    assert cost.cpu_share == pytest.approx(0.5)
    assert cost.longest_s == pytest.approx(cost.slowest / 1e3 if cost.slowest is not None else -1)
    assert cost.sample_bytes == 32


def test_a_look_ends_when_its_time_is_over() -> None:
    dataset = Timed()
    cost = sample_cost(dataset, 0.0, clock=lambda: dataset.wall_s, cpu_clock=lambda: dataset.cpu_s)
    assert cost.samples == 3


def test_a_stream_has_samples_without_an_index() -> None:
    cost = sample_cost(Stream(5), 1e9)
    assert (cost.samples, cost.slowest) == (4, None)
    with pytest.raises(UsageError, match="no sample"):
        sample_cost(Stream(0), 1.0)


def test_functions_are_listed_by_their_own_time() -> None:
    own_s = {"decode": 0.8, "__getitem__": 0.15, "crop": 0.045, "tiny": 0.005}
    entries = {("data.py", line, name): (1, 7, s, 9.9, {}) for line, (name, s) in enumerate(own_s.items())}
    functions = costly(SimpleNamespace(stats=entries))
    assert [(one.name, one.calls, one.share) for one in functions] == [
        ("decode", 7, pytest.approx(0.8)),
        ("__getitem__", 7, pytest.approx(0.15)),
        ("crop", 7, pytest.approx(0.045)),
    ]


def test_getting_samples_is_really_profiled() -> None:
    functions = function_profile(Numbers(), 0.0)
    assert functions
    known = ("__getitem__", "rand", "random", "getitem")
    assert all(any(name in one.name for name in known) for one in functions)


def test_an_error_of_the_dataset_passes() -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> Any:
            raise ValueError("not an image")

    for look in (lambda: sample_cost(Broken(), 1.0), lambda: function_profile(Broken(), 1.0)):
        with pytest.raises(ValueError, match="not an image"):
            look()


# --- trials ---


def test_a_trial_takes_whole_turns_and_leaves_no_worker() -> None:
    trials = Trials(Numbers(), {})
    for workers in (0, 1):
        rate = trials.rate(LoaderArguments(workers, 8), 0.0)
        assert rate is not None
        assert rate > 0
    assert torch.multiprocessing.active_children() == []


def test_batches_may_be_copied_to_a_device_as_they_come() -> None:
    rate = Trials(Numbers(), {}).rate(LoaderArguments(0, 8), 0.0, device="cpu")
    assert rate is not None


def test_a_stream_that_ends_too_soon_has_no_rate() -> None:
    assert Trials(Stream(8), {}).rate(LoaderArguments(0, 8), 1.0) is None


def test_every_sample_comes_before_any_comes_twice() -> None:
    trials = Trials(Numbers(), {})
    seen: list[int] = []
    for _ in range(2):
        iterator = iter(trials.loader(LoaderArguments(0, 32)))
        seen += next(iterator)[1].tolist()
    assert sorted(seen) == list(range(64))


def test_workers_are_started_anew_and_kept_and_all_of_them_end() -> None:
    cost = start_cost(Trials(Numbers(), {}), LoaderArguments(1, 8), budget_s=0.0)
    assert cost.fresh_s > 0
    assert cost.kept_s > 0
    assert torch.multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("dataset", "options", "told"),
    [
        (Numbers(), {"shuffle": True}, "unknown option shuffle"),
        (DataLoader(Numbers()), {}, "loader.dataset"),
        (3, {}, "not a dataset"),
        ([], {}, "empty"),
        (Numbers(), {"batch_size": 0}, "batch_size"),
        (Numbers(), {"budget_s": 0}, "budget_s"),
        (Numbers(), {"candidates": []}, "candidates"),
        (Numbers(), {"candidates": [-1]}, "candidates"),
    ],
)
def test_what_makes_no_sense_is_refused(dataset: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        unstarve.find_num_workers(dataset, **options)


# --- the calls themselves ---


def test_the_quick_call_answers_and_leaves_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    random.seed(1)
    expected = torch.rand(()), random.random()
    torch.manual_seed(1)
    random.seed(1)
    found = unstarve.find_num_workers(Numbers(), 8, candidates=[0, 1], budget_s=0.01)
    assert (torch.rand(()), random.random()) == expected
    assert isinstance(found, WorkerSearch)
    assert found.num_workers in (0, 1)
    assert found.code in str(found)
    assert found._repr_html_().startswith("<div")
    assert "single samples" in capsys.readouterr().err
    assert torch.multiprocessing.active_children() == []


def test_an_exception_of_the_dataset_passes() -> None:
    class Short(Failing):
        def __len__(self) -> int:
            return 4

    with pytest.raises(OSError, match="damaged"):
        unstarve.find_num_workers(Short(), 2, budget_s=0.01, progress=False)


def test_the_whole_workflow_ends_with_a_call_that_can_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    found = unstarve.diagnose_dataloader(Numbers(), batch_size=8, budget_s=0.05)
    assert torch.multiprocessing.active_children() == []
    assert found.sample.samples >= 3
    assert found.workers.tried
    assert found.functions
    text = str(found)
    assert text.index("recommended") < text.index("DataLoader(")
    assert max(len(line) for line in text.splitlines()) <= 80
    assert ast.unparse(ast.parse(found.code)).startswith("DataLoader(dataset")
    with warnings.catch_warnings():  # torch does not like more workers than cores
        warnings.simplefilter("ignore")
        loader: DataLoader[Any] = DataLoader(Numbers(), **found.arguments)
        assert len(next(iter(loader))[1]) == 8
    assert "<pre" in found._repr_html_()
    assert [line.split(":")[1] for line in capsys.readouterr().err.splitlines()] == [
        f" {number} of 6" for number in range(1, 7)
    ]


def test_a_stream_can_be_diagnosed_too() -> None:
    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            while True:
                yield 1

    found = unstarve.diagnose_dataloader(Endless(), budget_s=0.02, progress=False)
    assert found.sample.slowest is None


# --- advice ---


def advised(id: str, code: str, **change: Any) -> Advice:
    return Advice(id, f"Try {id}", "it was measured", change, Gain(1.5, 1.2, 1.9), code)


def rules(d: Diagnosis) -> tuple[tuple[Advice, ...], tuple[Rejected, ...]]:
    """One rule that changes the call as it is known, one for workers, one for a measured argument."""
    code = f"unstarve.{d.loaders[0].source}"
    found = (
        advised("engine", code),
        advised("workers", code, num_workers=8),
        advised("keep", code, in_order=False),
    )
    return found, ()


def test_the_answer_ends_with_the_advice_of_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unstarve.evaluate.handbook.loader_advice.advise", rules)
    numbers = Numbers()
    found = unstarve.find_num_workers(numbers, 8, candidates=[0], budget_s=0.05, progress=False)
    assert found.code == "DataLoader(numbers, batch_size=8, num_workers=0)"
    # What was measured is not predicted as well.
    assert [one.id for one in found.advice] == ["engine", "keep"]
    assert found.advice[0].code == f"unstarve.{found.code}"
    shown = str(found)
    assert shown.index(found.code) < shown.index("to load faster still") < shown.index("Try engine")
    assert "1.5×" in shown
    assert "Try engine" in found._repr_html_()
    assert json.loads(json.dumps(asdict(found)))["advice"][0]["id"] == "engine"
    whole = unstarve.diagnose_dataloader(numbers, 8, budget_s=0.05, progress=False)
    assert whole.code.startswith("DataLoader(\n    numbers," if "\n" in whole.code else "DataLoader(numbers,")
    assert [one.id for one in whole.advice] == ["engine", "keep"]
    assert "Try engine" in str(whole)


def test_inside_a_recording_there_is_no_second_one() -> None:
    with unstarve.recording():
        found = unstarve.find_num_workers(Numbers(), 8, candidates=[0], budget_s=0.05, progress=False)
    assert found.advice == ()


# --- conclusions ---

SAMPLE = SampleCost(100, 0.002, 0.003, 0.004, 17, 0.95, 1000)


def tried(*rates: float, **setting: Any) -> Tried:
    return Tried(LoaderArguments(**{"num_workers": 2, "batch_size": 32} | setting), rates)


WORKERS = WorkerSearch(
    2, 1.9, "2 workers load 1.9× as fast as none.", (tried(100, 100),), 2.0, {"batch_size": 32}, ""
)


def concluded(**parts: Any) -> Any:
    usual = {"sizes": (), "prefetch": (), "pinning": (), "start": None, "functions": ()}
    return conclude(SAMPLE, WORKERS, **(usual | parts))


def test_an_argument_is_recommended_only_when_it_was_measured_to_help() -> None:
    nothing = concluded(
        prefetch=(tried(100, 100, prefetch_factor=2), tried(104, 99, prefetch_factor=4)),
        pinning=(tried(100, 100), tried(101, 99, pin_memory=True)),
        start=StartCost(0.1, 0.1, shown=False),
    )
    assert nothing.arguments == {"batch_size": 32, "num_workers": 2}
    everything = concluded(
        prefetch=(tried(100, 100, prefetch_factor=2), tried(130, 129, prefetch_factor=4)),
        pinning=(tried(100, 100), tried(150, 160, pin_memory=True)),
        start=StartCost(0.5, 0.1, shown=True),
    )
    assert everything.arguments == {
        "batch_size": 32, "num_workers": 2, "prefetch_factor": 4, "persistent_workers": True,
        "pin_memory": True,
    }  # fmt: skip
    assert "Keeping workers alive saves 400 ms at the start of every epoch after the first." in (
        everything.findings
    )


def test_a_batch_size_is_told_and_never_changed() -> None:
    better = concluded(sizes=(tried(100, 100), tried(150, 151, batch_size=64)))
    assert better.arguments["batch_size"] == 32
    assert any("Batches of 64 load 1.50× as many" in finding for finding in better.findings)
    same = concluded(sizes=(tried(100, 100), tried(101, 99, batch_size=64)))
    assert any("No other batch size" in finding for finding in same.findings)


def test_what_the_time_did_not_suffice_for_is_said_and_not_concluded() -> None:
    once = concluded(prefetch=(tried(100, prefetch_factor=2), tried(130, prefetch_factor=4)))
    assert "prefetch_factor" not in once.arguments
    assert any("prefetch depths" in note for note in once.notes)


def test_an_uneven_sample_and_the_costliest_function_are_named() -> None:
    uneven = SampleCost(100, 0.002, 0.003, 0.2, 17, 0.3, None)
    top = ProfiledFunction("decode", "data.py", 3, 100, 0.9, 0.9)
    found = conclude(uneven, WORKERS, (), (), (), None, (top,))
    assert any("200 ms (index 17)" in finding for finding in found.findings)
    assert any("90%, is spent in decode" in finding for finding in found.findings)
    assert found.headline.startswith("Fetching a sample is mostly waiting")
    assert concluded().findings[0] == "A sample takes 2.00 ms, 95% of it on a CPU, and holds 1 KB."
    other = conclude(uneven, WORKERS, (), (), (), None, None)
    assert any("another profiler" in note for note in other.notes)
