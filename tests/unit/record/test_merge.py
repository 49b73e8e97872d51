"""Run files of several nodes make one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes import run_of
from rank_runs import met_job
from run_files import write_run
from unstarve.analyze.diagnose import analyze_run
from unstarve.errors import RunFileError
from unstarve.model import Diagnosis
from unstarve.model.rank_summary import RankPattern, RankReason
from unstarve.record import format as f
from unstarve.record.chunk_table import chunks_by_stream
from unstarve.record.merge import merge
from unstarve.record.run_reader import read_run

STEPS = 200


def _nodes(folder: Path, ranks: int = 8, per_host: int = 4, **planted: object) -> list[Path]:
    job = met_job(ranks, STEPS, per_host=per_host, **planted)  # type: ignore[arg-type] # functions of met_job
    hosts = [job[at : at + per_host] for at in range(0, ranks, per_host)]
    return [write_run(folder / f"{at}.unstarve", run_of(*node)) for at, node in enumerate(hosts)]


def _merged(paths: list[Path], folder: Path, *, fold: bool = False) -> Diagnosis:
    out = folder / "job.unstarve"
    merge(paths, out, fold=fold)
    return analyze_run(read_run(out))


def test_nodes_are_merged_without_loss(tmp_path: Path) -> None:
    nodes = _nodes(tmp_path, data=lambda r, s: 30 * (r >= 4))
    found = _merged(nodes, tmp_path)
    whole = analyze_run(run_of(*met_job(8, STEPS, per_host=4, data=lambda r, s: 30 * (r >= 4))))
    assert found.rank_times == whole.rank_times
    assert found.rank_times is not None
    assert (found.rank_times.pattern, found.rank_times.late) == (RankPattern.NODE, (4, 5, 6, 7))
    assert (found.budget, found.verdict, found.lost) == (whole.budget, whole.verdict, ())


@pytest.mark.parametrize("fold", [False, True])
def test_files_of_one_name_that_other_machines_read_make_the_same_run(tmp_path: Path, fold: bool) -> None:
    nodes = _nodes(tmp_path)
    merge(nodes, tmp_path / "here.unstarve", fold=fold)
    merge(
        [Path("/scratch/job.unstarve")] * len(nodes),
        tmp_path / "there.unstarve",
        fold=fold,
        elsewhere=lambda function, numbers: [function(nodes[number]) for number in numbers],
    )
    assert (tmp_path / "here.unstarve").read_bytes() == (tmp_path / "there.unstarve").read_bytes()


@pytest.mark.parametrize(
    ("planted", "pattern", "late", "reason"),
    [
        ({"data": lambda r, s: 30 * (r == 5)}, RankPattern.FIXED, (5,), RankReason.DATA),
        ({"backward": lambda r, s: 30 * (r == 2)}, RankPattern.FIXED, (2,), RankReason.BACKWARD),
        ({"data": lambda r, s: 30 * (r == s % 8)}, RankPattern.ROTATING, (), RankReason.DATA),
        ({}, RankPattern.EVEN, (), None),
    ],
)
def test_folded_nodes_tell_the_same(
    tmp_path: Path, planted: dict[str, object], pattern: RankPattern, late: tuple[int, ...], reason: object
) -> None:
    small = []
    for at, node in enumerate(_nodes(tmp_path, **planted)):
        small.append(tmp_path / f"small{at}.unstarve")
        merge([node], small[-1], fold=True)
        assert small[-1].stat().st_size < node.stat().st_size / 2
    found = _merged(small, tmp_path)
    assert found.ranks == 8
    assert found.rank_times is not None
    assert (found.rank_times.pattern, found.rank_times.late, found.rank_times.reason) == (
        pattern,
        late,
        reason,
    )
    assert "folded into windows" in found.lost[0]


def test_a_folded_rank_takes_four_kilobytes_a_minute(tmp_path: Path) -> None:
    (node,) = _nodes(tmp_path, 2, 2)
    out = tmp_path / "small.unstarve"
    merge([node], out, fold=True)
    data = out.read_bytes()
    streams = chunks_by_stream(data, f.VERSION)
    rows = [
        sum(len(rows) for _, rows in one.rows[f.WINDOW]) for one in streams.values() if f.WINDOW in one.rows
    ]
    minutes = STEPS * 0.010 / 60
    assert len(rows) == 2
    # The first step and windows of a power of two: at most twice as many as fit, and two more.
    assert max(rows) <= 4096 * minutes + 3 * f.ROW_KINDS[f.WINDOW].size


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    first, _ = _nodes(tmp_path)
    copy = tmp_path / "copy.unstarve"
    copy.write_bytes(first.read_bytes())
    with pytest.raises(RunFileError, match="both hold rank 0: merge runs of one job, each once"):
        merge([first, copy], tmp_path / "job.unstarve")
    assert not (tmp_path / "job.unstarve").exists()


def test_a_damaged_file_is_scanned_chunk_by_chunk(tmp_path: Path) -> None:
    node, _ = _nodes(tmp_path)
    data = bytearray(node.read_bytes())
    whole = chunks_by_stream(bytes(data), f.VERSION)
    data[len(data) // 2] ^= 1
    damaged = chunks_by_stream(bytes(data), f.VERSION)

    def size(streams: object) -> int:
        return sum(len(b) for one in streams.values() for rows in one.rows.values() for _, b in rows)  # type: ignore[attr-defined] # a dict

    assert 0 < size(damaged) < size(whole)
    assert whole.keys() == damaged.keys()


def test_what_stops_a_merge_leaves_nothing_behind(tmp_path: Path) -> None:
    nodes = _nodes(tmp_path)
    left = iter(range(len(nodes) + 1))  # enough for the first pass

    def interrupted(function: Callable[[Path], Any], numbers: Sequence[int]) -> list[Any]:
        for _ in numbers:
            if next(left, None) is None:
                raise KeyboardInterrupt
        return [function(nodes[number]) for number in numbers]

    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        merge(nodes, tmp_path / "job.unstarve", elsewhere=interrupted)
    assert sorted(tmp_path.iterdir()) == before
