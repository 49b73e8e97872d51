"""`unstarve bench` measures on this machine, says how far it is, and cleans up after itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unstarve.benchmark.bench_plan import QUICK
from unstarve.benchmark.measure_ways import extra_memory
from unstarve.benchmark.run_benchmark import PARTS

UNSTARVE = Path(sys.executable).with_name("unstarve")
TINY = ["--quick", "--dataset-size", "200,10", "--batch-size", "8"]


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(UNSTARVE), "bench", *options], capture_output=True, text=True, timeout=600, check=True
    )


def positive(ways: list[dict[str, Any]]) -> bool:
    return all(way["mean_s"] > 0 and way["speedup"] > 0 for way in ways if way["missing"] is None)


def test_a_size_alone_is_about_rows_in_memory() -> None:
    done = bench(*TINY, "--seeds", "1,2,3", "--json", "-")
    made = json.loads(done.stdout)
    assert (made["schema"], made["seeds"], made["quick"]) == ("unstarve.bench/1", [1, 2, 3], True)
    (part,) = made["parts"]
    assert (part["part"], part["name"]) == ("a", "rows")
    assert part["title"] == "randn(200, 10) in memory, batch 8, shuffled"
    stock, *others = part["ways"]
    assert (stock["kind"], stock["missing"], len(stock["batch_s"]), stock["speedup"]) == (
        "stock",
        None,
        3,
        1.0,
    )
    assert {way["kind"] for way in others} == {"ours"}
    assert positive(part["ways"])
    assert not [way["missing"] for way in others if (way["missing"] or "").startswith("failed")]
    assert "part 1 of 1 · rows" in done.stderr


def test_every_part_runs_with_tables_to_the_pipe_and_numbers_to_files(tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "out.json"), "--plot", str(tmp_path / "out.svg")]
    every = "a,b,c,d,e,f,g,prefetch,images,cpu-bound"
    done = bench(*TINY, "--part", every, "--seeds", "1", *files, "--folder", str(tmp_path))
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "g · small-tensors: one worker hands over 150 small tensors" in done.stdout
    parts = json.loads((tmp_path / "out.json").read_text())["parts"]
    assert {part["part"] for part in parts} == {part.letter for part in PARTS} == set(every.split(","))
    failed = [way for part in parts for way in part["ways"] if (way["missing"] or "").startswith("failed")]
    assert failed == []
    assert all(positive(part["ways"]) for part in parts)
    assert "unstarve.DataLoader" in (tmp_path / "out.svg").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "out.svg"]


def test_ctrl_c_prints_what_is_there_and_leaves_no_file(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "unstarve.benchmark",
            "--quick",
            "--seeds",
            "50",
            "--part",
            "d,prefetch",
            "--folder",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    assert "part 1 of 2 · files" in started.stderr.readline()
    assert len(list(tmp_path.iterdir())) == 1
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=180)
    assert started.returncode == 130
    assert "d · files" in out
    assert "interrupted: not everything" in out
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells it there")
def test_memory_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    handed_over = next(part for part in PARTS if part.name == "handoff-1mb")
    extra = extra_memory(handed_over, handed_over.entries[0].name, QUICK, tmp_path)
    assert extra is not None
    assert extra.before_bytes > 0
    assert extra.workers_bytes > 0
    assert extra_memory(handed_over, "no such way", QUICK, tmp_path) is None
