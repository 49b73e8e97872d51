"""Threads that fetch end when there is nothing to fetch, also after a Ctrl-C at the worst moment."""

from __future__ import annotations

import time
from queue import SimpleQueue
from typing import Any

import pytest

from unstarve.fixes.datasets.prefetch import fetch_threads as pool_module
from unstarve.fixes.datasets.prefetch.fetch_threads import FetchTask, ThreadPool

LONGEST_S = 60.0


class Interrupted(SimpleQueue):  # type: ignore[type-arg]  # as its base is used
    """A queue in whose first put a Ctrl-C comes, before or after the item is in."""

    moment: str | None = None

    def put(self, item: Any, *args: Any) -> None:
        moment, self.moment = self.moment, None
        if moment == "before":
            raise KeyboardInterrupt
        super().put(item, *args)
        if moment == "after":
            raise KeyboardInterrupt


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_ctrl_c_while_a_task_is_put_in_leaves_no_thread_behind(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "IDLE_S", 0.05)
    monkeypatch.setattr(pool_module, "SimpleQueue", Interrupted)
    pool = ThreadPool(2)
    wake: Any = pool._wake
    wake.moment = moment
    first, second = FetchTask(lambda unit: unit, 1), FetchTask(lambda unit: unit, 2)
    with pytest.raises(KeyboardInterrupt):
        pool.submit(first)
    pool.submit(second)
    assert (second.result(), first.result()) == (2, 1)
    pool.join(time.monotonic() + LONGEST_S)
    assert pool._threads == set()


def test_a_thread_that_cannot_be_started_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: Any) -> None:
        raise KeyboardInterrupt

    pool = ThreadPool(2)
    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", start)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(FetchTask(lambda unit: unit, 1))
    task = FetchTask(lambda unit: unit, 2)
    pool.submit(task)
    assert task.result() == 2
