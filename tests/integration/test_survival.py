"""What was recorded can be read after any kind of end."""

from __future__ import annotations

import resource
import signal
import time
from functools import partial

import psutil
import pytest

from fakes import simple_run
from run_files import write_run
from unstarve.record import format as f

ENDLESS = """
import os, sys
from data import *
done = 0
while True:
    # No epoch ends: torch's workers live on for ever when training is killed in the moment they start.
    for batch in DataLoader(Numbers(10**7), batch_size=4, num_workers=int(sys.argv[1])):
        time.sleep(0.002)
        done += 1
        if done == 150:  # a row stays in memory for 50 ms: those of the first hundred steps are written
            open("warm", "w").write(str(os.getpid()))
        if os.path.exists("enough"):
            open("done", "w").write(str(done))
            sys.exit(0)
"""


def pid_when_warm(project) -> int:
    warm = project.folder / "warm"
    end = time.monotonic() + 180
    while not (warm.exists() and warm.read_text()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return int(warm.read_text())


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_training_killed_without_warning_leaves_its_run(project, workers: str, nothing_left) -> None:
    project.write("train.py", ENDLESS)
    launcher = project.start("run", "-o", "run.unstarve", "train.py", workers)
    training = psutil.Process(pid_when_warm(project))
    nothing_left(psutil.Process(launcher.pid))
    training.kill()
    _, shown = launcher.communicate(timeout=180)
    assert launcher.returncode == -signal.SIGKILL
    assert "cut short" in shown
    report = project.report()
    assert report["run"]["steps"] >= 100
    assert report["run"]["cut_short"]
    assert "ended without closing its record" in report["lost"][0]
    assert report["verdict"]["state"] != "inconclusive"
    assert not (project.folder / "run.unstarve.parts").exists()


def test_a_run_reads_on_when_unstarve_itself_is_killed(project, nothing_left) -> None:
    project.write("train.py", ENDLESS)
    launcher = project.start("run", "-o", "run.unstarve", "train.py", "0", stdout=None, stderr=None)
    training = psutil.Process(pid_when_warm(project))
    nothing_left(psutil.Process(launcher.pid))
    launcher.kill()
    launcher.wait(timeout=180)
    orphaned = project.report()
    assert training.is_running()
    assert orphaned["run"]["steps"] >= 100
    assert orphaned["run"]["cut_short"]
    assert not orphaned["run"]["live"]
    (project.folder / "enough").touch()
    psutil.wait_procs([training], timeout=180)
    done = int((project.folder / "done").read_text())
    report = project.report()
    assert report["run"]["steps"] == done >= orphaned["run"]["steps"]
    assert "unstarve ended before the command" in " ".join(report["lost"])
    assert "cut short" in project.unstarve("report", "run.unstarve").stdout
    again = project.unstarve("run", "-o", "run.unstarve", "train.py", "0")
    assert again.returncode == 2  # its parts are a run too
    assert project.unstarve("run", "--force", "-o", "run.unstarve", "train.py", "0").returncode == 0


def test_a_report_can_be_read_while_training_goes_on(project, nothing_left) -> None:
    project.write("train.py", ENDLESS)
    launcher = project.start("run", "-o", "run.unstarve", "train.py", "0")
    pid_when_warm(project)
    nothing_left(psutil.Process(launcher.pid))
    before = after = project.report()["run"]
    assert before["live"]
    assert before["steps"] >= 100
    end = time.monotonic() + 180
    while after["steps"] == before["steps"]:
        assert time.monotonic() < end
        after = project.report()["run"]
    (project.folder / "enough").touch()
    launcher.communicate(timeout=180)
    assert not project.report()["run"]["cut_short"]


@pytest.mark.parametrize("room", [0, 3000, 20_000])
def test_a_disk_that_fills_up_ends_the_recording_and_not_the_training(project, room: int) -> None:
    """A limit on the size of files is a full disk that needs no root."""
    project.write(
        "train.py",
        f"""
        import resource, signal
        from data import *
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
        count = 0
        for epoch in range(30):
            for batch in DataLoader(Numbers(80), batch_size=4):
                count += 1
                time.sleep(0.0005)
        print(count)
        """,
    )
    done = project.unstarve("run", "-o", "run.unstarve", "train.py")
    assert (done.returncode, done.stdout) == (0, "600\n")
    assert "Traceback" not in done.stderr
    lost = " ".join(project.report()["lost"])
    assert "File too large" in lost or "could not write anything" in lost
    if room == 20_000:
        assert 0 < project.report()["run"]["steps"] < 600


def test_a_run_whose_parts_do_not_fit_together_is_over_and_tells_so(project) -> None:
    """Each process may write as much as it does, but one file of them all is too large."""
    project.write(
        "train.py",
        """
        from data import *
        for batch in DataLoader(Numbers(160), batch_size=4, num_workers=2):
            time.sleep(0.001)
        raise SystemExit(3)
        """,
    )
    limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (16_000, 16_000))
    done = project.unstarve("run", "-o", "run.unstarve", "train.py", preexec_fn=limited)
    assert done.returncode == 3
    assert "could not be joined (File too large)" in done.stderr
    assert "still recording" not in done.stderr
    report = project.report()
    assert (report["run"]["exit_code"], report["run"]["live"]) == (3, False)
    assert report["run"]["steps"] == 40
    assert any("could not be joined" in message for message in report["lost"])
    assert "finished" in project.unstarve("top", "--once", "run.unstarve").stdout


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "run.unstarve"
    return write_run(path, simple_run([(0.001, 0.001)] * 400)).read_bytes()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not an unstarve run file"),
        (b"UNST", "not an unstarve run file"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 100, "not an unstarve run file"),
        (b"UNSTARVE\xff\x00\0\0\0\0\0\0", "written by a newer unstarve (format 255"),
    ],
)
def test_a_file_that_is_no_run_is_refused_in_a_sentence(project, content: bytes, told: str) -> None:
    (project.folder / "run.unstarve").write_bytes(content)
    for verb in (["report"], ["report", "--json", "-"], ["compare", "run.unstarve"]):
        done = project.unstarve(*verb, "run.unstarve")
        assert (done.returncode, done.stdout) == (2, "")
        assert told in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_folder_is_refused_in_a_sentence(project) -> None:
    done = project.unstarve("report", ".")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_run_tells_what_is_left_of_it(project, good: bytes, share: float) -> None:
    end = f.HEADER.size + int(share * (len(good) - f.HEADER.size))
    end += good.startswith(f.SYNC, end)  # never right between two chunks, where nothing shows that more came
    (project.folder / "run.unstarve").write_bytes(good[:end])
    report = project.report()
    assert report["run"]["cut_short"]
    assert report["lost"]
    assert report["run"]["steps"] <= 400
    assert share < 0.9 or report["run"]["steps"] > 300


def test_damage_in_the_middle_costs_only_what_it_hit(project, good: bytes) -> None:
    middle = len(good) // 2
    (project.folder / "run.unstarve").write_bytes(good[:middle] + b"\xff" * 50 + good[middle + 50 :])
    report = project.report()
    assert 300 < report["run"]["steps"] <= 400  # it may have hit something else than batches
    assert "damaged" in report["lost"][0]
