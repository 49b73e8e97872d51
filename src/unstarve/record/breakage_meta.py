"""What broke during a run, as the launcher adds it to the run file."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

from unstarve.model.stuck import Breakage
from unstarve.record import format as f
from unstarve.record.run_file import parts_folder
from unstarve.record.writer import Writer


def keep_breakage(run: Path, breakage: Breakage) -> None:
    """Add hangs and dead workers to a run. Call it before the parts are folded into the run file."""
    if breakage == Breakage():
        return
    with contextlib.suppress(OSError):  # the command has removed the folder, as the end of the run will say
        writer = Writer(parts_folder(run) / f"breakage{f.PART_SUFFIX}")
        for hang in breakage.hangs:
            writer.meta("hang", **dataclasses.asdict(hang))
        for death in breakage.deaths:
            writer.meta("death", **dataclasses.asdict(death))
        writer.close()
