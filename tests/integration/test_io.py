"""`unstarve run --io` on unmodified scripts: what each file and process reads, and what that means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unstarve.launch.io_library import why_not_io

needs_library = pytest.mark.skipif(why_not_io() is not None, reason=str(why_not_io()))

TRAIN = """
import os, signal, sys, threading
import numpy as np
from data import *

class Small(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        with open(f"small/{index}.raw", "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)

class Rows(Small):
    '''Rows of one array, read one by one.'''

    def __getitem__(self, index):
        if not hasattr(self, "file"):
            self.file = open("rows.npy", "rb", buffering=0)
        self.file.seek(128 + index * 7919 % 1000 * 4000)
        return torch.frombuffer(bytearray(self.file.read(4000)), dtype=torch.float32)

class Whole(Small):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.from_numpy(np.load("rows.npy")[index])

class Mapped(Small):
    def __getitem__(self, index):
        return torch.from_numpy(np.load("rows.npy", mmap_mode="r")[index].copy())

class Threads(Small):
    '''Every sample is read by four threads.'''

    def __getitem__(self, index):
        def read():
            for _ in range(5):
                super(Threads, self).__getitem__(index)
        threads = [threading.Thread(target=read) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return torch.zeros(1)

class Killed(Small):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        if index == 200:
            time.sleep(0.6)
            super().__getitem__(index)
            os.kill(os.getpid(), signal.SIGKILL)
        return sample

if __name__ == "__main__":
    name, workers, start = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.makedirs("small", exist_ok=True)
    for index in range(240):
        with open(f"small/{index}.raw", "wb") as file:
            file.write(bytes([index]) * 500)
    np.save("rows.npy", np.arange(1_000_000, dtype=np.float32).reshape(1000, 1000))
    context = start if workers else None
    loader = DataLoader(globals()[name](), batch_size=4, num_workers=workers, multiprocessing_context=context)
    for batch in loader:
        print(float(batch.float().sum()))
"""


def io_of(project: Any, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The counts of a run, whose output and exit code must be those of the script alone."""
    project.write("train.py", TRAIN)
    done = project.unstarve(
        "run", "--force", "-o", "p.unstarve", "--json", "p.json", "--io", "train.py", *arguments
    )
    alone = project.python("train.py", *arguments)
    assert done.returncode == alone.returncode == code, done.stderr
    assert done.stdout == alone.stdout
    return json.loads((project.folder / "p.json").read_text())["io"]


def patterns(io: dict[str, Any]) -> set[str]:
    return {one["id"] for one in io["patterns"]}


@needs_library
@pytest.mark.parametrize(("workers", "start"), [("0", "-"), ("2", "fork"), ("2", "spawn")])
def test_small_files_are_counted_in_every_process_that_loads(project, workers: str, start: str) -> None:
    io = io_of(project, "Small", workers, start)
    assert (io["opens"], io["read_bytes"], io["used_bytes"]) == (240, 120_000, 120_000)
    assert io["read_per_used"] == 1
    assert "small_files" in patterns(io)
    role = "worker" if int(workers) else "training"
    loading = [one for one in io["processes"] if one["role"] == role and one["bytes"]]
    assert len(loading) == max(int(workers), 1)
    assert sum(one["files"] for one in loading) == 240
    small = [one for one in io["files"] if one["path"].endswith(".raw")]
    assert len(small) == 240
    assert all(one["opens"] == 1 and one["bytes"] == one["file_bytes"] == 500 for one in small)


@needs_library
def test_jumps_in_a_large_file_are_named(project) -> None:
    io = io_of(project, "Rows", "2", "fork")
    (rows,) = [one for one in io["files"] if one["path"].endswith("rows.npy")]
    assert (rows["kind"], rows["opens"], rows["reads"]) == ("npy", 2, 240)
    assert rows["bytes"] == 240 * 4000
    assert rows["jumps"] >= 238
    assert patterns(io) >= {"random_reads"}
    assert "small_files" not in patterns(io)


@needs_library
def test_reading_far_more_than_a_batch_holds_is_named_with_a_remedy_for_the_kind(project) -> None:
    io = io_of(project, "Whole", "0", "-")
    assert io["read_per_used"] == pytest.approx(1000, rel=0.01)
    (found,) = [one for one in io["patterns"] if one["id"] == "unused_bytes"]
    assert "mmap_mode" in found["remedy"]


@needs_library
def test_reads_of_mapped_files_are_said_to_be_unknown(project) -> None:
    io = io_of(project, "Mapped", "2", "fork")
    (rows,) = [one for one in io["files"] if one["path"].endswith("rows.npy")]
    assert rows["mapped_bytes"] >= 240 * 4_000_000
    assert io["read_per_used"] is None
    assert "reopened_file" in patterns(io)
    report = " ".join(project.unstarve("report", "p.unstarve").stdout.split())
    assert "reads of memory-mapped files are not counted" in report


@needs_library
def test_threads_are_counted_exactly(project) -> None:
    io = io_of(project, "Threads", "0", "-")
    assert (io["opens"], io["read_bytes"]) == (240 * 20, 240 * 20 * 500)


@needs_library
def test_a_killed_worker_leaves_its_counts(project) -> None:
    io = io_of(project, "Killed", "1", "fork", code=1)
    (worker,) = [one for one in io["processes"] if one["role"] == "worker"]
    assert worker["opens"] >= 200


@needs_library
def test_children_that_are_no_python_count_and_keep_their_output(project) -> None:
    project.write("train.py", "import subprocess\nprint(subprocess.check_output(['cat', 'a.bin']))\n")
    (project.folder / "a.bin").write_bytes(b"12345")
    done = project.unstarve("run", "-o", "p.unstarve", "--json", "p.json", "--io", "train.py")
    assert done.stdout == "b'12345'\n"
    io = json.loads((project.folder / "p.json").read_text())["io"]
    assert [(one["path"], one["bytes"]) for one in io["files"]] == [(str(project.folder / "a.bin"), 5)]


@needs_library
def test_forks_beside_reading_threads_lose_nothing(project) -> None:
    project.write(
        "train.py",
        """
        import os, subprocess, threading
        with open("a.bin", "wb") as file:
            file.write(bytes(1000))

        def read(times):
            for _ in range(times):
                with open("a.bin", "rb", buffering=0) as file:
                    file.read()

        threads = [threading.Thread(target=read, args=(500,)) for _ in range(3)]
        for one in threads:
            one.start()
        kept = open("a.bin", "rb", buffering=0)
        for _ in range(10):
            subprocess.run(["true"], check=True)  # shares our memory until it becomes `true`
            kept.seek(0)
            kept.read()
            if (child := os.fork()) == 0:
                read(10)
                os._exit(0)
            os.waitpid(child, 0)
        for one in threads:
            one.join()
        """,
    )
    done = project.unstarve("run", "-o", "p.unstarve", "--json", "p.json", "--io", "train.py")
    assert done.returncode == 0, done.stderr
    io = json.loads((project.folder / "p.json").read_text())["io"]
    counted = sorted((one["opens"], one["bytes"]) for one in io["processes"])
    assert counted == [(10, 10_000)] * 10 + [(1501, 1_510_000)]


@needs_library
def test_errors_of_calls_stay_the_same(project) -> None:
    project.write(
        "train.py",
        """
        import errno, os
        with open("a.bin", "wb") as file:
            file.write(b"12345")
        fd = os.open("a.bin", os.O_RDONLY)
        copy = os.dup(fd)

        def tried(call, *arguments):
            try:
                print(call.__name__, call(*arguments))
            except OSError as error:
                print(call.__name__, errno.errorcode[error.errno])

        tried(os.open, "missing", os.O_RDONLY)
        tried(os.open, "a.bin/b", os.O_RDONLY)
        tried(os.read, 9999, 5)
        tried(os.read, fd, 3)
        tried(os.read, copy, 3)
        tried(os.read, copy, 3)
        tried(os.pread, fd, 2, 4)
        tried(os.pread, fd, 2, -1)
        tried(os.preadv, fd, [bytearray(2)], 0)
        tried(os.lseek, fd, -9, os.SEEK_SET)
        tried(os.lseek, fd, 1, os.SEEK_SET)
        tried(os.readv, fd, [bytearray(2), bytearray(9)])
        tried(os.read, os.open(".", os.O_RDONLY), 5)
        tried(os.close, fd)
        tried(os.close, fd)
        tried(os.read, copy, 1)
        os._exit(3)
        """,
    )
    done = project.unstarve("run", "-o", "p.unstarve", "--json", "p.json", "--io", "python", "-u", "train.py")
    alone = project.call("python", "-u", "train.py")
    assert done.returncode == alone.returncode == 3, done.stderr
    assert done.stdout == alone.stdout
    (file,) = json.loads((project.folder / "p.json").read_text())["io"]["files"]
    assert (file["opens"], file["bytes"]) == (1, 3 + 2 + 0 + 1 + 2 + 4 + 0)


@needs_library
def test_a_command_that_removes_the_counts_keeps_its_exit_code(project) -> None:
    project.write("train.py", "import shutil, sys\nshutil.rmtree('p.unstarve.parts')\nsys.exit(7)\n")
    done = project.unstarve("run", "-o", "p.unstarve", "--io", "--perf", "train.py")
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_library_one_sentence_says_so_and_training_runs(project) -> None:
    project.environment["UNSTARVE_NATIVE"] = "0"
    io = io_of(project, "Small", "0", "-")
    assert "UNSTARVE_NATIVE=0" in io["why_not"]
    report = project.unstarve("report", "p.unstarve").stdout
    assert "--io: the library that counts file reads is switched off" in " ".join(report.split())


def test_without_io_there_are_no_counts(project) -> None:
    project.write("train.py", TRAIN)
    done = project.unstarve("run", "-o", "p.unstarve", "--json", "p.json", "train.py", "Small", "0", "-")
    assert done.returncode == 0
    assert json.loads((project.folder / "p.json").read_text())["io"] is None
