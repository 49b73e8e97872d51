"""What passes the lab on faster parts. The measurements are made up; `tests/integration` makes real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unstarve.labs import parts_direct, parts_trial
from unstarve.labs.all_labs import lab_named
from unstarve.labs.judge import judge
from unstarve.labs.lab import Given
from unstarve.labs.parts_draw import KINDS, kinds_of
from unstarve.labs.parts_trial import judged
from unstarve.labs.specs.faster_parts import RIGHT
from unstarve.labs.started import Started, start, started_in
from unstarve.labs.turns import Speedup

NEAR = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0)


@pytest.fixture(autouse=True)
def _no_direct_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_direct, "direct_speedup", lambda *_: "the file system has no direct reads.")


def results(seconds: float, digests: str = "xyz", steps: int = 9) -> list[dict[str, Any]]:
    """Three rounds; `digests` has a letter for each epoch."""
    same = {"steps": steps, "digests": list(digests), "step_cpu_s": 1.0}
    return [{**same, "seconds": seconds * near} for near in NEAR[:3]]


def test_faster_with_the_same_samples_passes() -> None:
    said, missing = judged(results(4.0), results(1.0), goal=2.0)
    assert said.startswith("Training is 4.00×")
    assert missing == []


@pytest.mark.parametrize(
    ("fast", "said"),
    [
        (results(3.9), "Not fast enough: the goal is 2.0×"),
        (results(1.0, "xyw"), "does not deliver the same samples"),
        (results(1.0, "xzy"), "does not deliver the same samples"),
        (results(1.0, "xxx"), "the 3 epochs, which should all differ, have the same samples"),
        (results(1.0, steps=3), "keep the batch size"),
    ],
)
def test_a_fake_fix_fails(fast: list[dict[str, Any]], said: str) -> None:
    _, (missing,) = judged(results(4.0), fast, goal=2.0)
    assert said in missing


def test_a_gain_that_may_be_chance_fails() -> None:
    slow = [{**one, "seconds": seconds} for one, seconds in zip(results(1), (9.0, 2.0, 5.0), strict=True)]
    said, missing = judged(slow, results(1.0), goal=2.0)
    assert "4.4" in said
    assert len(missing) == 1


@pytest.mark.parametrize(("noise", "rounds"), [(1, 3), (2, 5)])
def test_a_noisy_machine_gets_more_rounds(
    noise: int, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int | None]] = []

    def told(_: str, file: Path, __: str, step_rounds: int | None) -> dict[str, Any]:
        again = sum(name == file.name for name, _ in asked)
        asked.append((file.name, step_rounds))
        seconds = noise ** (again % 2) if file.name == "slow_dataloader.py" else 0.1
        same = {"steps": 1, "digests": ["x"], "step_cpu_s": 1.0, "step_rounds": 7}
        return {**same, "seconds": seconds * NEAR[again]}

    monkeypatch.setattr(parts_trial, "told_by", told)
    passed, _ = parts_trial.trial_of(begin(tmp_path).folder, {"a": 5.0})
    assert len(asked) == 2 * rounds
    assert [work for _, work in asked] == [None] + [7] * (2 * rounds - 1)
    assert passed


def begin(folder: Path, **answers: str) -> Started:
    """Start the lab, with the right answers unless others are given."""
    start("faster-parts", folder, seed=1)
    right = {f"part_{slot}": RIGHT[kind.name] for slot, kind in kinds_of(1).items()}
    right |= {"direct_cached": "impossible", "direct_cold": "impossible"}
    lines = (f'{key} = "{value}"\n' for key, value in (right | answers).items())
    (folder / "answers.toml").write_text("".join(lines))
    return started_in(folder)


def test_a_wrong_part_fails_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_trial, "told_by", None)
    wrong = next(part for part in ("cached", "gather") if part != RIGHT[kinds_of(1)["b"].name])
    result = judge(begin(tmp_path, part_a="faster", part_b=wrong))
    assert not result.passed
    assert [line.partition(":")[0] for line in result.lines] == ["part_a", "part_b"]


def test_a_version_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_trial, "told_by", lambda _, file, *__: f"{file.name} failed: ImportError")
    result = judge(begin(tmp_path))
    assert (result.passed, len(result.lines)) == (False, 3)
    assert result.lines[0] == "a: slow_dataloader.py failed: ImportError"


def test_every_kind_is_drawn_and_no_kind_twice() -> None:
    draws = [[kind.name for kind in kinds_of(seed).values()] for seed in range(100)]
    assert {name for draw in draws for name in draw} == set(KINDS) == set(RIGHT)
    assert all(len(set(draw)) == 3 for draw in draws)
    assert lab_named("faster-parts").minutes <= 2


@pytest.mark.parametrize(
    ("answer", "found", "right"),
    [
        ("slower", Speedup(0.3, 0.2, 0.4), True),
        ("faster", Speedup(0.3, 0.2, 0.4), False),
        ("same", Speedup(1.0, 0.95, 1.05), True),
        ("impossible", Speedup(1.0, 0.95, 1.05), False),
        ("impossible", "the file system has no direct reads.", True),
        ("faster", "the file system has no direct reads.", False),
        ("great", Speedup(3, 2, 4), False),
    ],
)
def test_what_direct_reads_do_is_measured_anew(
    answer: str, found: Speedup | str, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_direct, "direct_speedup", lambda *_: found)
    question = next(one for one in lab_named("faster-parts").questions if one.key == "direct_cold")
    assert (question.wrong(Given(answer, tmp_path, 1)) is None) is right
