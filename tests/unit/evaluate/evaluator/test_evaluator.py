"""An evaluator times its loader, keeps a log of it, and never stands in its way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from sample_loaders import Failing, first_numbers, numbered
from unstarve.evaluate.evaluator import load_recorder
from unstarve.evaluate.evaluator.loader_evaluator import LoaderEvaluator
from unstarve.evaluate.evaluator.read_log import read_log


def saved(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


# --- iterating ---


def test_batches_pass_through_untouched() -> None:
    batches = [[torch.zeros(2)], {"x": torch.ones(3)}, "text", None]
    assert all(a is b for a, b in zip(LoaderEvaluator(batches), batches, strict=True))


def test_batch_sizes_are_recorded_where_they_can_be_told() -> None:
    batches = [[torch.zeros(2, 5)], {"x": torch.ones(3)}, torch.zeros(4), ["a", "b"], None, torch.tensor(1)]
    evaluator = LoaderEvaluator(batches)
    list(evaluator)
    metrics = evaluator.get_metrics()
    assert metrics["batch_sizes"] == [2, 3, 4, 2, None, None]
    assert metrics["samples"] is None


def test_samples_are_counted() -> None:
    evaluator = LoaderEvaluator(numbered(6, size=4))
    list(evaluator)
    assert evaluator.get_metrics()["samples"] == 24


def test_iterating_goes_on_after_an_exception_as_the_loader_does() -> None:
    iterator = iter(LoaderEvaluator(DataLoader(Failing())))
    assert [int(next(iterator)) for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="damaged"):
        next(iterator)
    assert int(next(iterator)) == 3
    with pytest.raises(StopIteration):
        next(iterator)


def test_the_iterator_has_the_attributes_of_the_loaders_own() -> None:
    iterator: Any = iter(LoaderEvaluator(numbered()))
    next(iterator)
    assert iterator._num_yielded == 1


def test_both_modes_shuffle_as_the_bare_loader_does() -> None:
    def order(wrap: Any) -> list[int]:
        torch.manual_seed(5)
        return first_numbers(wrap(numbered(shuffle=True)))

    bare = order(lambda loader: loader)
    assert order(LoaderEvaluator) == bare
    assert order(lambda loader: [*LoaderEvaluator(loader, mode="replay").cached_batches]) == bare


def test_the_summary_works_without_a_dataset_or_a_length(capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = LoaderEvaluator(iter([torch.zeros(2)]))
    list(evaluator)
    evaluator.print_summary()
    text = capsys.readouterr().out
    assert "Dataset size: unknown" in text
    assert "Number of batches: unknown" in text
    assert "Total batches processed: 1" in text


def test_the_summary_works_before_the_first_batch(capsys: pytest.CaptureFixture[str]) -> None:
    LoaderEvaluator(numbered()).print_summary()
    assert "Number of batches: 6" in capsys.readouterr().out


# --- the log on disk ---


def test_a_finished_epoch_leaves_a_complete_log(tmp_path: Path) -> None:
    file = tmp_path / "new" / "log.json"
    evaluator = LoaderEvaluator(numbered(), log_file=file)
    list(evaluator)
    assert saved(file) == evaluator.get_metrics()
    assert saved(file)["complete"]
    assert [path.name for path in file.parent.iterdir()] == ["log.json"]


def test_leaving_the_loop_early_leaves_a_log(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    for _ in LoaderEvaluator(numbered(), log_file=file):
        break
    assert saved(file)["total_batches"] == 1
    assert not saved(file)["complete"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_the_loop_leaves_a_log(tmp_path: Path, error: type[BaseException]) -> None:
    file = tmp_path / "log.json"

    def train() -> None:
        for number, _ in enumerate(LoaderEvaluator(numbered(), log_file=file)):
            if number == 2:
                raise error

    with pytest.raises(error) as caught:
        train()
    del caught  # the traceback holds the loop's frame, and with it the iterator
    assert saved(file)["total_batches"] == 3
    assert not saved(file)["complete"]


def test_an_exception_in_the_loader_leaves_a_log_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    with pytest.raises(OSError, match="damaged"):
        list(LoaderEvaluator(DataLoader(Failing()), log_file=file))
    (epoch,) = saved(file)["epochs"]
    assert epoch["error"] == "OSError"
    assert epoch["batches"] == 2


SCRIPT = """
import os, signal, sys
from unstarve.evaluate.evaluator import load_recorder
from unstarve.evaluate.evaluator.loader_evaluator import LoaderEvaluator
load_recorder._FLUSH_EVERY_NS = 0
load_recorder._PAUSE_PER_WRITE = 0
for number in LoaderEvaluator(range(10), log_file=sys.argv[1]):
    if number == 4:
        {end}
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("raise RuntimeError", 1),
        ("sys.exit(5)", 5),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_however_the_process_ends_a_readable_log_is_left(tmp_path: Path, end: str, code: int) -> None:
    file = tmp_path / "log.json"
    command = [sys.executable, "-c", SCRIPT.format(end=end), str(file)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=False, capture_output=True, env=environment)
    assert done.returncode == code
    assert len(read_log(file).load_s) == 5
    assert not saved(file)["complete"]


def test_a_log_that_cannot_be_written_warns_once_and_lets_training_go_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    evaluator = LoaderEvaluator(numbered(), log_file=tmp_path / "file" / "log.json")
    with pytest.warns(RuntimeWarning, match="cannot write") as caught:
        assert len(list(evaluator)) == len(list(evaluator)) == 6
    assert len(caught) == 1


def test_even_where_warnings_are_errors_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(LoaderEvaluator(numbered(), log_file=tmp_path / "file" / "log.json"))) == 6
    assert "cannot write" in capsys.readouterr().err


def test_a_failed_write_leaves_the_last_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "log.json"
    evaluator = LoaderEvaluator(numbered(), log_file=file)
    list(evaluator)
    before = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        list(evaluator)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["log.json"]


def test_a_costly_log_is_not_written_again_at_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_recorder, "_COSTLY_NS", -1)
    monkeypatch.setattr(load_recorder, "_PAUSE_PER_WRITE", 10**9)
    file = tmp_path / "log.json"
    evaluator = LoaderEvaluator(numbered(), log_file=file)
    list(evaluator)
    list(evaluator)
    assert saved(file)["total_batches"] == 6
    evaluator._recorder.write_late()
    assert saved(file)["total_batches"] == 12


def test_what_is_not_a_file_is_written_to_and_not_replaced() -> None:
    list(LoaderEvaluator(numbered(), log_file=os.devnull))
    assert not Path(os.devnull).is_file()


def test_saving_by_hand_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = LoaderEvaluator(numbered())
    list(evaluator)
    evaluator.save_metrics(tmp_path / "m.json")
    assert saved(tmp_path / "m.json") == evaluator.get_metrics()
    assert str(tmp_path / "m.json") in capsys.readouterr().out
