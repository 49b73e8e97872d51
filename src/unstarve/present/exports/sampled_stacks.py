"""A run's samples of its own stacks → folded lines, as flame graphs are drawn from them.

worker;fetch;images.py:12 decode 1250
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

from unstarve.model import Run


def sampled_stacks(run: Run) -> Iterator[str]:
    """One line per function: the process, the part of the work, the function and its milliseconds."""
    spent: Counter[str] = Counter()
    for process in run.processes:
        who = "worker" if process.worker else "training"
        for found in process.sampled:
            where = f"{PurePath(found.file).name}:{found.line}" if found.line else found.file
            path = (who, found.place, f"{where} {found.function}")
            spent[";".join(" ".join(name.replace(";", ",").split()) for name in path)] += round(
                found.seconds * 1e3
            )
    for path_text, milliseconds in spent.most_common():
        if milliseconds > 0:
            yield f"{path_text} {milliseconds}"
