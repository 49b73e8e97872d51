"""The files that a command has written are found by their times, whoever opened them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from unstarve.launch import written_files
from unstarve.launch.written_files import files_written_since

EVER = 0


def write(path: Path, size: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def wait_for_a_later_time(folder: Path) -> int:
    """Now, when a file written before has an earlier time: the clock of files is coarse."""
    probe = folder / ".probe"
    began_ns = time.time_ns()
    while write(probe).stat().st_ctime_ns <= began_ns:
        time.sleep(0.001)
    return probe.stat().st_ctime_ns


def test_files_that_were_made_replaced_or_written_over_are_found(tmp_path: Path) -> None:
    for name in ("old.pt", "out/model.pt", "out/best.pt", "kept.txt"):
        write(tmp_path / name)
    os.utime(tmp_path / "old.pt", (1, 1))
    since_ns = wait_for_a_later_time(tmp_path)
    with (tmp_path / "out" / "model.pt").open("r+b") as file:
        file.write(b"2" * 50)
    shutil.copy2(tmp_path / "old.pt", tmp_path / "out" / "best.pt")  # keeps the time of what was copied
    write(tmp_path / "deep" / "er" / "log.txt", 20)
    found = files_written_since(tmp_path, since_ns)
    assert found.names == ("out/model.pt", "deep/er/log.txt", "out/best.pt")
    assert (found.count, found.complete) == (3, True)


def test_what_is_no_output_of_a_training_is_left_out(tmp_path: Path) -> None:
    for name in (
        ".git/index", ".hidden", "__pycache__/a.pyc", "env/pyvenv.cfg", "env/bin/python", "run.unstarve",
        "conda/conda-meta/a", "run.unstarve.parts/1.part", "lib/site-packages/a.py",
    ):  # fmt: skip
        write(tmp_path / name)
    write(tmp_path / "pyvenv.cfg")  # of the folder itself: it is where the user works
    run = write(tmp_path / "run")
    assert files_written_since(tmp_path, EVER, but_not=run).names == ("pyvenv.cfg",)


def test_a_linked_folder_is_searched_once_and_a_linked_file_has_its_own_name(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    write(here / "z.pt", 9)
    (here / "a_latest.pt").symlink_to("z.pt")
    (here / "circle").symlink_to(here)
    (here / "nowhere").symlink_to("gone")
    write(elsewhere / "weights.pt", 5)
    (here / "checkpoints").symlink_to(elsewhere)
    (here / "again").symlink_to(elsewhere)
    names = {Path(name).name for name in files_written_since(here, EVER).names}
    assert names == {"z.pt", "weights.pt"}
    assert files_written_since(here, EVER).count == 2


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert files_written_since(tmp_path, EVER).names == ()


def test_upper_folders_and_those_changed_last_come_first_where_not_all_can_be_searched(
    tmp_path: Path,
) -> None:
    for number in range(20):
        write(tmp_path / "data" / f"{number}.jpg")
    write(tmp_path / "new" / "model.pt")
    os.utime(tmp_path / "data", (1, 1))
    found = files_written_since(tmp_path, EVER, most_entries=5)
    assert "new/model.pt" in found.names
    assert (found.count, found.complete) == (3, False)


def test_a_slow_storage_is_not_waited_for(tmp_path: Path) -> None:
    for number in range(10):
        write(tmp_path / f"{number}.pt")
    ticks = iter(range(100))
    found = files_written_since(tmp_path, EVER, clock=lambda: float(next(ticks)))
    assert (len(found.names), found.complete) == (2, False)


@pytest.mark.parametrize("name", ["gone", "file"])
def test_a_folder_that_cannot_be_searched_has_no_files(tmp_path: Path, name: str) -> None:
    write(tmp_path / "file")
    assert files_written_since(tmp_path / name, EVER).names == ()


def test_a_folder_that_may_not_be_looked_into_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_files, "_ENVIRONMENT", ("x" * 300,))  # asking for it is an error
    (tmp_path / "closed").mkdir()
    assert files_written_since(tmp_path, 0).complete


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux only")
def test_what_the_kernel_shows_as_files_was_not_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/self")
    assert files_written_since(tmp_path, 0).names == ()
