"""When a hang is reported, again, and over: on pages that are written by hand and a clock that is set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from unstarve.collect.stuck import state_page as p
from unstarve.collect.stuck.look import Wait
from unstarve.collect.stuck.state_page import SeenPage, StatePage
from unstarve.launch import hang_watch
from unstarve.launch.hang_watch import HangWatch
from unstarve.model.stuck import Picture, ProcessPicture

S = 1_000_000_000
START = 1000 * S


class Watched:
    """A training process whose page the test writes, and what the watch says about it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.page = StatePage(folder)
        self.page.tell_loader(0, name="train_loader", where="train.py:3")
        self.said: list[str] = []
        self.watch = HangWatch(folder, 60.0, say=self.said.append, look=self._picture, **options)
        self.now_ns = START

    def _picture(self, page: SeenPage, wait: Wait | None) -> Picture:
        assert wait is not None
        training = ProcessPicture(page.pid, None, "S")
        waited_s = (self.now_ns - wait.since_ns) / 1e9
        return Picture(training, loader="train_loader", epoch=wait.epoch, batch=wait.batch, waited_s=waited_s)

    def waits(self, batch: int, since_s: float = 0.0) -> None:
        self.page.waits(0, 0, batch, START + round(since_s * S))

    def at(self, seconds: float, *, looked: bool = True) -> list[str]:
        """What is said now; `looked`: the sampler of the process is at work."""
        self.now_ns = START + round(seconds * S)
        if looked:
            self.page.words[p.LOOKED] = self.now_ns
        self.said.clear()
        self.watch.look(self.now_ns)
        return list(self.said)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_wait_is_reported_once_at_its_deadline_and_again_when_it_has_doubled(watched: Watched) -> None:
    watched.waits(4)
    assert watched.at(59.9) == []
    (said,) = watched.at(60.1)
    first = "unstarve: no batch from train_loader for 1:00: training waits for batch 4 of epoch 0."
    assert " ".join(said.split()).startswith(first)
    assert watched.at(60.6) == watched.at(119) == []
    assert len(watched.at(120.3)) == 1
    assert watched.at(200) == []
    assert len(watched.at(241)) == 1
    assert [hang.ended for hang in watched.watch.hangs] == ["open"]


def test_a_line_says_when_the_batch_came(watched: Watched) -> None:
    watched.waits(4)
    watched.at(61)
    watched.waits(-1)
    watched.page.waits(-1, -1, -1, 0)
    assert watched.at(75) == ["unstarve: the batch came after 1:15; training goes on.\n"]
    (hang,) = watched.watch.hangs
    assert (hang.ended, hang.waited_s, hang.loader, hang.batch) == ("resolved", 75.0, "train_loader", 4)


def test_waits_for_one_batch_after_the_other_are_no_hang(watched: Watched) -> None:
    for batch in range(10):
        watched.waits(batch, since_s=40.0 * batch)
        assert watched.at(40.0 * batch + 39) == []


def test_a_long_step_is_no_hang(watched: Watched) -> None:
    watched.page.waits(-1, -1, -1, 0)
    assert watched.at(1000) == []


def test_an_iter_that_does_not_return_is_reported(watched: Watched) -> None:
    watched.page.words[p.BEGINS] = START
    assert len(watched.at(61, looked=False)) == 1
    watched.page.words[p.BEGINS] = 0
    assert watched.at(62) == ["unstarve: iter() returned after 1:02; training goes on.\n"]


@pytest.mark.parametrize("waits", [True, False])
def test_the_stack_decides_where_the_sampler_stands_still(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(hang_watch, "waits_by_stack", lambda page: asked.append(page.pid) or waits)
    watched.page.waits(-1, -1, -1, 0)
    watched.at(0)
    assert watched.at(50, looked=False) == []
    assert asked == []  # a signal is sent only when there is reason to
    assert len(watched.at(61, looked=False)) == waits
    assert watched.at(70, looked=False) == []
    assert asked == [os.getpid()]
    assert len(watched.at(125, looked=False)) == waits


def test_a_process_that_has_ended_has_no_hang_any_more(watched: Watched) -> None:
    watched.waits(4)
    watched.at(61)
    watched.page.remove()
    assert watched.at(90) == []
    (hang,) = watched.watch.hangs
    assert (hang.ended, hang.waited_s) == ("open", 90.0)


def test_raising_is_asked_for_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, raises=True)
    watched.page.words[p.RAISES] = 50
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(hang_watch.os, "kill", lambda *to: sent.append(to))
    watched.waits(4)
    (said,) = watched.at(61)
    assert sent == [(os.getpid(), 50)]
    assert watched.page.path is not None
    assert f"unstarve: {watched.page.path.with_suffix(p.HANG).read_text()}\n" == said
    assert "--on-hang=raise" in said
    assert watched.watch.hangs[0].ended == "raised"
