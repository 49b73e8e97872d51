"""What passes the lab on faster parts. The measurements are made up; `tests/integration` makes real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unstarve.labs import parts_trial
from unstarve.labs.all_labs import lab_named
from unstarve.labs.judge import judge
from unstarve.labs.parts_draw import KINDS, kinds_of
from unstarve.labs.parts_trial import judged
from unstarve.labs.specs.faster_parts import RIGHT
from unstarve.labs.started import Started, start, started_in

NEAR = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0)


def results(seconds: float, digests: str = "xyz", steps: int = 9) -> list[dict[str, Any]]:
    """Three rounds; `digests` has a letter for each epoch."""
    return [{"seconds": seconds * near, "steps": steps, "digests": list(digests)} for near in NEAR[:3]]


def test_faster_with_the_same_samples_passes() -> None:
    said, missing = judged(results(4.0), results(1.0), goal=2.0)
    assert said.startswith("Training is 4.00×")
    assert missing == []


@pytest.mark.parametrize(
    ("fast", "said"),
    [
        (results(3.9), "The goal is 2.0×"),
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


@pytest.mark.parametrize(("noise", "rounds"), [(1, 3), (8, 5)])
def test_a_noisy_machine_gets_more_rounds(
    noise: int, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def told(_: str, file: Path, __: str) -> dict[str, Any]:
        again = asked.count(file)
        asked.append(file)
        seconds = noise ** (again % 2) if file.name == "slow_dataloader.py" else 0.01
        return {"seconds": seconds * NEAR[again], "steps": 1, "digests": ["x"]}

    monkeypatch.setattr(parts_trial, "told_by", told)
    begun = begin(tmp_path)
    passed, _ = parts_trial.trial_of(begun.lab, begun.folder, {"a": 0.5})
    assert len(asked) == 2 * rounds
    assert passed


def begin(folder: Path, **answers: str) -> Started:
    """Start the lab, with the right answers unless others are given."""
    start("faster-parts", folder, seed=1)
    right = {f"part_{slot}": RIGHT[kind.name] for slot, kind in kinds_of(1).items()}
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
    monkeypatch.setattr(parts_trial, "told_by", lambda _, file, __: f"{file.name} failed: ImportError")
    result = judge(begin(tmp_path))
    assert (result.passed, len(result.lines)) == (False, 3)
    assert result.lines[0] == "a: slow_dataloader.py failed: ImportError"


def test_every_kind_is_drawn_and_no_kind_twice() -> None:
    draws = [[kind.name for kind in kinds_of(seed).values()] for seed in range(100)]
    assert {name for draw in draws for name in draw} == set(KINDS) == set(RIGHT)
    assert all(len(set(draw)) == 3 for draw in draws)
    assert lab_named("faster-parts").minutes <= 2
