"""Warn before `ideal` and `tune` that checkpoints are not worth keeping, and list the files written."""

from __future__ import annotations

from unstarve.launch.written_files import WrittenFiles

_MOST_SHOWN = 10
_ELSEWHERE = "if they would overwrite good ones, choose another output folder"

IDEAL_CAUTION = (
    f"training runs partly on replayed batches and ends early, so do not keep its checkpoints; {_ELSEWHERE}"
)
TUNE_CAUTION = (
    "training runs with changing loader settings and ends early, so do not keep its checkpoints;"
    f" {_ELSEWHERE}"
)
FINISH_CAUTION = (
    "training runs with changing loader settings, so its checkpoints may differ from those of an ordinary"
    f" run; {_ELSEWHERE}"
)


def written_meanwhile(written: WrittenFiles) -> str | None:
    """The files in a sentence; None if none were written."""
    if not written.names and written.complete:
        return None
    shown = [name if name.isprintable() else repr(name) for name in written.names[:_MOST_SHOWN]]
    more = f" … and {written.count - _MOST_SHOWN} more" if written.count > _MOST_SHOWN else ""
    unchecked = "" if written.complete else " (not all files below this folder were checked)"
    return f"Files written during the run: {', '.join(shown) or 'none found'}{more}{unchecked}"
