"""What is drawn for the trace lab."""

from __future__ import annotations

from unstarve.labs.traced import PAUSES, PHASES, REPAIRS, STEPS, WORKERS, drawn


def test_everything_is_drawn_sooner_or_later() -> None:
    draws = [drawn(seed) for seed in range(300)]
    assert {draw.late_worker for draw in draws} == set(range(WORKERS))
    assert {draw.pause_name for draw in draws} == set(PAUSES)
    assert {draw.largest_phase for draw in draws} == set(PHASES)
    assert {draw.repaired for draw in draws} == set(REPAIRS)
    assert all(draw.pause_step + 1 < STEPS for draw in draws)


def test_a_seed_always_draws_the_same() -> None:
    assert drawn(7) == drawn(7)
