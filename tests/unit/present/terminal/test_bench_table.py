"""A benchmark as a table, as JSON and as a figure."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from unstarve.errors import UsageError
from unstarve.model import Bar, Benchmark, Checked, Extra, Kind, Part, Promise, Way
from unstarve.present.exports.figures import speedup_figure
from unstarve.present.exports.report_json import bench
from unstarve.present.terminal.bench_table import print_part, print_summary

PART = Part(
    "a",
    "rows",
    "randn(10000, 100) in memory, batch 64, shuffled",
    (
        Way("torch.utils.data.DataLoader", Kind.STOCK, None, (182e-6, 188e-6), 185e-6, 4.2e-6, 1.0),
        Way(
            "TensorFileDataset, ours", Kind.OURS, None, (2.5e-6, 2.7e-6), 2.6e-6, 0.14e-6, 71.2,
            "threads", Extra(9_000_000, 9_400_000, 412_345), None,
            (
                Checked(Bar(Promise.SPEEDUP, 3.5), 71.2, True),
                Checked(Bar(Promise.EXTRA_BYTES, 750_000), 812_345, False),
                Checked(Bar(Promise.OVER_LIMIT, 0.15), 0.2, False),
                Checked(Bar(Promise.CACHED_SHARE, 0.01), 0.0, None),
            ),
        ),
        Way("webdataset", Kind.PEER, "not installed"),
        Way("litdata", Kind.PEER, "not installed"),
    ),
)  # fmt: skip


def result(**changes: object) -> Benchmark:
    values: dict[str, object] = {
        "parts": (PART,), "seeds": (1, 7), "quick": False, "interrupted": False, "started_at": "2026-01-01",
        "wall_s": 3.0, "machine": {"cpus": 2}, "versions": {"torch": "2.13"},
    }  # fmt: skip
    return Benchmark(**(values | changes))  # type: ignore[arg-type] # made of what is above


def printed(what: Benchmark | Part, width: int = 80) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    if isinstance(what, Part):
        print_part(what, console)
    else:
        print_summary(what, console)
    return stream.getvalue()


def test_the_table_fits_80_columns_and_says_it_all() -> None:
    lines = [line.rstrip() for line in printed(PART).splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines == [
        "a · rows: randn(10000, 100) in memory, batch 64, shuffled",
        "                                      per batch speed-up  memory target",
        "torch.utils.data.DataLoader          185 ± 4 µs",
        "TensorFileDataset, ours/threads  2.60 ± 0.14 µs    71.2×  812 KB ≥3.5× met",
        "                                                                 ≤750 KB missed",
        "                                                                 gap≤15% missed",
        "                                                                 cache≤1%",
        "not installed: webdataset; litdata",
        "",
    ]


def test_images_are_told_per_second_and_by_what_each_costs() -> None:
    part = Part(
        "images",
        "images",
        "64 JPEGs",
        (
            Way("stock", Kind.STOCK, None, (0.1,), 0.1, None, 1.0, cpu_s=0.16),
            Way("ours", Kind.OURS, None, (0.02,), 0.02, None, 5.0, "threads", cpu_s=0.032),
        ),
        batch_samples=64,
    )
    lines = [line.rstrip() for line in printed(part).splitlines()]
    assert lines == [
        "images: 64 JPEGs",
        "                                      samples/s speed-up     CPU target",
        "stock                                       640          2.50 ms",
        "ours/threads                              3,200    5.00×  500 µs",
        "",
    ]
    assert "CPU: time per sample" in printed(result(parts=(part,)))
    assert bench(result(parts=(part,)))["parts"][0]["batch_samples"] == 64


def test_the_summary_counts_the_targets_and_names_those_missed() -> None:
    text = " ".join(printed(result()).split())
    assert "over 2 seeds" in text
    assert "1 of 3 targets met" in text
    assert "missed: rows, TensorFileDataset, ours: ≤750 KB, measured 812 KB" in text
    assert "missed: rows, TensorFileDataset, ours: gap≤15%, measured 20%" in text


def test_what_is_slower_than_the_same_dataset_in_torchs_loader_is_named() -> None:
    ways = tuple(
        Way(name, Kind.OURS, None, (1.0,), 1.0, rival=f"{name[:-4]}torch's", over_rival=ratio)
        for name, ratio in (("Cached, ours", 9.0), ("Packed, ours", 0.96), ("Files, ours", 0.8))
    )
    part = Part("d", "files", "title", ways)
    assert "Cached, ours, against Cached, torch's: 9.00×" in printed(part)
    text = printed(result(parts=(part,)))
    assert "the same dataset in both loaders: 2 of 3 not slower in unstarve's" in text
    assert "slower: files, Files, ours: 0.80× as fast as Files, torch's" in " ".join(text.split())
    assert "Packed" not in text


def test_the_summary_of_a_stopped_one_says_so() -> None:
    assert "3 × seed 4" in printed(result(seeds=(4, 4, 4), interrupted=True))
    assert "interrupted: not everything" in printed(result(interrupted=True))


def test_json_holds_everything_under_its_schema() -> None:
    made = json.loads(json.dumps(bench(result())))
    assert made["schema"] == "unstarve.bench/1"
    assert [part["part"] for part in made["parts"]] == ["a"]
    way = made["parts"][0]["ways"][1]
    assert way["bars"][0] == {"promise": "speedup", "limit": 3.5, "measured": 71.2, "met": True}
    assert way["memory"] == {"before_bytes": 9_000_000, "main_bytes": 9_400_000, "workers_bytes": 412_345}
    assert (way["kind"], way["engine"], way["batch_s"]) == ("ours", "threads", [2.5e-6, 2.7e-6])
    assert made["parts"][0]["ways"][2]["missing"] == "not installed"
    assert (made["seeds"], made["machine"], made["interrupted"]) == ([1, 7], {"cpus": 2}, False)


def test_the_figure_shows_every_way_that_was_measured(tmp_path: Path) -> None:
    text = speedup_figure(result(), tmp_path / "speed.svg").read_text()
    assert "rows: TensorFileDataset, ours" in text
    assert "71.2×" in text
    assert "webdataset" not in text
    with pytest.raises(UsageError, match=r"got .*speed\.pdf"):
        speedup_figure(result(), tmp_path / "speed.pdf")
    with pytest.raises(UsageError, match="nothing was measured"):
        speedup_figure(result(parts=()), tmp_path / "speed.png")
