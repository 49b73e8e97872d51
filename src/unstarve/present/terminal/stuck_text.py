"""A look at stuck processes as plain text: one block, the culprit first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from unstarve.model.stuck import Frame, Inspection, KernelWait, Picture, ProcessPicture, Stage, Task
from unstarve.words import MOST_LETTERS, clock, ordinal, printable

_MOST_FRAMES = 8
_MOST_THREADS = 4
_MOST_FILES = 5
_PRIVATE = "inside this process"
NARROW = 80


def hang_text(picture: Picture, hang_after_s: float, *, raises: bool = False, width: int = NARROW) -> str:
    """The report of a hang."""
    what = f"no batch from {_loader(picture)} for {clock(picture.waited_s or hang_after_s)}"
    if picture.begins:
        what = f"iter() of a loader has not returned for {clock(picture.waited_s or hang_after_s)}"
    elif picture.batch is not None:
        what += f": training waits for batch {picture.batch} of epoch {picture.epoch}"
    end = (
        "Training is ended because of --on-hang=raise."
        if raises
        else "Training is left alone: it goes on as soon as the batch comes."
    )
    lines = [
        *_wrapped(f"unstarve: {what}.", width, ""),
        *picture_lines(picture, width),
        *_wrapped(end, width, "  "),
    ]
    return "\n".join(lines) + "\n"


def timeout_text(picture: Picture, timeout_s: float, *, width: int = NARROW) -> str:
    """The report of a loader's own timeout: where its workers were."""
    what = f"{_loader(picture)} gave no batch within its timeout of {clock(timeout_s)}"
    lines = [*_wrapped(f"unstarve: {what}.", width, ""), *picture_lines(picture, width, workers_only=True)]
    return "\n".join(lines) + "\n"


def inspection_text(found: Inspection, width: int = NARROW) -> str:
    """What `unstarve inspect` prints."""
    lines: list[str] = []
    for picture in found.pictures:
        if picture.waited_s is not None:
            what = "iter() has not returned" if picture.begins else f"{_loader(picture)} has given no batch"
            batch = "" if picture.batch is None else f" (batch {picture.batch} of epoch {picture.epoch})"
            lines += _wrapped(f"{what} for {clock(picture.waited_s)}{batch}.", width, "")
        elif picture.training.known:
            lines += _wrapped("Training does not wait for a batch.", width, "")
        lines += picture_lines(picture, width)
    if found.note is not None:
        lines += _wrapped(found.note, width, "")
    return "\n".join(lines) + "\n"


def picture_lines(picture: Picture, width: int = NARROW, *, workers_only: bool = False) -> Iterator[str]:
    """All processes of a picture: the culprit, then the others."""
    culprit = picture.culprit
    yield from process_lines(culprit, width)
    idle = [one for one in picture.workers if one.is_idle and one is not culprit]
    for one in picture.workers if workers_only else (*picture.workers, picture.training):
        if one is not culprit and one not in idle:
            yield from process_lines(one, width)
    if idle:
        names = _and([str(one.worker) for one in idle])
        one_waits = len(idle) == 1
        yield from _wrapped(
            f"Worker{'' if one_waits else 's'} {names} wait{'s' if one_waits else ''} for something to do.",
            width,
            "  ",
        )


def process_lines(one: ProcessPicture, width: int = NARROW) -> Iterator[str]:
    """One process: what it does, what it waits for, its stack."""
    yield from _wrapped(f"{who(one)} (pid {one.pid}){_does(one)}.", width, "  ")
    if one.wait is not None:
        yield from _wrapped(f"It {wait_words(one)}.", width, "    ")
    if one.files:
        more = f" and {len(one.files) - _MOST_FILES} more" if len(one.files) > _MOST_FILES else ""
        yield from _wrapped(f"It has open: {', '.join(one.files[:_MOST_FILES])}{more}.", width, "    ")
    if one.no_frames is not None:
        yield from _wrapped(f"No stack: {one.no_frames}.", width, "    ")
    yield from _frames(one.frames, width, "      ")
    for thread in one.threads[:_MOST_THREADS]:
        yield "    A thread that makes batches:" if thread.makes_batches else "    Another thread:"
        yield from _frames(thread.frames, width, "      ")


def who(one: ProcessPicture) -> str:
    """``Worker 2``, ``The training process``."""
    if not one.known:
        return "Process"
    return "The training process" if one.worker is None else f"Worker {one.worker}"


def _does(one: ProcessPicture) -> str:
    place = one.place
    at = (
        ""
        if place is None
        else f" is in {place.where}" + (f" `{_cut(place.source, 60)}`" if place.source else "")
    )
    doing = "" if one.task is None else task_words(one.task, with_time=True)
    if at and doing:
        return f"{at}, {doing}"
    return at or (f" is {doing}" if doing else f" runs {one.command}" if one.command else " is there")


def task_words(task: Task, *, with_time: bool = False) -> str:
    """``fetching sample 131 (4th of 32) of batch 4 for 60 s``."""
    if task.stage is Stage.IDLE:
        return "waiting for something to do"
    if task.stage is Stage.START:
        return "starting"
    since = f" for {clock(task.since_s)}" if with_time and task.since_s is not None else ""
    batch = "a batch" if task.number is None or task.number < 0 else f"batch {task.number}"
    if task.stage is Stage.COLLATE:
        return f"collating {batch}{_samples(task)}{since}"
    if task.stage is Stage.SEND:
        return f"sending {batch}{_samples(task)}{since}"
    if task.sample is None:
        return f"fetching {batch}{_samples(task)}{since}"
    place = task.indices.index(task.sample) + 1 if task.sample in task.indices else None
    which = f" ({ordinal(place)} of {task.count})" if place is not None and task.count > 1 else ""
    return f"fetching sample {task.sample}{which} of {batch}{since}"


def _samples(task: Task) -> str:
    """`` (samples 4, 5, 6, …)``: the first ones, or the range if they follow each other."""
    known = task.indices
    if not known:
        return ""
    if len(known) == 1 and task.count == 1:
        return f" (sample {known[0]})"
    if len(known) == task.count and list(known) == list(range(known[0], known[0] + len(known))):
        return f" (samples {known[0]}…{known[-1]})"
    shown = ", ".join(map(str, known[:4]))
    return f" (samples {shown}{', …' if task.count > 4 else ''})"


def wait_words(one: ProcessPicture) -> str:
    """``waits for a lock on the file a.lock (flock), held by process 7 (python a.py)``."""
    wait = one.wait
    if wait is None:
        return "could not be read"
    call = f" ({wait.call})" if wait.call and wait.call not in wait.words else ""
    held = _held(wait)
    alone = ""
    if one.worker is not None and wait.words.endswith(_PRIVATE) and one.other_threads == 0:
        alone = "; no other Python thread of this worker is left to release it"
    return f"{wait.words}{call}{held}{alone}"


def _held(wait: KernelWait) -> str:
    if not wait.holders:
        return ""
    names = _and(wait.holders[:3])
    return f", held by {names}" if "lock" in wait.words else f"; its other end is open in {names}"


def _frames(frames: Sequence[Frame], width: int, indent: str) -> Iterator[str]:
    for one in frames[:_MOST_FRAMES]:
        line = f"{indent}{one.where} in {one.function}" + (f": {one.source}" if one.source else "")
        yield _cut(printable(line), width)
    if len(frames) > _MOST_FRAMES:
        yield f"{indent}… {len(frames) - _MOST_FRAMES} more"


def _loader(picture: Picture) -> str:
    return f"{picture.loader} ({picture.where})" if picture.where else f"{picture.loader}"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        printable(text, MOST_LETTERS),
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
