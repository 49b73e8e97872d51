"""The live view of a training fits the screen and says what is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstarve.model import (
    Cause,
    Doing,
    Live,
    LoaderNow,
    MemoryNow,
    RunState,
    State,
    TrainerNow,
    Verdict,
    WorkerNow,
)
from unstarve.present.exports import report_json as json_view
from unstarve.present.terminal.live_view import Look, WorkerOrder, live_view, verdict_line

MEMORY = MemoryNow(2_000_000_000, 724_000_000, 300_000, 64_000_000_000)


def worker(place: int, **more: object) -> WorkerNow:
    known = WorkerNow(
        place, 4000 + place, Doing.FETCH, None, Cause.REMOTE, 0.5, {Cause.REMOTE: 0.5}, 14.0, 10**8
    )
    return replace(known, **more)  # type: ignore[arg-type]  # fields of the dataclass


def loader(number: int = 0, name: str = "train", workers: int = 2, **more: object) -> LoaderNow:
    known = LoaderNow(
        number, name, "train.py:3", 1, 90, 1234, 29.1, 466.0, 0.7, 0.5, 4,
        {Cause.REMOTE: 0.9, Cause.CPU: 0.1}, tuple(worker(place) for place in range(workers)),
    )  # fmt: skip
    return replace(known, **more)  # type: ignore[arg-type]  # fields of the dataclass


def trainer(*loaders: LoaderNow, rank: int | None = None, **more: object) -> TrainerNow:
    known = TrainerNow(rank, "here", 1, "cpu", Doing.WAIT, None, 0, 0.7, 0.7, loaders or (loader(),), MEMORY)
    return replace(known, **more)  # type: ignore[arg-type]  # fields of the dataclass


def live(*trainers: TrainerNow, **more: object) -> Live:
    known = Live(
        "some/run.unstarve", ("train.py", "--lr", "1"), RunState.RUNNING, None, 0.0, 187.0, 5.0, 1234, 29.1,
        466.0, 0.7, 0.7, 0.5, MEMORY, 0.1, State.STARVED, trainers or (trainer(),),
    )  # fmt: skip
    return replace(known, **more)  # type: ignore[arg-type]  # fields of the dataclass


def drawn(shown: Live, look: Look | None = None, width: int = 80, height: int = 24) -> list[str]:
    lines = live_view(shown, look or Look(), width, height).plain.split("\n")
    assert all(len(line) <= width for line in lines), lines
    assert len(lines) <= height
    return lines


def test_the_numbers_that_people_look_for_are_there() -> None:
    text = "\n".join(drawn(live()))
    for part in (
        "run.unstarve  running 3:07  train.py --lr 1",
        "70%",
        "29.1 steps/s, 466 samples/s, 1,234 steps so far, epoch 1",
        "0.5 of 4 batches ready",
        "main 2.0 GB, workers 724 MB, /dev/shm 300 KB of 64.0 GB",
        "2 workers; time per batch: remote 90%, cpu 10%",
    ):
        assert part in text
    assert drawn(live())[-1].split() == [
        "1",
        "4001",
        "fetching",
        "████░░░░",
        "50%",
        "remote",
        "14.0",
        "100",
        "MB",
    ]


def test_what_is_not_known_is_left_out() -> None:
    bare = loader(
        steps_per_s=None,
        samples_per_s=None,
        queue_depth=None,
        queue_room=None,
        parts={},
        epoch=None,
        workers=0,
    )
    unknown = trainer(bare, wait_share=None, stall_share=None, memory=MemoryNow())
    text = "\n".join(drawn(live(unknown, memory=MemoryNow(), looks=None)))
    assert "not known yet" in text
    assert "1,234 steps so far" in text
    assert "None" not in text
    for absent in ("queue", "memory", "per s"):
        assert absent not in text


def test_before_the_first_batch_it_says_so() -> None:
    text = "\n".join(drawn(replace(live(), trainers=())))
    assert "no batch yet" in text


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("height", [3, 8, 24, 50])
@pytest.mark.parametrize("helps", [False, True])
def test_it_fits_any_screen(width: int, height: int, helps: bool) -> None:
    many = live(trainer(loader(workers=64, name="a" * 300)), command=("x" * 500,))
    look = Look(keys=True, helps=helps, history=(0.1, None, 1.0) * 20)
    lines = drawn(many, look, width, height)
    if height >= 8:
        assert lines[-1].startswith("q quit  ? help")


def test_of_many_workers_those_that_fit_are_shown_and_the_others_counted() -> None:
    lines = drawn(live(trainer(loader(workers=64))), height=24)
    shown = [line for line in lines if "fetching" in line]
    assert f"and {64 - len(shown)} more (by number)" in lines


def test_the_busiest_workers_come_first_or_none_at_all() -> None:
    one = replace(loader(), workers=(worker(0, busy_share=0.1), worker(1, busy_share=0.9)))
    assert drawn(live(trainer(one)), Look(order=WorkerOrder.BUSIEST))[-1].startswith("0 ")
    assert not any("fetching" in line for line in drawn(live(trainer(one)), Look(order=WorkerOrder.NONE)))


def test_a_worker_that_hangs_says_for_how_long_and_one_that_is_silent_is_not_guessed_at() -> None:
    hanging = worker(0, since_s=75.0)
    silent = worker(1, doing=None, waits_for=None, busy_share=None, batches_per_s=None, rss_bytes=None)
    lines = drawn(live(trainer(replace(loader(), workers=(hanging, silent)))))
    assert "fetching 1:15" in lines[-2]
    assert "unknown" in lines[-1]
    assert "–" in lines[-1]


def test_a_wait_that_lasts_and_a_device_that_starves_are_told() -> None:
    gpu = trainer(device="NVIDIA H200", stall_share=0.25, since_s=12.0)
    text = "\n".join(drawn(live(gpu), width=100))
    assert "GPU starved █████" in text
    assert "25%, host waits 70%, waiting for 12 s" in text
    blind = "\n".join(drawn(live(replace(gpu, stall_share=None)), width=100))
    assert "host waits  ██████████████" in blind
    assert "70%, GPU starved: not known" in blind


def test_each_loader_of_each_rank_can_be_looked_at() -> None:
    ranks = [trainer(loader(), loader(1, "val", 0), rank=rank) for rank in range(2)]
    ranks[1] = replace(ranks[1], wait_share=0.9)
    shown = live(*ranks)
    assert any("train train.py:3  rank 1  3/4" in line for line in drawn(shown))
    assert any("466 samples/s of 2 ranks" in line for line in drawn(shown))
    assert any("val train.py:3  rank 0  2/4" in line for line in drawn(shown, Look(page=1)))


def test_names_cannot_move_the_cursor() -> None:
    hostile = live(trainer(loader(name="\x1b[2J\x07evil")), command=("\x1b]0;title\x07", "[red]x[/red]"))
    text = "\n".join(drawn(hostile))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]x[/red]" in text


def test_the_end_is_one_line_with_the_verdict() -> None:
    verdict = Verdict(State.STARVED, Cause.REMOTE, "Training waits.", ())
    assert (
        verdict_line(RunState.FINISHED, 3, verdict).plain
        == "the run has ended, exit code 3:  STARVED  Training waits."
    )
    assert verdict_line(RunState.DIED, None, None).plain == "the run died"


def test_as_json_it_is_plain_data() -> None:
    plain = json_view.live(live())
    assert plain["schema"] == "unstarve.live/1"
    assert plain["trainers"][0]["loaders"][0]["workers"][0]["waits_for"] == "remote"
    assert plain["command"] == ["train.py", "--lr", "1"]
