"""The rule for a training whose batches unstarve could not see: the line that shows them."""

from __future__ import annotations

import re
from pathlib import PurePath

from unstarve.model import Advice, Diagnosis, UnseenBatches
from unstarve.words import percent

_LITTLE = 0.01
_PLACES = {"function": "below its definition", "method": "above its definition", "generator": "in the loop"}


def watch_batches(d: Diagnosis) -> Advice | None:
    """A loop that gets its batches from a function of the user: wrap that function."""
    found = d.unseen_batches
    if found is None:
        return None
    return Advice(
        "watch-batches",
        f"Let unstarve see your batches: wrap {found.name} {_PLACES.get(found.kind, '')}",
        f"the training loop gets its batches from {found.name}, {_spent(found.share)}",
        {},
        None,
        f"import unstarve\n{_line(found)}",
    )


def _spent(share: float) -> str:
    if share < _LITTLE:
        return "which takes next to no time"
    return f"where it spends {percent(share)} of its time"


def _line(found: UnseenBatches) -> str:
    """The line to write, and where."""
    place = f"{PurePath(found.file).name}:{found.line}"
    last = found.name.rpartition(".")[2]
    if found.kind == "function":
        return f"{last} = unstarve.watch({last})   # {place}"
    if found.kind == "method":
        return f"@unstarve.watch   # {place}"
    return f"{_wrapped(found.text, found.name)}   # {place}"


def _wrapped(text: str, name: str) -> str:
    """``for x in batches(data):`` → ``for x in unstarve.watch(batches(data)):``."""
    start = re.search(rf"(?<![\w.]){re.escape(name)}\(", text)
    if start is not None:
        depth = 0
        for at in range(start.end() - 1, len(text)):
            depth += (text[at] == "(") - (text[at] == ")")
            if depth == 0:
                return (
                    f"{text[: start.start()]}unstarve.watch({text[start.start() : at + 1]}){text[at + 1 :]}"
                )
    return f"for batch in unstarve.watch({name}(…)):"
