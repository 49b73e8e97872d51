"""How fast the machine was, as the launcher adds it to the run file."""

from __future__ import annotations

import contextlib
from pathlib import Path

from unstarve.model import MachineTimes
from unstarve.record import format as f
from unstarve.record.run_file import parts_folder
from unstarve.record.writer import Writer


def keep_machine(run: Path, times: MachineTimes | None) -> None:
    """Add the machine's times to a run. Call it before the parts are folded into the run file."""
    if times is None:
        return
    with contextlib.suppress(OSError):  # the command has removed the folder, as the end of the run will say
        writer = Writer(parts_folder(run) / f"machine{f.PART_SUFFIX}")
        writer.meta("machine", **times._asdict())
        writer.close()
