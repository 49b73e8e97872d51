"""NVIDIA's DALI on the CPU: its iterators are seen like any loader, and stay as they are."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.conftest import Project

import unstarve

pytestmark = pytest.mark.needs("nvidia.dali", "PIL")


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """42 images in two folders."""
    from PIL import Image

    root, pixels = tmp_path_factory.mktemp("jpegs"), np.random.default_rng(0)
    for number in range(42):
        folder = root / ("cat", "dog")[number % 2]
        folder.mkdir(exist_ok=True)
        values = pixels.integers(0, 255, (15, 20, 3), dtype=np.uint8)
        Image.fromarray(values).resize((200, 150)).save(folder / f"{number}.jpg")
    return root


def iterator(root: Path, **settings: Any) -> Any:
    """Batches of images, decoded and resized."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    @pipeline_def(batch_size=8, num_threads=2, device_id=None)
    def images() -> Any:
        encoded, labels = fn.readers.file(file_root=str(root), name="files")
        return fn.resize(fn.decoders.image(encoded, device="cpu"), resize_x=32, resize_y=24), labels

    settings = {"last_batch_policy": LastBatchPolicy.PARTIAL, "reader_name": "files"} | settings
    return DALIGenericIterator(images(), ["image", "label"], **settings)


def endless(late_s: float = 0.0) -> Any:
    """A pipeline whose Python source never ends, so that DALI does not know its length."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    def rows() -> Any:
        time.sleep(late_s)
        return np.zeros((4, 3), np.float32)

    @pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def numbers() -> Any:
        return fn.external_source(source=rows, batch=True)

    return DALIGenericIterator(numbers(), ["x"])


def labels(batches: Any) -> list[list[int]]:
    return [one["label"].flatten().tolist() for (one,) in batches]


def test_a_script_trains_the_same_and_is_reported(frameworks: Project, jpegs: Path) -> None:
    plain = frameworks.python("images_dali.py", str(jpegs))
    ran = frameworks.unstarve("run", "-o", "dali.unstarve", "images_dali.py", str(jpegs))
    assert plain.stdout.strip() in ran.stdout, ran.stderr
    report = frameworks.report("dali.unstarve")
    (loader,) = report["loaders"]
    assert (loader["name"], loader["kind"]) == ("train_loader", "DALIClassificationIterator")
    assert (loader["role"], loader["steps"], loader["samples"], loader["epochs"]) == ("train", 24, 168, 4)
    assert loader["config"]["num_threads"] == 1
    assert report["lost"] == []
    booked_s = sum(part["seconds"] for part in report["budget"] + report["outside"])
    assert booked_s == pytest.approx(report["run"]["wall_s"], rel=0.01)
    assert not any("worker" in one["title"] for one in report["advice"])


@pytest.mark.parametrize("policy", ["FILL", "PARTIAL", "DROP"])
@pytest.mark.parametrize("auto_reset", [False, True])
def test_batches_are_the_same_while_recorded(jpegs: Path, policy: str, auto_reset: bool) -> None:
    from nvidia.dali.plugin.pytorch import LastBatchPolicy

    settings = {"last_batch_policy": LastBatchPolicy[policy], "auto_reset": auto_reset}

    def epochs(loader: Any) -> list[Any]:
        found = []
        for _ in range(3):
            found.append((len(loader), loader.size, labels(loader)))
            if not auto_reset:
                loader.reset()
        return found

    plain = epochs(iterator(jpegs, **settings))
    with unstarve.recording() as recording:
        recorded = epochs(iterator(jpegs, **settings))
    assert recorded == plain
    (loader,) = recording.diagnosis.loaders
    assert (loader.epochs, loader.steps) == (3, sum(len(batches) for *_, batches in plain))
    assert recording.diagnosis.lost == ()


def test_waiting_for_a_slow_source_is_starving() -> None:
    with unstarve.recording() as recording:
        for _ in islice(endless(late_s=0.02), 40):
            pass
    assert recording.diagnosis.verdict.state == "starved"
    assert recording.diagnosis.lost == ()


@pytest.mark.parametrize("auto_reset", [False, True])
def test_the_evaluator_logs_and_replays(jpegs: Path, auto_reset: bool) -> None:
    alone = iterator(jpegs)
    plain, next_plain = labels(alone), labels(alone)  # without padding, DALI's epochs are shifted
    logged: Any = unstarve.LoaderEvaluator(iterator(jpegs, auto_reset=auto_reset))
    for expected in (plain, next_plain):
        assert labels(logged) == expected
        if not auto_reset:
            logged.reset()
    metrics = logged.get_metrics()
    assert metrics["batch_sizes"] == 2 * [8, 8, 8, 8, 8, 2]
    assert metrics["complete"]
    loader = iterator(jpegs, auto_reset=auto_reset)
    ideal: Any = unstarve.LoaderEvaluator(loader, mode="replay", num_cached_batches=3)
    for _ in range(2):
        assert labels(ideal) == 2 * plain[:3]
        ideal.reset()
    assert labels(loader) == plain[3:]


def test_an_endless_source_is_replayed_without_end() -> None:
    ideal = unstarve.LoaderEvaluator(endless(), mode="replay", num_cached_batches=2)
    assert len(list(islice(ideal, 25))) == 25
