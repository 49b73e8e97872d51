"""When a comparison of two versions is decided. The measurements are drawn, not taken."""

from __future__ import annotations

import math
import random

from unstarve.intervals import anytime_half_width, half_width
from unstarve.labs.turns import speedup

GOAL = 1.5


def decided(gain: float, noise: float, seed: int, rounds: int = 40) -> tuple[str, int]:
    """On which side of the goal a version is found, and after how many rounds."""
    draw = random.Random(seed)
    slow, fast = [], []
    for number in range(1, rounds + 1):
        slow.append({"seconds": math.exp(draw.gauss(0, noise))})
        fast.append({"seconds": math.exp(draw.gauss(0, noise)) / gain})
        found = speedup(slow, fast)
        if not found.is_open(GOAL):
            return ("passed" if found.missing(GOAL) is None else "failed"), number
    return "noisy", rounds


def test_a_clear_gain_is_decided_in_few_rounds_and_noise_takes_more() -> None:
    assert decided(3.0, 0.02, seed=1) == ("passed", 3)
    assert decided(1.0, 0.02, seed=1) == ("failed", 3)
    noisy = [decided(3.0, 0.3, seed) for seed in range(50)]
    assert {said for said, _ in noisy} == {"passed"}
    assert 3 < sum(rounds for _, rounds in noisy) / 50 < 12


def test_looking_after_every_round_lets_no_slow_version_pass() -> None:
    passed = [decided(GOAL * 0.999, 0.3, seed, rounds=15)[0] for seed in range(200)].count("passed")
    assert passed <= 0.025 * 200


def test_one_or_two_rounds_decide_nothing() -> None:
    assert anytime_half_width([1.0]) == anytime_half_width([1.0, 1.0001]) == math.inf
    assert speedup([{"seconds": 9.0}], [{"seconds": 1.0}]).is_open(GOAL)


def test_the_interval_of_many_looks_is_the_wider_one() -> None:
    values = [0.9, 1.1, 1.0, 1.2, 0.8]
    for count in range(3, 6):
        assert half_width(values[:count]) < anytime_half_width(values[:count]) < math.inf
