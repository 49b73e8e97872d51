"""From a picture to what the run file keeps of a hang."""

from __future__ import annotations

from unstarve.model.stuck import Hang, Picture
from unstarve.present.terminal.stuck_text import task_words, wait_words, who

_MOST_TEXT = 8000


def hang_of(picture: Picture, ended: str, text: str = "", timeout_s: float | None = None) -> Hang:
    """The hang that a picture shows."""
    culprit = picture.culprit
    place = culprit.place
    return Hang(
        loader=picture.loader or "the loader",
        where=picture.where,
        epoch=picture.epoch,
        batch=picture.batch,
        waited_s=picture.waited_s or 0.0,
        ended=ended,
        process=who(culprit).replace("The", "the").replace("Worker", "worker"),
        pid=culprit.pid,
        doing="" if culprit.task is None else task_words(culprit.task),
        wait=wait_words(culprit),
        file=None if place is None else place.file,
        line=None if place is None else place.line,
        source="" if place is None else place.source,
        text=text[:_MOST_TEXT],
        timeout_s=timeout_s,
    )
