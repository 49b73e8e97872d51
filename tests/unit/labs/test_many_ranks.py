"""What each fault of the lab of many ranks does to the samples, and how it is judged. No rank is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.utils.data import DataLoader

from unstarve.labs.all_labs import lab_named
from unstarve.labs.judge import judge
from unstarve.labs.ranks import SAMPLES, LabSampler, begin_lab_epoch, latencies, slow_rank
from unstarve.labs.specs import many_ranks
from unstarve.labs.specs.many_ranks import troubles
from unstarve.labs.started import Started, start, started_in

EVEN = [1.0] * 8


def seed_of(fault: str) -> int:
    lab = lab_named("many-ranks")
    return next(seed for seed in range(1000) if (one := lab.fault(seed)) is not None and one.name == fault)


@pytest.fixture
def delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[list[list[int]]]]:
    """The indices that two ranks get in three epochs, with a fault."""

    def by_rank(fault: str) -> list[list[list[int]]]:
        start("many-ranks", tmp_path, seed=seed_of(fault), force=True)
        monkeypatch.setattr(dist, "get_world_size", lambda: 2)
        found: list[list[list[int]]] = []
        for rank in range(2):
            monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
            dataset = list(range(SAMPLES))
            loader = DataLoader(dataset, sampler=LabSampler(dataset, tmp_path))  # type: ignore[arg-type]  # a list will do
            found.append([])
            for epoch in range(3):
                begin_lab_epoch(loader, epoch)
                found[-1].append([int(one) for one in loader])
                assert len(loader) == len(found[-1][-1])
        return found

    return by_rank


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("ranks-not-split", "In epoch 0, two ranks get the same 256 samples."),
        ("set-epoch-missed", "A rank gets its samples in the same order in two epochs."),
        ("uneven-ranks", "In epoch 0, one rank gets 112 samples and another 144."),
        ("straggler", "Loading takes one rank 13× as long as another"),
    ],
)
def test_each_fault_is_what_its_name_says(
    fault: str, said: str, tmp_path: Path, delivered: Callable[[str], list[list[list[int]]]]
) -> None:
    found = delivered(fault)
    assert said in " ".join(troubles(found, latencies(tmp_path, SAMPLES)))
    assert (slow_rank(tmp_path) is not None) == (fault == "straggler")


def test_without_a_fault_nothing_is_wrong(
    tmp_path: Path, delivered: Callable[[str], list[list[list[int]]]]
) -> None:
    assert list(troubles(delivered("none"), latencies(tmp_path, SAMPLES))) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([[[0, 1, 2, -1]], [[4, 5, 6, 7]]], "Ranks get samples that are not in the dataset."),
        ([[[0, 1, 2]], [[4, 5, 6]]], "In epoch 0, 2 samples are missing, or some come twice."),
        ([[[0, 0, 1, 1, 2, 3]], [[4, 5, 5, 6, 7, 7]]], "In epoch 0, 0 samples are missing, or some"),
    ],
)
def test_a_fake_fix_is_seen_in_the_samples(found: list[list[list[int]]], said: str) -> None:
    assert said in next(troubles(found, EVEN))


def test_one_sample_too_many_makes_ranks_even_and_is_no_fault() -> None:
    found = [[[0, 1, 2, 3], [2, 4, 6, 0]], [[4, 5, 6, 0], [1, 3, 5, 0]]]
    assert list(troubles(found, EVEN[:7])) == []


def begun(folder: Path, fault: str, verdict: str, slow: str) -> Started:
    start("many-ranks", folder, seed=seed_of(fault))
    (folder / "answers.toml").write_text(f'verdict = "{verdict}"\nslow_rank = "{slow}"\n')
    assert judge(started_in(folder)).committed
    return started_in(folder)


def test_a_wrong_verdict_fails(tmp_path: Path) -> None:
    result = judge(begun(tmp_path, "set-epoch-missed", "uneven-ranks", "none"))
    assert (result.passed, result.lines[0]) == (False, "Your verdict, uneven-ranks, is wrong.")


def test_a_guessed_slow_rank_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    even = [[[0, 2], [2, 0]], [[1, 3], [3, 1]]]
    monkeypatch.setattr(many_ranks, "told_by", lambda *_: {"delivered": even})
    monkeypatch.setattr("unstarve.labs.ranks.SAMPLES", 4)
    begun(tmp_path, "set-epoch-missed", "set-epoch-missed", "none")
    assert judge(started_in(tmp_path)).passed
    answers = tmp_path / "answers.toml"
    answers.write_text(answers.read_text().replace('"none"', "0"))
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert result.lines[-1].startswith("slow_rank: this is not what by_rank.py shows")


def test_where_nothing_is_wrong_doing_nothing_is_right(tmp_path: Path) -> None:
    started = begun(tmp_path, "none", "none", "none")
    assert judge(started).passed
    (tmp_path / "fast_ranks.py").write_text("# mine\n")
    assert not judge(started).passed
