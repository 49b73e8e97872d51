"""Every engine for a thousand short epochs under all kinds of faults: nothing grows, every batch is right.

    python bench/soak.py [--minutes 60] [--epochs 1000] [--only NAME…] [--json FILE]

Epochs take turns: undisturbed, left early, the iterator dropped, Ctrl-C, a worker killed, descriptors at the
limit, /dev/shm full, the disk full. The last two need private file systems, which root and most users may
mount for their own processes. Each row of the table is a separate process. After a warm-up, and again after
the last epoch, its child processes, threads, descriptors, shared and resident memory are counted.

It prints a Markdown table, and exits with 1 if a batch was wrong, an epoch ended in an unexpected way, a
count grew, or resident memory grew by more than 5 % and 20 MB.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import soak_trouble as trouble
import torch
from soak_setups import Setup, setups

MB = 1 << 20
_DISK_MB = 24
_WARM_TURNS = 10  # a pool of threads has its size by then
_FEW_EPOCHS = 100
"""With fewer epochs, a single turn is the warm-up."""
_EPOCH_S = 300
"""An epoch takes milliseconds: one that takes this many seconds hangs, and prints where."""
_GROWTH = (0.05, 20 * MB)


@dataclass
class Row:
    """The outcome of a setup."""

    name: str
    engine: str = ""
    epochs: dict[str, int] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    wrong: str = ""
    torchs: bool = False

    def problems(self) -> list[str]:
        """Return everything that is wrong."""
        found = [self.wrong] if self.wrong else []
        if self.torchs:
            return found
        found += [
            f"{name} grew from {self.before[name]} to {after}"
            for name, after in self.after.items()
            if name != "rss_bytes" and after > self.before[name]
        ]
        grown = self.after.get("rss_bytes", 0) - self.before.get("rss_bytes", 0)
        if grown > max(_GROWTH[1], _GROWTH[0] * self.before.get("rss_bytes", 0)):
            found.append(f"resident memory grew by {grown / MB:.0f} MB")
        return found


def main() -> int:
    known = setups()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60, help="at most, for all rows together")
    parser.add_argument("--epochs", type=int, default=1000, help="of each row")
    parser.add_argument("--only", nargs="+", choices=known, metavar="NAME", help="rows to run")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.only or list(known)
    seconds = given.minutes * 60 / len(names)
    if given.inside:  # started by `unstarve run`
        row = soaked(
            known[names[0]], given.epochs, seconds, Path(given.inside[0]), given.inside[1] == "small"
        )
        Path(given.inside[2]).write_text(json.dumps(asdict(row)))
        return 0
    rows = [in_own_process(known[name], given.epochs, seconds) for name in names]
    print(table(rows))
    if given.json:
        given.json.write_text(
            json.dumps([asdict(row) | {"problems": row.problems()} for row in rows], indent=2)
        )
    for row in rows:
        for problem in row.problems():
            print(f"{row.name}: {problem}", file=sys.stderr)
    return 1 if any(row.problems() for row in rows) else 0


def in_own_process(setup: Setup, epochs: int, seconds: float) -> Row:
    """Run a setup in a child process, which may end in any way."""
    with tempfile.TemporaryDirectory(prefix="unstarve-soak-") as folder:
        answer = Path(folder, "answer.json")
        disk = Path(folder, "disk")
        disk.mkdir()
        child = multiprocessing.get_context("fork").Process(
            target=_child, args=(setup, epochs, seconds, disk, answer)
        )
        child.start()
        try:
            child.join()
        finally:
            child.kill()
        if answer.exists():
            return Row(**json.loads(answer.read_text()))
    code = child.exitcode or 0
    ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return Row(setup.name, wrong=f"the process {ended}")


def _child(setup: Setup, epochs: int, seconds: float, disk: Path, answer: Path) -> None:
    is_small = trouble.mount_small(disk, _DISK_MB)
    if not setup.recorded:
        answer.write_text(json.dumps(asdict(soaked(setup, epochs, seconds, disk, is_small))))
        return
    inside = ["--inside", str(disk), "small" if is_small else "", str(answer)]
    options = ["--only", setup.name, "--epochs", str(epochs), "--minutes", str(seconds / 60)]
    command = ["-o", str(disk / "run.unstarve"), sys.executable, __file__, *options, *inside]
    done = subprocess.run(
        [sys.executable, "-m", "unstarve", "run", *command], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"`unstarve run` ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def soaked(setup: Setup, epochs: int, seconds: float, folder: Path, is_small: bool) -> Row:
    """Run a setup's epochs in this process."""
    faulthandler.register(signal.SIGUSR1)  # says where a process is that seems to hang
    random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    row = Row(setup.name, torchs=setup.torchs)
    loader = setup.make(folder)
    row.engine = loader.engine
    epoch = trouble.Epoch(
        make=(lambda: setup.make(folder)) if setup.writes else (lambda: loader),
        make_other=(lambda: setup.make(folder)) if setup.writes or setup.persistent else (lambda: loader),
        truth=setup.truth(),
        disk=folder if is_small else None,
        has_workers=loader.num_workers > 0,
    )
    troubles = _troubles(setup, epoch)
    warm_epochs = len(troubles) * (_WARM_TURNS if epochs >= _FEW_EPOCHS else 1)
    deadline = time.monotonic() + seconds
    counted: Counter[str] = Counter()
    try:
        for number in range(max(epochs, warm_epochs + len(troubles))):
            if number == warm_epochs:
                faulthandler.cancel_dump_traceback_later()  # it has a thread
                row.before = asdict(trouble.steady())
            if number > warm_epochs and number % len(troubles) == 0 and time.monotonic() > deadline:
                break
            disturb = troubles[number % len(troubles)]
            faulthandler.dump_traceback_later(_EPOCH_S, exit=True)
            disturb(epoch)
            counted[disturb.__name__] += 1
    except Exception:  # whatever it is, the row says it
        row.wrong = f"{disturb.__name__}: {traceback.format_exc(limit=-3)}"
    faulthandler.cancel_dump_traceback_later()
    row.epochs = dict(counted)
    if row.before:
        row.after = asdict(trouble.settled(trouble.Resources(**row.before)))
        if row.after["threads"] > row.before["threads"]:
            print(f"{setup.name}: threads that did not end", file=sys.stderr)
            faulthandler.dump_traceback(all_threads=True)
    return row


def _troubles(setup: Setup, epoch: trouble.Epoch) -> list[Callable[[trouble.Epoch], None]]:
    chosen = [trouble.undisturbed, trouble.left_early, trouble.dropped, trouble.interrupted]
    if epoch.has_workers:
        chosen.append(trouble.worker_killed)
    chosen += [trouble.undisturbed, trouble.few_descriptors]
    if epoch.disk is not None:
        chosen.append(trouble.full_shm)
    if epoch.disk is not None and (setup.writes or setup.recorded):
        chosen.append(trouble.full_disk)
    return chosen


_COLUMNS = {"processes": 1, "threads": 1, "descriptors": 1, "shm_bytes": MB, "rss_bytes": MB}


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    titles = ["engine, data", "epochs", "disturbed", "processes", "threads", "descriptors"]
    titles += ["shared MB", "resident MB"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        total = sum(row.epochs.values())
        cells = [row.name, f"{total:,}", f"{total - row.epochs.get('undisturbed', 0):,}"]
        for name, unit in _COLUMNS.items():
            before, after = (f"{one.get(name, 0) / unit:.0f}" for one in (row.before, row.after))
            cells.append(before if before == after else f"{before} → {after}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
