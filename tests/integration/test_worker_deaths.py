"""A worker that dies: training fails as it would alone, and the report says why."""

from __future__ import annotations

from typing import Any

DEATHS = """
import ctypes, os, signal, subprocess, sys
from data import *
class Deadly(Numbers):
    def __init__(self, how):
        super().__init__(16)
        self.how = how
    def __getitem__(self, index):
        if index == 9:
            self.how()
        return super().__getitem__(index)
def leaves():
    os._exit(3)
def killed():
    os.kill(os.getpid(), signal.SIGKILL)
def crashes():
    ctypes.string_at(0)
def aborts():
    os.abort()
def bus_error():
    os.kill(os.getpid(), signal.SIGBUS)
WAYS = (leaves, killed, crashes, aborts, bus_error)
if __name__ == "__main__":
    if sys.argv[1:]:
        loader = DataLoader(Deadly(WAYS[int(sys.argv[1])]), batch_size=4, num_workers=1)
        for batch in loader:
            pass
    else:
        started = [subprocess.Popen([sys.executable, __file__, str(way)]) for way in range(len(WAYS))]
        assert [one.wait() for one in started] == [1] * len(WAYS)
"""


def test_every_way_to_die_is_named_with_its_sample_and_its_line(project: Any) -> None:
    project.write("train.py", DEATHS)
    report = project.record("train.py")
    found = [one for one in report["health"] if one["id"] == "worker-killed"]
    said = ["exited with code 3", *(f"was killed by SIG{name}" for name in ("KILL", "SEGV", "ABRT", "BUS"))]
    assert sorted(how for one in found for how in said if how in one["message"]) == sorted(said)
    for one in found:
        assert "of loader " in one["message"]
        assert "while fetching sample 9 (2nd of 4) of batch 2." in one["message"]
    lines = {one["line"] for one in found if one["file"] == "train.py"}
    source = (project.folder / "train.py").read_text().splitlines()
    assert {source[line - 1].strip() for line in lines} == {
        "ctypes.string_at(0)", "os.abort()", "os.kill(os.getpid(), signal.SIGBUS)",
    }  # fmt: skip


UNCAUGHT = """
from data import *
class Deadly(Numbers):
    def __getitem__(self, index):
        if index == 9:
            import os
            os._exit(3)
        return super().__getitem__(index)
if __name__ == "__main__":
    train_loader = DataLoader(Deadly(16), batch_size=4, num_workers=1)
    for step, batch in enumerate(train_loader):
        print(step, flush=True)
        time.sleep(0.5 * (step == 0))  # the worker may die in here, too
"""


def test_training_fails_as_it_does_alone_and_one_sentence_says_why(project: Any) -> None:
    project.write("train.py", UNCAUGHT)
    alone = project.python("train.py")
    done = project.unstarve("run", "-q", "-o", "run.unstarve", "train.py")
    assert done.returncode == alone.returncode == 1
    assert done.stdout.splitlines()[:1] == alone.stdout.splitlines()[:1]
    assert "exited unexpectedly with exit code 3" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("unstarve: Worker 0 (pid ")
    assert "of train_loader exited with code 3 while fetching sample 9 (2nd of 4) of batch 2." in last


TIMED_OUT = """
from data import *
class Slow(Numbers):
    def __getitem__(self, index):
        if index == 9:
            time.sleep(1000)
        return super().__getitem__(index)
if __name__ == "__main__":
    for batch in DataLoader(Slow(16), batch_size=4, num_workers=2, timeout=3):
        pass
"""


def test_a_timeout_names_the_sample_and_shows_the_workers(project: Any) -> None:
    project.write("train.py", TIMED_OUT)
    done = project.unstarve("run", "-o", "run.unstarve", "train.py")
    assert done.returncode == 1
    assert "RuntimeError: DataLoader timed out after 3 seconds" in done.stderr
    said = " ".join(done.stderr.split())
    assert "is in train.py:6 `time.sleep(1000)`, fetching sample 9 (2nd of 4) of batch 2" in said
    (found,) = [one for one in project.report()["health"] if one["id"] == "worker-timeout"]
    assert (found["file"], found["line"]) == ("train.py", 6)
    assert "sample 9" in found["message"]


def test_healthy_workers_that_are_let_go_are_not_taken_for_dead(project: Any) -> None:
    project.write(
        "train.py",
        """
        from data import *
        if __name__ == "__main__":
            kept = DataLoader(Numbers(64), batch_size=4, num_workers=2, persistent_workers=True)
            for loader in (kept, kept, DataLoader(Numbers(64), batch_size=4, num_workers=2)):
                for step, batch in enumerate(loader):
                    if step == 3:
                        break
        """,
    )
    assert project.record("train.py")["health"] == []
