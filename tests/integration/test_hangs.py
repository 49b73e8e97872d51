"""Planted hangs: each process is shown with the line that it is in and what it waits for there."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from unstarve.launch.inspect_process import inspect_process
from unstarve.model.stuck import Picture, ProcessPicture, Stage

LONGEST_S = 240

TABLE = """
import fcntl, itertools, os, queue, re, select, signal, socket, subprocess, sys, threading, time
import torch
from torch.utils.data import DataLoader, Dataset

held = threading.Lock()

def sleep():
    time.sleep(1000)
def lock():
    fresh = threading.Lock()
    fresh.acquire()
    fresh.acquire()
def queue_get():
    queue.Queue().get()
def socket_recv():
    ours, theirs = socket.socketpair()
    ours.recv(1)
def tcp_recv():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.recv(1)
def http():
    import urllib.request
    server = socket.create_server(("127.0.0.1", 0))
    urllib.request.urlopen(f"http://127.0.0.1:{server.getsockname()[1]}/")
def pipe_read():
    ends = os.pipe()
    os.read(ends[0], 1)
def fifo_open():
    os.mkfifo("closed.fifo")
    open("closed.fifo")
def fifo_read():
    os.mkfifo("silent.fifo")
    end = os.open("silent.fifo", os.O_RDWR)
    os.read(end, 1)
def flock():
    file = open("a.lock", "w")
    fcntl.flock(file, fcntl.LOCK_EX)
def posix_lock():
    file = open("b.lock", "w")
    fcntl.lockf(file, fcntl.LOCK_EX)
def subprocess_wait():
    child = subprocess.Popen(["sleep", "1000"])
    child.wait()
def waitpid():
    child = subprocess.Popen(["sleep", "1001"])
    os.waitpid(child.pid, 0)
def join():
    thread = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
    thread.start()
    thread.join()
def select_():
    ends = os.pipe()
    select.select([ends[0]], [], [])
def poll():
    ends = os.pipe()
    waiting = select.poll()
    waiting.register(ends[0], select.POLLIN)
    waiting.poll()
def epoll():
    ends = os.pipe()
    waiting = select.epoll()
    waiting.register(ends[0], select.EPOLLIN)
    waiting.poll()
def after_fork():
    held.acquire()
def python_loop():
    while True: pass
def c_call():
    sum(itertools.repeat(0))
def backtracking():
    re.match("(a*)*b", "a" * 60)
def semaphore():
    threading.Semaphore(0).acquire()  # of this process
def condition():
    waiting = threading.Condition()
    with waiting:
        waiting.wait()
def event():
    threading.Event().wait()
def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
def accept():
    server = socket.create_server(("127.0.0.1", 0))
    server.accept()
def shared_semaphore():
    import multiprocessing
    shared = multiprocessing.Semaphore(0)
    shared.acquire()

KINDS = [
    sleep, lock, queue_get, socket_recv, tcp_recv, http, pipe_read, fifo_open, fifo_read, flock,
    posix_lock, subprocess_wait, waitpid, join, select_, poll, epoll, after_fork, python_loop,
    c_call, backtracking, semaphore, condition, event, stopped, accept, shared_semaphore,
]

class Hanging(Dataset):
    def __len__(self):
        return len(KINDS) + 2
    def __getitem__(self, index):
        if index < len(KINDS):
            KINDS[index]()
        return index

def collate(samples):
    if samples[0] == len(KINDS):
        time.sleep(1001)  # collate
    return samples

def init(worker):
    if worker == len(KINDS) + 1:
        time.sleep(1002)  # init

if __name__ == "__main__":
    files = [open("a.lock", "w"), open("b.lock", "w")]
    fcntl.flock(files[0], fcntl.LOCK_EX)
    fcntl.lockf(files[1], fcntl.LOCK_EX)
    threading.Thread(target=lambda: (held.acquire(), time.sleep(1000)), daemon=True).start()
    loader = DataLoader(
        Hanging(), batch_size=1, num_workers=len(KINDS) + 2, collate_fn=collate, worker_init_fn=init
    )
    for batch in loader:  # training
        pass
"""

HANGS = {
    "sleep": ("time.sleep(1000)", "clock_nanosleep", "sleeps"),
    "lock": ("fresh.acquire()", "futex", "waits for a lock inside this process"),
    "queue_get": ("queue.Queue().get()", "futex", "waits for a lock inside this process"),
    "socket_recv": ("ours.recv(1)", "recvfrom", "waits for data from the socket socket:["),
    "tcp_recv": ("client.recv(1)", "recvfrom", "waits for data from the socket 127.0.0.1:"),
    "http": ("urllib.request.urlopen(", "recvfrom", "waits for data from the socket 127.0.0.1:"),
    "pipe_read": ("os.read(ends[0], 1)", "read", "reads from the pipe pipe:["),
    "fifo_open": (
        'open("closed.fifo")',
        "openat",
        "opens closed.fifo, a FIFO, which waits for its other end",
    ),
    "fifo_read": ("os.read(end, 1)", "read", "reads from the FIFO"),
    "flock": ("fcntl.flock(file, fcntl.LOCK_EX)", "flock", "waits for a lock on the file"),
    "posix_lock": ("fcntl.lockf(file, fcntl.LOCK_EX)", "fcntl", "waits for a lock on the file"),
    "subprocess_wait": ("child.wait()", "wait4", "to end (sleep 1000)"),
    "waitpid": ("os.waitpid(child.pid, 0)", "wait4", "to end (sleep 1001)"),
    "join": ("thread.join()", "futex", "waits for a lock inside this process"),
    "select_": ("select.select([ends[0]], [], [])", None, "waits for data from the pipe pipe:["),
    "poll": ("waiting.poll()", None, "waits for data from the pipe pipe:["),
    "epoll": ("waiting.poll()", None, "waits for data from the pipe pipe:["),
    "after_fork": ("held.acquire()", "futex", "waits for a lock inside this process"),
    "python_loop": ("while True: pass", None, "computes"),
    "c_call": ("sum(itertools.repeat(0))", None, "computes"),
    "backtracking": ('re.match("(a*)*b", "a" * 60)', None, "computes"),
    "semaphore": ("threading.Semaphore(0).acquire()", "futex", "waits for a lock inside this process"),
    "condition": ("waiting.wait()", "futex", "waits for a lock inside this process"),
    "event": ("threading.Event().wait()", "futex", "waits for a lock inside this process"),
    "stopped": (None, None, "is stopped by a signal"),
    "accept": ("server.accept()", None, "waits for a connection to the socket 127.0.0.1:"),
    "shared_semaphore": ("shared.acquire()", "futex", "waits for a lock shared with other processes"),
    "collate": ("time.sleep(1001)", "clock_nanosleep", "sleeps"),
    "init": ("time.sleep(1002)", "clock_nanosleep", "sleeps"),
}
"""By function of the table: the line, the system call (None: it depends on the C library), and the words."""


def settled(one: ProcessPicture) -> bool:
    """Whether a worker has got to where it hangs."""
    return one.state in "Tt" or any(frame.users for frame in one.frames)


def wait_for_picture(process: subprocess.Popen[str]) -> Picture:
    """The first picture in which all workers hang."""
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until and process.poll() is None:
        found = inspect_process(process.pid)
        workers = found.pictures[0].workers
        if found.source == "unstarve" and len(workers) == len(HANGS) and all(map(settled, workers)):
            return found.pictures[0]
        time.sleep(0.5)
    raise AssertionError("the workers did not start")


def problems(kind: str, worker: ProcessPicture, number: int) -> list[str]:
    """What is not as it should be in the picture of one worker."""
    line, call, words = HANGS[kind]
    place, wait, task = worker.place, worker.wait, worker.task
    assert wait is not None
    assert task is not None
    claims = {
        f"{wait.words} instead of {words}": words in wait.words,
        f"{wait.call} instead of {call}": call is None or wait.call == call,
        f"{place} instead of {line}": line is None
        or (place is not None and line in place.source and place.file == "train.py"),
    }
    stage = {"init": Stage.START, "collate": Stage.COLLATE}.get(kind, Stage.FETCH)
    sample = number if stage is Stage.FETCH else None
    claims[f"{task}"] = (task.stage, task.sample) == (stage, sample) and (
        kind == "init" or (task.number, task.indices) == (number, (number,))
    )
    return [f"{kind}: {said}" for said, holds in claims.items() if not holds]


def all_problems(picture: Picture) -> list[str]:
    """What is not as it should be in a picture of the whole training."""
    workers = dict(zip(HANGS, picture.workers, strict=True))
    said = [one for number, kind in enumerate(HANGS) for one in problems(kind, workers[kind], number)]
    for kind in ("flock", "posix_lock"):
        wait = workers[kind].wait
        holders = () if wait is None else wait.holders
        if [f"process {picture.training.pid} " in one for one in holders] != [True]:
            said.append(f"{kind} is held by {holders}")
    if workers["join"].other_threads < 1:
        said.append("the thread that is joined is missing")
    place, wait = picture.training.place, picture.training.wait
    if place is None or place.source != "for batch in loader:  # training":
        said.append(f"training is in {place}")
    if wait is None or wait.words != "waits for its workers":
        said.append(f"training: {wait}")
    return said


def test_every_planted_hang_is_shown_with_its_line_and_its_wait(project: Any) -> None:
    # One training, whose workers hang in as many ways: a process each would take minutes.
    project.write("train.py", TABLE)
    words = ("run", "-q", "-o", "run.unstarve", "--hang-after", "0", "train.py")
    process = project.start(*words, stderr=subprocess.DEVNULL)
    until = time.monotonic() + LONGEST_S
    picture = wait_for_picture(process)
    # On a busy machine a stack may come too late for a picture; a hang stays, so look again.
    while all_problems(picture) and time.monotonic() < until:
        picture = wait_for_picture(process)
    project.end()
    assert [one.worker for one in picture.workers] == list(range(len(HANGS)))
    assert all_problems(picture) == []
    assert (picture.loader, picture.epoch, picture.batch) == ("loader", 0, 0)
    assert picture.culprit is picture.workers[0]
