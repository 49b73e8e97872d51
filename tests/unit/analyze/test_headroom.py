"""How much faster training would be if loading were free."""

from __future__ import annotations

import pytest

from fake_gpu import GpuTraining
from fakes import FakeTraining, run_of, simple_run
from unstarve.analyze.diagnose import analyze_run
from unstarve.model import Phase, State


def ideal_run(real_s: list[float], replay_s: list[float], steps: int = 10) -> FakeTraining:
    """Blocks real, replay, real, … of the given step times; waits are all that differs."""
    training = FakeTraining()
    training.begin()
    training.take(1.0, settling=True)
    training.spend(0.1)
    for block in range(1, len(real_s) + len(replay_s) + 1):
        replayed = block % 2 == 0
        step_s = replay_s[block // 2 - 1] if replayed else real_s[block // 2]
        for index in range(steps + 2):
            settling = index < 2
            wait_s = (0.001 if replayed else step_s - 0.04) * (0.1 if settling else 1)
            training.take(
                wait_s, phase=Phase.REPLAY if replayed else Phase.REAL, block=block, settling=settling
            )
            training.spend(step_s - wait_s if not settling else 0.01)
    training.end()
    return training


def test_replay_blocks_are_measured_against_their_real_neighbours() -> None:
    diagnosis = analyze_run(run_of(ideal_run([0.1] * 5, [0.04] * 4), kind="ideal"))
    assert diagnosis.headroom is not None
    assert diagnosis.headroom.method == "replay"
    assert diagnosis.headroom.speedup == pytest.approx(2.5, rel=0.02)
    assert diagnosis.headroom.low <= 2.5 <= diagnosis.headroom.high * 1.001
    assert "2.50×" in diagnosis.verdict.headline


def test_drift_cancels() -> None:
    slowing = [1.0 + 0.1 * i for i in range(9)]
    training = ideal_run([0.1 * f for f in slowing[0::2]], [0.05 * f for f in slowing[1::2]])
    headroom = analyze_run(run_of(training, kind="ideal")).headroom
    assert headroom is not None
    assert headroom.speedup == pytest.approx(2.0, rel=0.02)


def test_compute_bound_training_is_told_that_there_is_nothing_to_gain() -> None:
    diagnosis = analyze_run(run_of(ideal_run([0.0402] * 5, [0.04] * 4), kind="ideal"))
    assert diagnosis.verdict.state is State.FED
    assert "nothing to gain" in diagnosis.verdict.headline


def test_steps_that_vary_too_much_prove_nothing() -> None:
    diagnosis = analyze_run(
        run_of(ideal_run([0.1, 0.5, 0.05, 0.4, 0.06], [0.3, 0.06, 0.4, 0.05]), kind="ideal")
    )
    assert "vary too much" in diagnosis.verdict.headline


def test_one_replay_block_gives_no_interval_and_so_no_headroom() -> None:
    assert analyze_run(run_of(ideal_run([0.1] * 2, [0.04]), kind="ideal")).headroom is None


def test_without_replay_the_headroom_is_an_estimate_with_an_interval() -> None:
    waits = [0.05, 0.07] * 50
    headroom = analyze_run(simple_run([(wait, 0.04) for wait in waits])).headroom
    assert headroom is not None
    assert headroom.method == "estimate"
    assert headroom.low < headroom.speedup < headroom.high
    assert headroom.speedup == pytest.approx(2.5, rel=0.02)


def test_a_training_that_only_waits_has_a_finite_headroom() -> None:
    headroom = analyze_run(simple_run([(0.1, 0.0)] * 50)).headroom
    assert headroom is not None
    assert headroom.high <= 1001


def explained(training: FakeTraining) -> list[str]:
    evidence = analyze_run(run_of(training, kind="ideal")).verdict.evidence
    return [line for line in evidence if line.startswith("replay gains more")]


def blocks(real: tuple[float, float], replay_s: float, *, queued_s: float = 0.0) -> FakeTraining:
    """Real blocks of (wait, step) and replay blocks without waits; real steps miss a core for `queued_s`."""
    training = FakeTraining()
    training.begin()
    for block in range(1, 10):
        replayed = block % 2 == 0
        for index in range(12):
            wait_s, step_s = (0.0, replay_s) if replayed else real
            phase = Phase.REPLAY if replayed else Phase.REAL
            training.take(wait_s, phase=phase, block=block, settling=index < 2)
            queued_ns = 0 if replayed else round(queued_s * 1e9)
            training.batches[-1] = training.batches[-1]._replace(step_queued_ns=queued_ns)
            training.spend(step_s * (1 + 0.01 * (index % 3)))
    training.end()
    return training


def test_a_headroom_that_the_waits_explain_needs_no_explanation() -> None:
    assert explained(blocks((0.05, 0.05), 0.05)) == []
    assert explained(blocks((0.05, 0.051), 0.05)) == []
    assert explained(blocks((0.05, 0.04), 0.05)) == []


def test_steps_that_loading_slows_explain_a_headroom_beyond_the_waits() -> None:
    (line,) = explained(blocks((0.06, 0.06), 0.04))
    assert line.startswith("replay gains more than the waits alone would: ")
    assert "the step itself takes 40.4 ms instead of 60.7 ms" in line
    assert "core" not in line


def test_steps_that_missed_a_core_beside_loading_say_so() -> None:
    (line,) = explained(blocks((0.06, 0.06), 0.04, queued_s=0.015))
    assert line.endswith("instead of 60.7 ms, which includes 15.0 ms without a free core")


def test_a_host_that_is_late_after_waits_explains_the_rest_of_a_gpus_headroom() -> None:
    training = GpuTraining()
    training.begin()
    for block in range(1, 10):
        replayed = block % 2 == 0
        wait_s, step_s = (0.0, 0.04) if replayed else (0.06, 0.04)
        phase = Phase.REPLAY if replayed else Phase.REAL
        for index in range(12):
            stall_s = 0.0 if replayed else 0.03
            settled = {"block": block, "phase": phase, "settling": index < 2}
            training.step(wait_s, stall_s, step_s * (1 + 0.01 * (index % 3)), **settled)
    training.end()
    training.read(0.4)
    (line,) = explained(training)
    assert line.startswith(
        "replay gains more than the stalls alone would: the GPU idled another 30% of the time"
    )


def test_real_steps_that_waited_more_than_the_others_explain_it_too() -> None:
    training = FakeTraining()
    training.begin()
    for block in range(1, 10):
        replayed = block % 2 == 0
        phase = Phase.REPLAY if replayed else Phase.REAL
        for index in range(200 if block == 1 else 12):
            wait_s = 0.0 if replayed else 0.005 if block == 1 else 0.06
            training.take(wait_s, phase=phase, block=block, settling=index < 2)
            training.spend(0.04 * (1 + 0.01 * (index % 3)))
    training.end()
    found = explained(training)
    assert [line for line in found if "the real steps it was compared with waited" in line] == found != []


def test_an_estimate_never_needs_an_explanation() -> None:
    evidence = analyze_run(simple_run([(0.06, 0.04)] * 50)).verdict.evidence
    assert not any("replay" in line for line in evidence)
