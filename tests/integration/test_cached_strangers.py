"""Ranks that meet somebody else, or one that gets on no more: nobody waits for ever."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cached_ranks import Rank, ranks_in, reads, wait_for
from sample_datasets import Logged
from unstarve import CachedDataset
from unstarve.fixes.memory.region import SharedRegion, anonymous
from unstarve.fixes.memory.store import process_locks
from unstarve.fixes.memory.store import rank_sharing as ranks
from unstarve.fixes.memory.store.cache_key import key_from
from unstarve.fixes.memory.store.sample_store import MISSING, ROW, Store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux")

FORK = multiprocessing.get_context("fork")
KEY = key_from("same", 40)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Rank]]:
    with ranks_in(tmp_path) as start:
        yield start


@pytest.fixture
def label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which ranks meet, which need not wait long for an answer."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", str(tmp_path / "log"))
    monkeypatch.setattr(process_locks, "ANSWER_S", 0.2)
    return ranks._label(KEY)


@contextlib.contextmanager
def bound(label: str, backlog: int | None) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{label}")
        if backlog is not None:
            listener.listen(backlog)
        yield listener


def told_by_one_that_goes_on_alone(start: Callable[..., Rank]) -> str:
    """Start a rank under the name that is taken; what it warns of."""
    rank = start(1, key="same")
    assert rank.answer() == "cached"
    assert rank.ask("right") is True
    (told,) = rank.ask("warned")
    assert rank.end() == 0
    assert told.startswith("this rank fills its own cache instead of sharing one: ")
    return str(told)


@pytest.mark.parametrize("backlog", [None, 0, 100], ids=["deaf", "busy", "silent"])
def test_a_name_that_a_stranger_holds_is_not_waited_for(
    label: str, start: Callable[..., Rank], backlog: int | None
) -> None:
    with bound(label, backlog), socket.socket(socket.AF_UNIX) as queued:
        if backlog == 0:
            queued.connect(f"\0{label}")  # there is no room for a second
        told = told_by_one_that_goes_on_alone(start)
    assert ("which should make the shared cache, does not" if backlog == 100 else "does not answer") in told


def test_another_users_process_is_not_trusted(
    label: str, start: Callable[..., Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    us, them = os.geteuid() + 1, os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us)
    assert ranks._label(KEY) != label  # no two users meet by accident
    with bound(ranks._label(KEY), 100):
        assert f"a process of user {them} holds the name" in told_by_one_that_goes_on_alone(start)


def test_one_that_hangs_up_at_once_is_not_asked_for_ever(label: str, start: Callable[..., Rank]) -> None:
    with bound(label, 100) as listener:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert "does not answer" in told_by_one_that_goes_on_alone(start)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(180)


@pytest.mark.parametrize("kind", ["pipe", "empty", "junk", "nothing"])
def test_garbage_is_not_taken_for_a_region(label: str, start: Callable[..., Rank], kind: str) -> None:
    with contextlib.ExitStack() as stack:

        def owned(fd: int) -> int:
            stack.callback(os.close, fd)
            return fd

        if kind == "pipe":
            number, _ = map(owned, os.pipe())
        elif kind == "nothing":
            number = 1 << 20
        else:
            number = owned(os.memfd_create("garbage"))
            os.write(number, b"" if kind == "empty" else os.urandom(10_000))
        owned(os.memfd_create(f"{label}-{number}"))
        with bound(label, 100):
            told = told_by_one_that_goes_on_alone(start)
    expected = {"junk": "not the cache of this dataset", "nothing": "does not answer"}
    assert expected.get(kind, "shares something that is not a cache") in told


class Owner:
    """A process that makes a region, which takes until it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = FORK.Event(), FORK.Event()
        self.process = FORK.Process(target=self._run, daemon=True)
        self.process.start()
        assert self.begun.wait(180)

    def _run(self) -> None:
        region = ranks.shared(KEY, self._make)
        assert region is not None
        signal.pause()

    def _make(self) -> SharedRegion:
        self.begun.set()
        self.go_on.wait()
        region = anonymous(4096)
        region.write(0, b"made")
        return region


@pytest.fixture
def owner(label: str) -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.process.kill()
    owner.process.join()


def made_here() -> SharedRegion:
    region = anonymous(4096)
    region.write(0, b"here")
    return region


def test_an_owner_that_takes_long_is_waited_for(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = ranks._sign_of

    def counted(pid: int, label: str) -> str | None:
        sign = real(pid, label)
        looks.append(sign)
        if len(looks) == 100:  # five times as long as one who says nothing would be waited for
            owner.go_on.set()
        return sign

    monkeypatch.setattr(ranks, "_sign_of", counted)
    region = ranks.shared(KEY, made_here)
    assert region is not None
    assert region.read(0, 4) == b"made"
    assert set(looks) - {None} >= {"making"}
    assert len(looks) >= 100


def test_an_owner_that_is_stopped_is_not_waited_for(owner: Owner) -> None:
    os.kill(owner.process.pid or 0, signal.SIGSTOP)
    with pytest.warns(UserWarning, match=r"process \d+, which should make the shared cache, is stopped"):
        assert ranks.shared(KEY, made_here) is None


def test_an_owner_that_dies_leaves_its_name_to_the_next(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ranks._sign_of

    def killed(pid: int, label: str) -> str | None:
        sign = real(pid, label)
        os.kill(pid, signal.SIGKILL)
        return sign

    monkeypatch.setattr(ranks, "_sign_of", killed)
    region = ranks.shared(KEY, made_here)
    assert region is not None
    assert region.read(0, 4) == b"here"


# Ranks that are stopped while they fill


def test_the_others_fill_what_a_stopped_rank_was_at(
    tmp_path: Path, start: Callable[..., Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_locks, "STALLED_S", 0.3)
    stopped = start(0, 150, 0.02, key="same")
    wait_for(lambda: reads(tmp_path).total() > 10)
    os.kill(stopped.process.pid or 0, signal.SIGSTOP)
    other = start(1, 150, key="same")
    assert other.answer() == "cached"
    assert other.ask("right") is True
    assert sorted(reads(tmp_path)) == list(range(150))
    os.kill(stopped.process.pid or 0, signal.SIGCONT)
    assert stopped.answer() == "cached"
    assert stopped.ask("right") is True
    assert stopped.ask("inode") == other.ask("inode")
    assert stopped.end() == other.end() == 0


def hold(store: Store, held: Any, forever: Any) -> None:
    with store._writing:
        held.set()
        forever.wait()


def test_a_lock_that_is_never_given_back_leaves_samples_to_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = CachedDataset(Logged(tmp_path / "log", 40), fill="lazy")
    store: Store = cached._held._store  # type: ignore[union-attr] # a dataset's
    held = FORK.Event()
    holder = FORK.Process(target=hold, args=(store, held, FORK.Event()))
    holder.start()
    assert held.wait(180)
    monkeypatch.setattr(process_locks, "STALLED_S", 0.2)
    try:
        assert int(cached[5][0][3]) == 5
        monkeypatch.setattr(process_locks, "STALLED_S", 1e9)  # from now on nobody waits
        assert [label for _, label in cached.__getitems__([5, 6, 7])] == [5, 6, 7]
        assert store.states[5] == MISSING
    finally:
        holder.kill()
        holder.join()
    assert int(cached[5][0][3]) == 5
    assert store.states[5] == ROW
