"""Whatever a run file holds, unstarve makes something of it or says in a sentence that it cannot."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hostile_runs import look_at, mutate, write_rich_run
from unstarve import api
from unstarve.api import reading
from unstarve.errors import RunFileError
from unstarve.record.run_reader import read_run


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("seeds")
    return [write_rich_run(folder / f"{kind}.unstarve", kind=kind) for kind in ("run", "ideal")]


def test_the_seeds_have_everything_and_no_damage(seeds: list[Path]) -> None:
    for seed in seeds:
        run = read_run(seed)
        assert run.lost == ()
        main = run.processes[0]
        assert all((main.stalls, main.readings, main.pulses, main.sampled, main.transforms, main.crews))
        assert any(work.helped_ns for process in run.processes for work in process.works)
        look_at(seed)


@pytest.mark.parametrize("number", range(16))
def test_a_mutated_run_gives_a_report_or_a_sentence(seeds: list[Path], tmp_path: Path, number: int) -> None:
    path = tmp_path / "mutated.unstarve"
    path.write_bytes(mutate(seeds[number % 2].read_bytes(), random.Random(number)))
    look_at(path, seeds[0])


def test_a_failure_is_a_sentence_for_a_damaged_file_and_a_defect_for_a_whole_one(
    seeds: list[Path], tmp_path: Path
) -> None:
    whole = api.load_run(seeds[0])
    (tmp_path / "cut.unstarve").write_bytes(seeds[0].read_bytes()[:-9])
    damaged = api.load_run(tmp_path / "cut.unstarve")
    with pytest.raises(RunFileError, match=r"cut\.unstarve is too damaged"), reading(whole, damaged):
        raise IndexError
    with pytest.raises(IndexError), reading(whole):
        raise IndexError
