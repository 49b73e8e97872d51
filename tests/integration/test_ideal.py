"""`unstarve ideal` replays batches in an unmodified script and lets it end when it has seen enough.

How right the measured speed-up is, ``bench/ideal.py`` tells.
"""

from __future__ import annotations

import json
import subprocess

import pytest

FEW = ("--pairs", "4", "--block-steps", "6")
TRAIN = """
import sys
from data import *

lengths = []
loader = DataLoader(Numbers(35, load_s=0.05), batch_size=1, num_workers=int(sys.argv[1]))
try:
    while True:
        length = 0
        for batch in loader:
            length += 1
        lengths.append(length)
finally:
    print(*lengths)
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_real_and_replayed_batches_take_turns_in_epochs_of_the_usual_length(project, workers: str) -> None:
    project.write("train.py", TRAIN)
    done = project.unstarve("ideal", "-o", "run.unstarve", *FEW, "train.py", workers)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert set(done.stdout.split()) <= {"35"}
    report = project.report()
    headroom = report["headroom"]
    assert headroom["method"] == "replay"
    assert headroom["low"] <= headroom["speedup"] <= headroom["high"]
    assert report["verdict"]["state"] == "starved"
    assert report["run"]["kind"] == "ideal"
    total = sum(line["seconds"] for line in report["budget"])
    assert total == pytest.approx(report["run"]["wall_s"], rel=0.01)


def test_weights_of_replayed_batches_are_announced_and_named(project) -> None:
    project.write(
        "train.py",
        """
        import os
        from data import *
        print("began", flush=True)
        os.makedirs("out", exist_ok=True)
        for batch in DataLoader(Numbers(60, 0.001), batch_size=4):
            torch.save(batch, "out/model.pt")
        """,
    )
    asked = ("--json", "report.json", "-o", "run", "-q")
    done = project.unstarve("ideal", *asked, "train.py", stderr=subprocess.STDOUT, capture_output=False,
                            stdout=subprocess.PIPE)  # fmt: skip
    first, second, *_, last = done.stdout.splitlines()
    assert first.startswith("unstarve: training runs partly on replayed batches")
    assert second == "began"
    assert last == "Files written during the run: out/model.pt"
    assert json.loads((project.folder / "report.json").read_text())["files_written"] == ["out/model.pt"]


def test_loaders_iterated_side_by_side_are_replayed_together(project) -> None:
    project.write(
        "train.py",
        """
        from data import *
        fast = DataLoader(Numbers(20), batch_size=1)
        slow = DataLoader(Numbers(20, 0.002), batch_size=1)
        while True:
            length = 0
            for a, b in zip(fast, slow):
                length += 1
            assert length == 20
        """,
    )
    report = project.record(*FEW, "train.py", verb="ideal")
    assert report["headroom"]["method"] == "replay"
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
            for number in range(30):
                time.sleep(0.002)
                yield torch.full((4,), float(number))
        while True:
            for batch in unstarve.watch(stream(), name="stream"):
                pass
        """,
    )
    assert project.record(*FEW, "train.py", verb="ideal")["headroom"]["method"] == "replay"
