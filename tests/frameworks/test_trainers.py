"""Lightning, the Hugging Face Trainer and Accelerate, by command and by callback; plain loops by command."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Project

SCRIPTS = {
    "lightning": "DigitsData's train dataloader",
    "transformers": "Trainer's train dataloader",
    "accelerate": "train_dataloader",
}
EACH = [pytest.param(name, marks=pytest.mark.needs(name)) for name in SCRIPTS]


@pytest.fixture(scope="module")
def recorded(frameworks: Project) -> Any:
    """Run each script once under `unstarve run`; its report and what it printed."""
    seen: dict[str, tuple[dict[str, Any], str]] = {}

    def record(name: str) -> tuple[dict[str, Any], str]:
        if name not in seen:
            done = frameworks.unstarve("run", "-f", "-o", f"{name}.unstarve", f"digits_{name}.py")
            assert done.returncode == 0, done.stderr
            seen[name] = frameworks.report(f"{name}.unstarve"), done.stdout
        return seen[name]

    return record


def loss(text: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith("loss ")]
    return found


@pytest.mark.parametrize("name", EACH)
def test_a_training_that_waits_for_remote_samples_is_told_so(recorded: Any, name: str) -> None:
    report, _ = recorded(name)
    assert report["lost"] == []
    assert report["verdict"]["state"] == "starved"
    waits = {share["cause"]: share["seconds"] for share in report["budget"]}
    assert waits["remote"] > 10 * waits.get("disk", 0.0)
    (train,) = [one for one in report["loaders"] if one["role"] == "train"]
    assert train["name"] == SCRIPTS[name]
    assert train["where"].startswith(f"digits_{name}.py:")
    assert train["steps"] == 30


@pytest.mark.parametrize("name", EACH)
def test_recording_leaves_the_training_as_it_is(frameworks: Project, recorded: Any, name: str) -> None:
    _, printed = recorded(name)
    alone = frameworks.python(f"digits_{name}.py")
    assert loss(printed) == loss(alone.stdout)


@pytest.mark.needs("transformers")
def test_advice_speaks_of_training_arguments(recorded: Any) -> None:
    report, _ = recorded("transformers")
    codes = {one["id"]: one["code"] for one in report["advice"]}
    assert codes["more-workers"].startswith("TrainingArguments(dataloader_num_workers=")
    assert "Trainer(…, train_dataset=unstarve.CachedDataset(train_dataset))" in codes["keep-in-memory"]


@pytest.mark.needs("lightning")
def test_advice_names_the_method_of_the_data_module(recorded: Any) -> None:
    report, _ = recorded("lightning")
    codes = [
        one["code"].removeprefix("import unstarve\n\n")
        for one in report["advice"]
        if "DataLoader(" in one["code"]
    ]
    assert codes
    assert all(code.startswith("# in DigitsData.train_dataloader\nreturn ") for code in codes)


@pytest.mark.needs("accelerate")
def test_advice_changes_the_call_that_accelerate_was_given(recorded: Any) -> None:
    report, _ = recorded("accelerate")
    codes = [
        one["code"].removeprefix("import unstarve\n\n")
        for one in report["advice"]
        if "DataLoader(" in one["code"]
    ]
    assert codes
    assert all(code.startswith("train_dataloader = ") for code in codes)


@pytest.mark.parametrize("name", [EACH[1], EACH[2]])
def test_advice_knows_that_accelerate_creates_the_loader_again(recorded: Any, name: str) -> None:
    report, _ = recorded(name)
    (train,) = [one for one in report["loaders"] if one["role"] == "train"]
    assert train["config"]["sampler"].endswith("RandomSampler")
    assert train["config"]["remade_by"] == "accelerate"
    assert "unstarve.CachedDataset(" in "".join(one["code"] for one in report["advice"])
    assert not [one for one in report["advice"] if "unstarve.DataLoader" in one["code"]]


@pytest.mark.parametrize("name", EACH)
def test_the_callback_comes_to_the_same_verdict(frameworks: Project, recorded: Any, name: str) -> None:
    command, _ = recorded(name)
    shutil.rmtree(frameworks.folder / "logs", ignore_errors=True)
    done = frameworks.python(f"digits_{name}.py", "--callback")
    assert done.returncode == 0, done.stderr
    assert loss(done.stdout) == loss(recorded(name)[1])
    callback = frameworks.report("callback.unstarve")
    if name == "lightning":  # figures go to its loggers
        (table,) = frameworks.folder.glob("logs/**/metrics.csv")
        assert "data/wait_share" in table.read_text()
    (frameworks.folder / "callback.unstarve").unlink()
    for report in (command, callback):
        assert (report["verdict"]["state"], report["verdict"]["cause"]) == ("starved", "remote")
    assert [one["name"] for one in callback["loaders"]] == [one["name"] for one in command["loaders"]]
    ids = [{one["id"] for one in report["advice"]} for report in (command, callback)]
    assert "keep-in-memory" in ids[0] & ids[1]
    assert "STARVED" in done.stderr
    assert callback["verdict"]["headline"][:30] in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize("name", [EACH[0], EACH[2]])
def test_under_unstarve_run_the_callback_leaves_recording_to_it(frameworks: Project, name: str) -> None:
    words = (f"digits_{name}.py", "--callback")
    done = frameworks.unstarve("run", "-f", "-o", "both.unstarve", "--stop-after", "25", *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("STARVED") == 1
    assert not (frameworks.folder / "callback.unstarve").exists()


@pytest.mark.needs("lightning")
def test_the_profiler_writes_the_verdict_above_lightnings_table(frameworks: Project) -> None:
    done = frameworks.python("digits_lightning.py", "--profiler")
    assert done.returncode == 0, done.stderr
    text = (frameworks.folder / "fit-profile.txt").read_text()
    assert text.index("STARVED") < text.index("FIT Profiler Report")
    assert "DigitsData's train" in text


@pytest.mark.parametrize("name", EACH)
def test_a_training_that_fails_is_reported_and_fails_the_same(frameworks: Project, name: str) -> None:
    done = frameworks.python(f"digits_{name}.py", "--callback", "--fail")
    assert done.returncode == 1
    assert "\nLookupError: sample 7 is rotten\n" in done.stderr
    assert "sample 7 is rotten" in frameworks.report("callback.unstarve")["run"]["failure"]
    (frameworks.folder / "callback.unstarve").unlink()


@pytest.mark.needs("torchdata")
def test_a_loop_over_an_endless_stream_resumes_as_it_would_alone(frameworks: Project) -> None:
    checkpoint = frameworks.folder / "titan.pt"
    alone = [frameworks.python("titan.py", "--steps", steps).stdout for steps in ("20", "40")]
    checkpoint.unlink()
    seen = []
    for steps in ("20", "40"):  # the second one resumes
        done = frameworks.unstarve("run", "-f", "-o", "titan.unstarve", "titan.py", "--steps", steps)
        assert done.returncode == 0, done.stderr
        seen.append(done.stdout)
    checkpoint.unlink()
    assert [loss(text) for text in seen] == [loss(text) for text in alone]
    report = frameworks.report("titan.unstarve")
    (loader,) = report["loaders"]
    assert (loader["role"], loader["steps"]) == ("train", 40)  # of micro-batches
    assert loader["source"].startswith("super().__init__(")
    assert report["lost"] == []
    waits = {share["cause"]: share["seconds"] for share in report["budget"]}
    assert waits["remote"] > 10 * waits.get("disk", 0.0)


@pytest.mark.needs("accelerate")
def test_accelerates_own_script_passes_its_checks_as_it_is(frameworks: Project) -> None:
    package = find_spec("accelerate")
    assert package is not None
    assert package.origin is not None
    script = Path(package.origin).parent / "test_utils" / "scripts" / "test_script.py"  # of `accelerate test`
    done = frameworks.unstarve(
        "run", "-f", "-o", "own.unstarve", "python", "-m", "accelerate.commands.launch", "--cpu", script
    )
    assert done.returncode == 0, done.stderr
    report = frameworks.report("own.unstarve")
    assert report["lost"] == []
    assert sum(one["steps"] for one in report["loaders"] if one["role"] == "train") >= 40
