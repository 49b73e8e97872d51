"""What broke: hangs, timeouts and workers that died."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unstarve.model import Diagnosis, Process, Run
from unstarve.model.checks import finding
from unstarve.model.finding import Finding
from unstarve.model.stuck import Hang, WorkerDeath
from unstarve.words import clock, mean_count, percent, size

_NO_ROOM = re.compile(r"(?:shared memory|shm|</torch_).*No space left on device")
_MORE_SHM = (
    "Give the container more shared memory (docker run --shm-size=8g), lower prefetch_factor or num_workers, "
    "and copy batches that you keep (batch.clone())."
)
_FULL = 0.9
"""Share of /dev/shm in use from which on the next batch may not fit."""
_LAST_NS = 5_000_000_000
_GREW = 1.5
_MOST_SHOWN = 5
_MOST_SOURCE = 60


def hangs(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """Waits for a batch that were reported while the command ran."""
    found = [hang for hang in run.breakage.hangs if hang.timeout_s is None]
    for hang in found[:_MOST_SHOWN]:
        ended = {"resolved": "then the batch came", "raised": "then --on-hang=raise ended it"}
        after = ended.get(hang.ended, "then the command ended")
        message = f"{_wait(hang)} for {clock(hang.waited_s)}; {after}. {_stuck(hang)}"
        place = f"Look at {hang.place}" if hang.place else f"Look at what {hang.process} was doing"
        limit = max(2 * round(hang.waited_s), 1)
        yield finding(
            "worker-hang",
            message,
            f"{place}. To end such a wait with an exception: DataLoader(…, timeout={limit}), or "
            "`unstarve run --on-hang=raise`.",
            file=hang.file,
            line=hang.line,
        )


def timeouts(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """Batches that took longer than the loader's own timeout."""
    for hang in [one for one in run.breakage.hangs if one.timeout_s is not None][:_MOST_SHOWN]:
        limit = hang.timeout_s or 0.0
        yield finding(
            "worker-timeout",
            f"{_wait(hang)} within timeout={mean_count(limit)}. {_stuck(hang)}",
            f"Make {hang.place or 'the sample'} faster, or raise the limit: timeout={mean_count(2 * limit)}.",
            file=hang.file,
            line=hang.line,
        )


def deaths(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """Workers that died."""
    for death in run.breakage.deaths[:_MOST_SHOWN]:
        worker = next((one for one in run.processes if one.pid == death.pid and one.worker), None)
        yield _death(run, death, worker)


def shared_memory_full(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """A batch did not fit into /dev/shm, and torch said so instead of dying of a bus error."""
    if run.exit_code and run.failure and _NO_ROOM.search(run.failure):
        message = "A batch did not fit into shared memory."
        yield finding("shm-full", f"{message}{_full(_shared_memory(run))}", _MORE_SHM)


def _full(filled: tuple[int, int] | None) -> str:
    if filled is None:
        return ""
    used, total = filled
    return f" /dev/shm was {percent(used / total)} full ({size(used)} of {size(total)})."


def _wait(hang: Hang) -> str:
    batch = "" if hang.batch is None else f" (batch {hang.batch} of epoch {hang.epoch})"
    return f"{hang.loader} gave no batch{batch}"


def _stuck(hang: Hang) -> str:
    source = f" `{_cut(hang.source)}`" if hang.source else ""
    at = f" was in {hang.place}{source}" if hang.place else " was stuck"
    doing = f", {hang.doing}" if hang.doing else ""
    return f"{hang.process[:1].upper()}{hang.process[1:]} (pid {hang.pid}){at}{doing}; it {hang.wait}."


def _death(run: Run, death: WorkerDeath, worker: Process | None) -> Finding:
    name = "A worker" if death.worker is None else f"Worker {death.worker}"
    how = (
        f"was killed by {death.signal}"
        if death.signal
        else "died"
        if death.exit_code is None
        else f"exited with code {death.exit_code}"
    )
    doing = f" while {death.doing}" if death.doing else ""
    at = f" Its last line was {death.file}:{death.line}" if death.file else ""
    at += f" `{_cut(death.source)}`." if at and death.source else "." if at else ""
    filled = _shared_memory(run)
    message = f"{name} (pid {death.pid}) of {_loader(run, death)} {how}{doing}.{at}{_memory(worker)}"
    if death.signal == "SIGBUS" and filled is not None and filled[0] >= _FULL * filled[1]:
        return finding("shm-full", f"{message}{_full(filled)}", _MORE_SHM, file=death.file, line=death.line)
    more, fix = _cause(death, filled)
    return finding("worker-killed", f"{message}{more}", fix, file=death.file, line=death.line)


def _loader(run: Run, death: WorkerDeath) -> str:
    """The name of the loader that a worker belonged to."""
    for process in run.processes:
        numbers = {crew.loader for crew in process.crews if death.pid in crew.pids}
        for loader in process.loaders:
            if loader.id in numbers:
                return loader.name
    return death.loader


def _cause(death: WorkerDeath, filled: tuple[int, int] | None) -> tuple[str, str]:
    """What else is known, and what to do."""
    if death.signal == "SIGKILL":
        if death.oom_kills:
            count = "a process" if death.oom_kills == 1 else f"{death.oom_kills} processes"
            return (
                f" The kernel killed {count} for lack of memory during the run.",
                "Lower num_workers, prefetch_factor or batch_size, or give the job more memory.",
            )
        if death.oom_kills == 0:
            return (
                " The kernel killed no process for lack of memory during the run.",
                "Another program sent the signal: look into the log of the job scheduler or the container.",
            )
        return "", "Whether memory ran out is not known; ask the kernel: dmesg | grep -i 'killed process'."
    if death.signal == "SIGBUS":
        shm = "" if filled is None else f" /dev/shm was at most {percent(filled[0] / filled[1])} full."
        return (
            shm,
            "Look for a mapped file that was truncated while it was read, and for a full disk behind it.",
        )
    if death.signal is not None:
        place = f"{death.file}:{death.line}" if death.file else "the sample"
        return "", f"Native code called from {place} crashed: try that sample alone with num_workers=0."
    return "", "Something in the worker ended it: look for exit(), os._exit() and sys.exit() in your code."


def _memory(worker: Process | None) -> str:
    """`` Its memory grew from 210 MB to 3.1 GB.``; empty where little is known or has changed."""
    used = [] if worker is None else [one.rss_bytes for one in worker.pulses if one.rss_bytes is not None]
    if len(used) < 2 or max(used) < _GREW * used[0]:
        return "" if not used else f" It used {size(used[-1])} of memory."
    return f" Its memory grew from {size(used[0])} to {size(used[-1])}."


def _shared_memory(run: Run) -> tuple[int, int] | None:
    """The most that was in use in /dev/shm in the last seconds, and its size."""
    seen: list[tuple[int, int, int]] = [
        (one.at_ns + process.clock_offset_ns, one.shm_bytes, one.shm_total_bytes)
        for process in run.processes
        for one in process.pulses
        if one.shm_bytes is not None and one.shm_total_bytes
    ]
    if not seen:
        return None
    last_ns = max(at_ns for at_ns, _, _ in seen)
    return max((used, total) for at_ns, used, total in seen if at_ns >= last_ns - _LAST_NS)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SOURCE else f"{text[: _MOST_SOURCE - 1]}…"
