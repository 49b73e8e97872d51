"""`unstarve whatif` on a run whose loader sleeps."""

from __future__ import annotations

import json

import pytest

import unstarve
from run_files import slow_loading_run, write_run
from unstarve.errors import NotPredictableError


@pytest.fixture(scope="module")
def recorded(shared_project):
    """A loader that sleeps 64 ms a batch in one worker; a step takes 8 ms."""
    write_run(shared_project.folder / "run.unstarve", slow_loading_run(load_ms=64, step_ms=8))
    return shared_project


def curve(project, *words: str) -> dict[int, dict]:
    done = project.unstarve("whatif", "run.unstarve", "--json", "-", *words)
    assert done.returncode == 0, done.stderr
    return {point["workers"]: point for point in json.loads(done.stdout)["curve"]}


def test_latency_is_predicted_to_scale_with_the_workers(recorded) -> None:
    found = curve(recorded, "--workers", "1,2,4,16")
    assert found[1]["recorded"]
    assert found[1]["speedup"]["predicted"] == 1
    assert 1.4 < found[2]["speedup"]["predicted"] < 2.3
    assert found[4]["speedup"]["predicted"] > 1.8
    assert found[16]["speedup"]["predicted"] < 10
    assert found[16]["wait_share"] < found[1]["wait_share"]


def test_the_table_is_eighty_columns_wide_in_a_pipe(recorded) -> None:
    done = recorded.unstarve("whatif", "run.unstarve", env={"COLUMNS": "80"})
    assert (done.returncode, done.stderr) == (0, "")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    for word in ("workers", "samples/s", "recorded", "best", "enough"):
        assert word in done.stdout


def test_prefetch_and_batch_size_are_crossed_and_drawn(recorded) -> None:
    words = ("--workers", "1,4", "--prefetch", "1,2", "--batch-size", "8,16", "--plot", "curve.svg")
    done = recorded.unstarve("whatif", "run.unstarve", *words)
    assert done.returncode == 0, done.stderr
    assert "prefetch" in done.stdout
    assert (recorded.folder / "curve.svg").stat().st_size > 5000


def test_the_report_holds_the_curve_that_its_advice_comes_from(recorded) -> None:
    report = recorded.report()
    points = {point["workers"]: point for point in report["whatif"]["curve"]}
    first = report["advice"][0]
    assert first["id"] == "more-workers"
    predicted = points[first["change"]["num_workers"]]["speedup"]["predicted"]
    assert first["speedup"]["predicted"] == pytest.approx(min(predicted, report["headroom"]["speedup"]))


def test_python_gets_the_same_answers(recorded) -> None:
    path = recorded.folder / "run.unstarve"
    result = unstarve.whatif(path, workers=(1, 2))
    assert [one.setting.workers for one in result.curve] == [1, 2]
    assert result == unstarve.whatif(unstarve.load_run(path), workers=(1, 2))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", "two"), "--workers must be whole numbers"),
        (("--prefetch", "0"), "--prefetch must be whole numbers from 1"),
        (("--workers", "1,2,3,4,5,6,7,8", "--batch-size", "1,2,3,4,5,6,7,8,9"), "ask for fewer"),
        (("--plot", "curve.gif"), ".png or .svg"),
    ],
)
def test_bad_usage_is_one_sentence(recorded, words: tuple[str, ...], said: str) -> None:
    done = recorded.unstarve("whatif", "run.unstarve", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("unstarve: ")
    assert said in done.stderr


def test_a_loader_that_is_no_dataloader_cannot_be_modelled(project) -> None:
    project.write("train.py", "import unstarve\nfor number in unstarve.watch(iter(range(60))): pass")
    assert project.record("train.py")["whatif"] is None
    done = project.unstarve("whatif", "run.unstarve")
    assert done.returncode == 2
    assert "is not a torch DataLoader" in done.stderr


def test_a_short_run_cannot_be_modelled(project) -> None:
    short = write_run(project.folder / "run.unstarve", slow_loading_run(10))
    assert project.report()["whatif"] is None
    with pytest.raises(NotPredictableError, match="let it run longer"):
        unstarve.whatif(short)
