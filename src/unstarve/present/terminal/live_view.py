"""The view that `unstarve top` draws: lines that fit the screen, cheap to make every second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath

from rich.text import Text

from unstarve.model import (
    Cause,
    Doing,
    Live,
    LoaderNow,
    MemoryNow,
    RunState,
    TrainerNow,
    Verdict,
    WorkerNow,
)
from unstarve.present.terminal.report_card import COLOURS
from unstarve.present.terminal.screen import for_screen
from unstarve.words import clock, percent, rate, size, workers

_LABEL = 12
_BAR = 20
_LEVELS = "▁▂▃▄▅▆▇█"
_DIM = "bright_black"
_SMALLEST_PART = 0.005
_KEYS = (
    ("q", "quit; training continues"),
    ("p, space", "pause, resume"),
    ("w", "workers: by number, busiest first, hidden"),
    ("tab, → ←", "next or previous loader or rank"),
    ("?, h", "this help"),
)
_MEANS = (
    "waiting, host waits: training is blocked in next(loader)",
    "GPU starved: the GPU has nothing to do until the next batch, by its own clock",
    "queue: batches ready when training asks for one; if it is empty, workers are too slow",
    "busy: share of its time a worker makes batches, and what takes most of it: cpu, disk,",
    "remote (network, a lock, a sleep), contention (no core was free), collate, handoff",
)


_DOES = {
    Doing.FETCH: "fetching",
    Doing.COLLATE: "collating",
    Doing.SEND: "sending",
    Doing.WAIT: "nothing to do",
}
_WORKER_BAR = 8
_WIDE = 76
"""Columns from which there is room for a worker's pid and bar."""


class WorkerOrder(StrEnum):
    """The order of the workers, if they are shown."""

    PLACE = "by number"
    BUSIEST = "busiest first"
    NONE = "hidden"


@dataclass(frozen=True, slots=True)
class Look:
    """What the user has chosen to see."""

    page: int | None = None
    """Index into `pages`; None: the training loader of the rank that waits most."""
    order: WorkerOrder = WorkerOrder.PLACE
    helps: bool = False
    paused: bool = False
    history: Sequence[float | None] = field(default_factory=tuple)
    """The first line's shares at earlier updates, newest last."""
    keys: bool = False
    """Whether key presses are read."""


def pages(live: Live) -> list[tuple[TrainerNow, LoaderNow]]:
    """All loaders of all ranks, one per page."""
    return [(trainer, loader) for trainer in live.trainers for loader in trainer.loaders]


def live_view(live: Live, look: Look, width: int, height: int) -> Text:
    """The whole view: at most `height` lines of at most `width` columns."""
    live = for_screen(live)
    head = [_title(live, look), Text()]
    if look.helps:
        lines = head + _help()
    elif not live.trainers:
        lines = [*head, _nothing_yet(live)]
    else:
        trainer, loader = _chosen(live, look)
        lines = head + _numbers(live, trainer, loader, look, width)
        lines += [Text(), _loader_line(trainer, loader, live, look)]
        room = height - len(lines) - 3
        lines += _worker_lines(loader.workers, look.order, room, width)
    if look.keys:
        lines = [
            *lines[: height - 2],
            Text(),
            Text("q quit  ? help  p pause  w workers  tab next loader", _DIM),
        ]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines[:height])


def verdict_line(state: RunState, exit_code: int | None, verdict: Verdict | None) -> Text:
    """How a run ended, and its verdict."""
    ended = "the run died" if state is RunState.DIED else f"the run has ended, exit code {exit_code}"
    if verdict is None:
        return Text(ended)
    label = Text(f" {verdict.state.upper()} ", f"bold reverse {COLOURS[verdict.state]}")
    return Text.assemble(ended, ": ", label, " ", for_screen(verdict).headline)


def _chosen(live: Live, look: Look) -> tuple[TrainerNow, LoaderNow]:
    if look.page is not None:
        every = pages(live)
        return every[look.page % len(every)]
    trainer = max(live.trainers, key=lambda t: t.wait_share or 0.0)
    return trainer, trainer.loader


def _title(live: Live, look: Look) -> Text:
    state = "paused" if look.paused else live.state.value
    title = Text.assemble(("unstarve top", "bold"), f"  {PurePath(live.path).name}  ")
    title.append(f"{state} {clock(live.elapsed_s)}", "yellow" if look.paused else "default")
    return title.append(f"  {' '.join(live.command)}", _DIM)


def _numbers(live: Live, trainer: TrainerNow, loader: LoaderNow, look: Look, width: int) -> list[Text]:
    lines = [_waiting(live, trainer, look, width), _throughput(live, trainer, loader)]
    if loader.queue_depth is not None:
        room = loader.queue_room
        drawn = "" if not room else _bar(loader.queue_depth / room, min(room, _BAR)) + " "
        of_room = "" if room is None else f" of {room}"
        lines.append(_labelled("queue", f"{drawn}{loader.queue_depth:.1f}{of_room} batches ready"))
    if memory := _memory(live.memory if look.page is None else trainer.memory):
        lines.append(_labelled("memory", memory))
    return lines


def _waiting(live: Live, trainer: TrainerNow, look: Look, width: int) -> Text:
    """The share that the verdict is about: the GPU's where its clock is known; then the host's."""
    on_cpu, stall = trainer.device == "cpu", trainer.stall_share
    label = "waiting" if on_cpu else "host waits" if stall is None else "GPU starved"
    share = trainer.wait_share if on_cpu or stall is None else stall
    if share is None:
        return _labelled(label, "not known yet")
    colour = COLOURS[live.looks] if live.looks is not None else "default"
    line = _labelled(label, "").append(_bar(share, _BAR), colour)
    line.append(f" {percent(share)}", f"bold {colour}")
    if not on_cpu and stall is None:
        line.append(", GPU starved: not known")
    elif not on_cpu and trainer.wait_share is not None:
        line.append(f", host waits {percent(trainer.wait_share)}")
    if trainer.since_s is not None and trainer.doing is not None:
        doing = "waiting" if trainer.doing is Doing.WAIT else "in one step"
        line.append(f", {doing} for {clock(trainer.since_s)}", "bold")
    room = width - line.cell_len - 3
    if len(look.history) > 1 and room >= 8:
        line.append("   " + _sparkline(look.history[-min(room, 24) :]), _DIM)
    return line


def _throughput(live: Live, trainer: TrainerNow, loader: LoaderNow) -> Text:
    parts = []
    if loader.steps_per_s is not None:
        parts.append(f"{rate(loader.steps_per_s)} steps/s")
    together = len(live.trainers) > 1 and loader is trainer.loader
    samples = live.samples_per_s if together else loader.samples_per_s
    if samples is not None:
        ranks = f" of {len(live.trainers)} ranks" if together else ""
        parts.append(f"{rate(samples)} samples/s{ranks}")
    parts.append(f"{loader.steps:,} steps so far")
    if loader.epoch:
        parts.append(f"epoch {loader.epoch}")
    return _labelled("throughput", ", ".join(parts))


def _memory(memory: MemoryNow) -> str:
    known = [("main", memory.main_bytes), ("workers", memory.workers_bytes), ("/dev/shm", memory.shm_bytes)]
    parts = [f"{name} {size(count)}" for name, count in known if count is not None]
    if memory.shm_bytes is not None and memory.shm_total_bytes:
        parts[-1] += f" of {size(memory.shm_total_bytes)}"
    return ", ".join(parts)


def _loader_line(trainer: TrainerNow, loader: LoaderNow, live: Live, look: Look) -> Text:
    line = Text.assemble((loader.name, "bold"))
    line.append(f" {loader.where}", _DIM)
    if len(live.trainers) > 1:
        line.append(f"  rank {trainer.rank}", "bold")
    count = len(pages(live))
    if count > 1:
        at = next(i for i, page in enumerate(pages(live)) if page[1] is loader)
        line.append(f"  {at + 1}/{count}", _DIM)
    line.append(f"  {workers(len(loader.workers))}")
    if loader.parts:
        line.append(f"; time per batch: {_parts(loader.parts)}", "default")
    return line


def _parts(parts: Mapping[Cause, float]) -> str:
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    return ", ".join(f"{cause.value} {percent(value)}" for cause, value in largest if value >= _SMALLEST_PART)


def _nothing_yet(live: Live) -> Text:
    if live.state is RunState.RUNNING:
        return Text("no batch yet: the command is starting, or making its first batch")
    return Text("the run had no batch")


def _help() -> list[Text]:
    keys = [Text(f"  {key:<{_LABEL}}{means}") for key, means in _KEYS]
    return [*keys, Text(), *(Text(f"  {line}", _DIM) for line in _MEANS)]


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{_LABEL}}", _DIM), text)


def _sparkline(values: Sequence[float | None]) -> str:
    top = len(_LEVELS) - 1
    return "".join(" " if v is None else _LEVELS[round(max(0.0, min(v, 1.0)) * top)] for v in values)


def _worker_lines(crew: Sequence[WorkerNow], order: WorkerOrder, room: int, width: int) -> list[Text]:
    """A line per worker under a heading; at most `room` lines in all."""
    if order is WorkerOrder.NONE or not crew or room < 2:
        return []
    shown = list(crew)
    if order is WorkerOrder.BUSIEST:
        shown.sort(key=lambda worker: -(worker.busy_share or 0.0))
    wide = width >= _WIDE
    busy = "busy".ljust(_WORKER_BAR + 6) if wide else "  busy"
    heading = _line("#", "pid" if wide else "", "doing", busy, "mostly", "per s", "memory")
    most = room - 1 if len(shown) < room else room - 2
    lines = [Text(heading, _DIM), *(_worker(worker, wide=wide) for worker in shown[:most])]
    if len(shown) > most:
        lines.append(Text(f"and {len(shown) - most} more ({order.value})", _DIM))
    return lines


def _worker(worker: WorkerNow, *, wide: bool) -> Text:
    does = "unknown" if worker.doing is None else _DOES.get(worker.doing, worker.doing.value)
    if worker.since_s is not None:
        does += f" {clock(worker.since_s)}"
    busy = worker.busy_share or 0.0
    line = _line(
        str(worker.place),
        str(worker.pid) if wide else "",
        does,
        (_bar(busy, _WORKER_BAR) if wide else "") + f"{percent(busy):>6}",
        "–" if worker.waits_for is None else worker.waits_for.value,
        "–" if worker.batches_per_s is None else rate(worker.batches_per_s),
        "–" if worker.rss_bytes is None else size(worker.rss_bytes),
    )
    return Text(line, _DIM if worker.doing in (None, Doing.WAIT) else "default")


def _line(place: str, pid: str, does: str, busy: str, mostly: str, per_s: str, memory: str) -> str:
    who = f"{place:<4}{pid:<9}" if pid else f"{place:<4}"
    return f"{who}{does:<21} {busy}  {mostly:<11}{per_s:>6} {memory:>8}"


def _bar(value: float, width: int) -> str:
    """A share as a bar of `width` characters."""
    filled = round(max(0.0, min(value, 1.0)) * width)
    return "█" * filled + "░" * (width - filled)
