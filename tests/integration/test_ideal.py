"""`unstarve ideal` measures the speed-up that free data would bring, in an unmodified script."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytestmark = pytest.mark.alone

TRAIN = """
import sys
from data import *

def main():
    load_s, compute_s, workers = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    loader = DataLoader(Numbers(150, load_s), batch_size=1, num_workers=workers)
    computed, lengths = [], []
    began = time.perf_counter()
    try:
        while True:
            length = 0
            for batch in loader:
                before = time.perf_counter()
                time.sleep(compute_s)
                computed.append(time.perf_counter() - before)
                length += 1
            lengths.append(length)
    finally:
        computed.sort()
        print(computed[len(computed) // 2], *lengths)

main()
"""


def measure(project, *words: str) -> tuple[dict, float, Sequence[int]]:
    """The report, the median seconds of a computation, and the lengths of the finished epochs."""
    project.write("train.py", TRAIN)
    done = project.unstarve("ideal", "-o", "run.unstarve", *words)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    compute_s, *lengths = done.stdout.split()
    return project.report(), float(compute_s), [int(length) for length in lengths]


@pytest.mark.parametrize(("load_s", "workers"), [("0.015", "0"), ("0.050", "2")])
def test_a_planted_wait_of_60_percent_is_measured_within_10_percent(
    project, load_s: str, workers: str
) -> None:
    report, compute_s, lengths = measure(project, "train.py", load_s, "0.010", workers)
    headroom = report["headroom"]
    loading_s = float(load_s) / max(int(workers), 1)
    # Alone, a step takes both; workers load while training computes, so that the longer of both counts.
    truth = (compute_s + loading_s if workers == "0" else max(compute_s, loading_s)) / compute_s
    assert headroom["method"] == "replay"
    assert headroom["speedup"] == pytest.approx(truth, rel=0.1)
    assert headroom["low"] <= headroom["speedup"] <= headroom["high"]
    assert report["verdict"]["state"] == "starved"
    assert report["run"]["kind"] == "ideal"
    assert set(lengths) <= {150}
    total = sum(line["seconds"] for line in report["budget"])
    assert total == pytest.approx(report["run"]["wall_s"], rel=0.01)


def test_a_compute_bound_training_has_nothing_to_gain(project) -> None:
    report, _, lengths = measure(project, "train.py", "0", "0.010", "0")
    assert report["headroom"]["speedup"] == pytest.approx(1, abs=0.1)
    assert "nothing to gain" in report["verdict"]["headline"]
    assert report["verdict"]["state"] == "fed"
    assert set(lengths) == {150}


def test_loaders_iterated_side_by_side_are_replayed_together(project) -> None:
    project.write(
        "train.py",
        """
        from data import *
        fast = DataLoader(Numbers(100, 0.001), batch_size=1)
        slow = DataLoader(Numbers(100, 0.012), batch_size=1)
        while True:
            length = 0
            for a, b in zip(fast, slow):
                time.sleep(0.010)
                length += 1
            assert length == 100
        """,
    )
    report = project.record("train.py", verb="ideal")
    assert report["headroom"]["speedup"] == pytest.approx(23 / 10, rel=0.15)
    assert [row["steps"] for row in report["loaders"]] == [report["run"]["steps"]] * 2


def test_a_short_training_keeps_its_length_and_exit_code_and_is_not_judged(project) -> None:
    project.write(
        "train.py",
        """
        import sys
        from data import *
        seen = 0
        for batch in DataLoader(Numbers(60, 0.001), batch_size=4):
            seen += len(batch[1])
        print(seen)
        sys.exit(5)
        """,
    )
    done = project.unstarve("ideal", "-o", "run.unstarve", "train.py")
    assert (done.returncode, done.stdout) == (5, "60\n")
    report = project.report()
    assert report["verdict"]["state"] == "inconclusive"
    assert report["headroom"] is None


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_loaders_inside_of_workers_are_never_replayed(project, start: str) -> None:
    project.write(
        "train.py",
        """
        import sys
        from data import *

        class Sums(Dataset):
            def __len__(self):
                return 120
            def __getitem__(self, index):
                return sum(float(x.sum()) for x, _ in DataLoader(Numbers(20), batch_size=2))

        if __name__ == "__main__":
            for batch in DataLoader(Sums(), num_workers=1, multiprocessing_context=sys.argv[1]):
                assert batch.item() == 4 * sum(range(20)), batch
            print("all right")
        """,
    )
    words = ["--pairs", "2", "--block-steps", "3"]
    done = project.unstarve("ideal", "-q", *words, "train.py", start)
    assert done.returncode == 0, done.stderr


def test_watched_iterables_are_replayed_too(project) -> None:
    project.write(
        "train.py",
        """
        import unstarve
        from data import *
        def stream():
            for number in range(100):
                time.sleep(0.015)
                yield torch.full((4,), float(number))
        while True:
            for batch in unstarve.watch(stream(), name="stream"):
                time.sleep(0.010)
        """,
    )
    report = project.record("train.py", verb="ideal")
    assert report["headroom"]["speedup"] == pytest.approx(2.5, rel=0.15)
