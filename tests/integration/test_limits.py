"""`--steps` ends the recording, `--stop-after` ends the command; both after whole steps."""

from __future__ import annotations

import pytest

TRAIN = """
import atexit
from data import *
atexit.register(lambda: print("exit handler ran"))
begun, done = 0, 0
try:
    for epoch in range(3):
        for batch in DataLoader(Numbers(40), batch_size=4, num_workers=WORKERS):
            begun += 1
            time.sleep(0.001)
            done += 1
finally:
    print(f"begun {begun} done {done}")
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_stop_after_ends_the_command_like_a_normal_exit(project, workers: int) -> None:
    project.write("train.py", TRAIN.replace("WORKERS", str(workers)))
    done = project.unstarve("run", "-o", "run.unstarve", "--stop-after", "13", "train.py")
    assert (done.returncode, done.stdout) == (0, "begun 13 done 13\nexit handler ran\n")
    assert "Traceback" not in done.stderr
    report = project.report()
    assert report["run"]["steps"] == 13
    assert not report["run"]["cut_short"]
    assert report["loaders"][0]["epochs"] == 2


def test_steps_ends_only_the_recording(project) -> None:
    project.write("train.py", TRAIN.replace("WORKERS", "0"))
    done = project.unstarve("run", "-o", "run.unstarve", "--steps", "13", "train.py")
    assert (done.returncode, done.stdout) == (0, "begun 30 done 30\nexit handler ran\n")
    report = project.report()
    assert report["run"]["steps"] == 13
    assert not report["run"]["cut_short"]


@pytest.mark.parametrize("option", ["--steps", "--stop-after"])
def test_loaders_iterated_side_by_side_share_a_step(project, option: str) -> None:
    project.write(
        "train.py",
        """
        from data import *
        images = DataLoader(Numbers(80), batch_size=4)
        labels = DataLoader(Numbers(80), batch_size=4)
        done = 0
        try:
            for image, label in zip(images, labels):
                done += 1
        finally:
            print(done)
        """,
    )
    report = project.record(option, "7", "train.py")
    assert report["run"]["steps"] == 7
    assert {row["name"]: row["steps"] for row in report["loaders"]} == {"images": 7, "labels": 7}


def test_stop_after_works_when_a_background_thread_takes_the_batches(project) -> None:
    project.write(
        "train.py",
        """
        import atexit, contextlib, queue, threading
        from data import *
        atexit.register(lambda: print("exit handler ran"))
        ready = queue.Queue(2)

        def feed():
            while True:
                for batch in DataLoader(Numbers(40), batch_size=4):
                    ready.put(batch)

        threading.Thread(target=feed, daemon=True).start()
        try:
            while True:
                with contextlib.suppress(queue.Empty):  # a thread that blocks for ever is not told to end
                    ready.get(timeout=0.05)
        finally:
            print("cleaned up")
        """,
    )
    done = project.unstarve("run", "-o", "run.unstarve", "--stop-after", "25", "train.py")
    assert (done.returncode, done.stdout) == (0, "cleaned up\nexit handler ran\n")
    report = project.report()
    assert report["run"]["steps"] == 25
    assert report["loaders"][0]["background"]
    assert "background thread" in report["verdict"]["headline"]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_stop_after_leaves_loaders_inside_of_workers_alone(project, start: str) -> None:
    project.write(
        "train.py",
        """
        import sys
        from data import *

        class Sums(Dataset):
            def __len__(self):
                return 60
            def __getitem__(self, index):
                return sum(float(x.sum()) for x, _ in DataLoader(Numbers(index), batch_size=2))

        if __name__ == "__main__":
            done = 0
            try:
                for batch in DataLoader(Sums(), num_workers=1, multiprocessing_context=sys.argv[1]):
                    done += 1
            finally:
                print(done)
        """,
    )
    done = project.unstarve("run", "--stop-after", "15", "train.py", start)
    assert (done.returncode, done.stdout) == (0, "15\n"), done.stderr


def test_quiet_prints_nothing_but_what_the_command_prints(project) -> None:
    project.write("train.py", "import sys; print('out'); print('err', file=sys.stderr)")
    done = project.unstarve("run", "--quiet", "train.py")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert len(list(project.folder.glob("train-*.unstarve"))) == 1
