"""A real Ray cluster on this machine: verbs that use it, trainings on it, one cache for its actors."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.frameworks.ray_cluster import QUIET, can_mount, cluster, second_node
from tests.integration.conftest import LONGEST_S, Project

from fakes import run_of
from rank_runs import met_job
from run_files import write_run
from unstarve import PackedDataset

pytestmark = pytest.mark.needs("ray")

TRAINING_S = 380
"""At most: Ray starts a process for each of its parts."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with cluster(cpus=3) as started:
        yield started


@pytest.fixture(scope="module")
def project(frameworks: Project) -> Iterator[Project]:
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        frameworks.environment |= QUIET | {"RAY_TMPDIR": folder}
        yield frameworks
    frameworks.end()


def test_merge_on_a_cluster_writes_what_merge_writes(project: Project, address: str) -> None:
    job = met_job(8, 100, per_host=4, data=lambda rank, step: 30 * (rank >= 4))
    nodes = [write_run(project.folder / f"{at}.unstarve", run_of(*job[at : at + 4])) for at in (0, 4)]
    alone = project.unstarve("merge", *nodes, "-o", "alone.unstarve")
    done = project.unstarve("merge", "--ray", address, *nodes, "-o", "job.unstarve")
    assert (alone.returncode, done.returncode) == (0, 0), done.stderr
    merged = [(project.folder / name).read_bytes() for name in ("alone.unstarve", "job.unstarve")]
    assert merged[0] == merged[1]
    missing = project.unstarve("merge", "--ray", address, "none.unstarve", "-o", "other.unstarve")
    assert missing.returncode == 2
    assert f"no node of the Ray cluster at {address} has {project.folder}/none.unstarve" in missing.stderr


def test_pack_on_a_cluster_writes_what_pack_writes(project: Project, address: str) -> None:
    for number in range(150):
        path = project.folder / "files" / "ab"[number % 2] / f"{number:03}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * (100 + number))
    alone = project.unstarve("pack", "files", "alone.packed", "--labels")
    done = project.unstarve("pack", "--ray", address, "files", "ray.packed", "--labels")
    assert (alone.returncode, done.returncode) == (0, 0), done.stderr
    packed = [(project.folder / name).read_bytes() for name in ("alone.packed", "ray.packed")]
    assert packed[0] == packed[1]


SQUARES = """
import os
import time
from pathlib import Path

class Squares:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return index * index

class Endless(Squares):
    def __getitem__(self, index):
        if index:
            Path(f"{index}.begun").write_text(str(os.getpid()))
            while True:
                time.sleep(0.01)
        return index
"""


def test_pack_on_a_cluster_takes_a_dataset_from_a_script(project: Project, address: str) -> None:
    project.write("squares.py", SQUARES)
    done = project.unstarve("pack", "--ray", f"{address}", "squares.py:Squares", "squares.packed")
    assert done.returncode == 0, done.stderr
    packed = PackedDataset(project.folder / "squares.packed")
    assert [packed[index] for index in range(100)] == [index * index for index in range(100)]


def test_ctrl_c_ends_the_tasks_and_keeps_what_is_packed(project: Project, address: str) -> None:
    source = SQUARES.replace('f"{index}.begun"', f'"{project.folder}/" + f"{{index}}.begun"')
    project.write("endless.py", source)
    packing = project.start("pack", "--ray", address, "endless.py:Endless", "endless.packed")
    end_s = time.monotonic() + LONGEST_S
    while not (begun := list(project.folder.glob("*.begun"))) or not begun[0].read_text():
        assert time.monotonic() < end_s, "no task has begun"
        assert packing.poll() is None, packing.communicate()
        time.sleep(0.01)
    workers = [int(mark.read_text() or 0) for mark in begun]
    packing.send_signal(signal.SIGINT)
    _, said = packing.communicate(timeout=LONGEST_S)
    assert packing.returncode == 130, said
    assert "1 samples are kept" in said
    while any(psutil.pid_exists(worker) for worker in workers if worker):
        assert time.monotonic() < end_s, "a task goes on"
        time.sleep(0.01)


def test_nodes_read_the_files_that_they_alone_have(project: Project, address: str) -> None:
    if not can_mount(project.folder):
        pytest.skip("processes cannot have mounts of their own here")
    shown, theirs = (project.folder / name for name in ("shown", "theirs"))
    job = met_job(4, 50, per_host=2)
    for folder, letter, ranks in ((shown, "a", job[:2]), (theirs, "b", job[2:])):
        folder.mkdir()
        for number in range(3):
            (folder / f"{letter}{number}.bin").write_text(f"{letter}{number}")
        write_run(folder / "job.unstarve", run_of(*ranks))
    with second_node(address, theirs, shown):
        packing = project.unstarve("pack", "--ray", address, f"{shown}/*.bin", "nodes.packed")
        merging = project.unstarve("merge", "--ray", address, shown / "job.unstarve", "-o", "nodes.unstarve")
    assert (packing.returncode, merging.returncode) == (0, 0), packing.stderr + merging.stderr
    packed = PackedDataset(project.folder / "nodes.packed")
    assert [bytes(sample).decode() for sample in packed] == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert project.report("nodes.unstarve")["run"]["ranks"] == 4


def test_bench_measures_every_node(project: Project, address: str) -> None:
    done = project.unstarve(
        "bench", "--ray", address, "--quick", "--part", "rows", "--seeds", "1", "--json", "-"
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["schema"] == "unstarve.bench-nodes/1"
    (node,) = result["nodes"]
    assert node["node"] == address.partition(":")[0]
    assert [part["name"] for part in node["parts"]] == ["rows"]
    assert all(way["missing"] is None for way in node["parts"][0]["ways"])


def checked(report: dict[str, Any], loader: str, steps: int) -> None:
    assert report["lost"] == []
    assert report["run"]["ranks"] == 2
    (train,) = report["loaders"]
    assert (train["role"], train["steps"]) == ("train", steps)
    assert Path(train["where"]).name.startswith("digits_ray.py:")
    assert train["name"] == loader


def test_a_training_that_starts_its_own_cluster_is_recorded(project: Project) -> None:
    report = project.record("digits_ray.py", timeout=TRAINING_S)
    checked(report, "train_loader", 80)
    assert report["verdict"]["state"] == "starved"
    waits = {share["cause"]: share["seconds"] for share in report["budget"]}
    assert waits["remote"] > 10 * waits.get("disk", 0.0)


def test_ray_data_is_recorded_on_a_cluster_that_runs_already(project: Project, address: str) -> None:
    report = project.record("digits_ray.py", "--data", "--join", address, timeout=TRAINING_S)
    checked(report, "loader 1", 80)


def test_wrapped_loops_record_themselves(project: Project, address: str) -> None:
    done = project.python("digits_ray.py", "--callback", "--join", address, timeout=TRAINING_S)
    assert done.returncode == 0, done.stderr
    assert "STARVED" in done.stderr
    runs = ["callback.unstarve", "callback.rank1.unstarve"]
    merged = project.unstarve("merge", *runs, "-o", "both.unstarve")
    assert merged.returncode == 0, merged.stderr
    report = project.report("both.unstarve")
    checked(report, "train_loader", 80)
    assert report["verdict"]["state"] == "starved"


ACTORS = """
import os
import sys

import ray

from sample_datasets import Logged
from unstarve import CachedDataset

@ray.remote(num_cpus=1)
class Reader:
    def fill(self, log):
        self.cached = CachedDataset(Logged(log, 60, 0.02))

    def look(self):
        samples = [int(self.cached[index][1]) for index in range(60)]
        return samples == list(range(60)), os.fstat(self.cached._held._store.region.fd).st_ino, os.getpid()

ray.init(address=sys.argv[1])
def variables(rank):
    return {"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2", "PYTHONPATH": sys.argv[3]}

readers = [Reader.options(runtime_env={"env_vars": variables(rank)}).remote() for rank in "01"]
ray.get([reader.fill.remote(sys.argv[2]) for reader in readers])
seen = ray.get([reader.look.remote() for reader in readers])
print(*(all(right for right, _, _ in seen), *(len(set(column)) for column in list(zip(*seen))[1:])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux")
def test_actors_share_one_cached_copy_and_the_work(project: Project, address: str) -> None:
    project.write("actors.py", ACTORS)
    log = project.folder / "log"
    helpers = Path(__file__).parents[1] / "helpers"
    done = project.python("actors.py", address, log, helpers, env={"PYTHONPATH": os.fspath(helpers)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "1", "2"]  # samples are right, one region, two processes
    reads = [int(line) for line in log.read_text().split()]
    assert sorted(set(reads)) == list(range(60))
    assert len(reads) <= 60 + 3  # each actor looks at three to know which dataset it is
