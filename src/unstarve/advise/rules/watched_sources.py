"""The rule about sources of other libraries that training iterates instead of a ``DataLoader``."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from unstarve.advise.diagnosis_facts import usable_cores
from unstarve.advise.gain import UNCHANGED
from unstarve.advise.proposal import Edit, Proposal
from unstarve.model import Cause, Diagnosis, LoaderSummary, State
from unstarve.words import percent

_COMPUTES = 0.5
"""Share of CPU time in the waiting, contention left out, from which processes help; below it, threads do."""
_THREADS = 16
"""For a source that waits, as many as Grain starts by default."""
_BUFFER = 500
"""Records that Grain reads ahead by default."""


class _Setting(NamedTuple):
    """What to set in a library."""

    name: str
    code: tuple[str, ...]
    note: str


def parallel_source(d: Diagnosis) -> Proposal | None:
    """Libraries that are no ``DataLoader`` have settings of their own for making batches in parallel."""
    loader = max(d.loaders, key=lambda one: one.wait_s, default=None)
    if loader is None or d.verdict.state is not State.STARVED or "num_workers" in loader.config:
        return None
    setting = next((make for module, make in _LIBRARIES.items() if _is_of(loader, module)), None)
    waited_s, cores = sum(d.waits.values()), usable_cores(d)
    if setting is None or not waited_s or d.wait_share is None:
        return None
    cpu_s = d.waits.get(Cause.CPU, 0.0)
    computes = cpu_s >= _COMPUTES * (waited_s - d.waits.get(Cause.CONTENTION, 0.0))
    processes = int(cores or 0) if computes else 0
    if computes and processes < 2:  # one core computes no faster in two processes
        return None
    if not computes and loader.config.get("parallel") is not False:  # what its helpers wait for is not known
        return None
    found = setting(loader, processes)
    doing = f"in {processes} processes" if processes else f"with {_THREADS} threads"
    return Proposal(
        "parallel-source",
        found.name,
        f"Make samples {doing}, ahead of training: {found.name}",
        f"training waits {percent(d.wait_share)} of the time, and {percent(cpu_s / waited_s)} of that is "
        "CPU time of the training thread",
        Edit(before=found.code),
        _outcome(d, processes),
        worst=UNCHANGED,
        note=found.note,
    )


def _outcome(d: Diagnosis, processes: int) -> dict[Cause, float] | None:
    """Which waiting goes, where it is known how batches are made."""
    if d.demand is None:
        return None
    return {Cause.CPU: 1 - 1 / processes} if processes else {Cause.REMOTE: 1 - 1 / _THREADS}


def _is_of(loader: LoaderSummary, library: str) -> bool:
    module = str(loader.config.get("module", ""))
    return module == library or module.startswith(f"{library}.")


def _torchdata(_: LoaderSummary, processes: int) -> _Setting:
    count, method = (processes, "process") if processes else (_THREADS, "thread")
    code = (
        "# instead of nodes.Mapper(source, fn):",
        f"# nodes.ParallelMapper(source, fn, num_workers={count}, method={method!r})",
        "# around the last node:",
        "# nodes.Prefetcher(node, prefetch_factor=2)",
    )
    note = (
        "fn must be picklable." if processes else "Several threads call fn at once: it must be thread-safe."
    )
    return _Setting("torchdata.nodes.ParallelMapper", code, note)


def _grain(loader: LoaderSummary, processes: int) -> _Setting:
    reads = f"grain.ReadOptions(num_threads={_THREADS}, prefetch_buffer_size={_BUFFER})"
    note = "Transforms must be picklable." if processes else "Several threads call the transforms at once."
    if str(loader.config["module"]).endswith(".data_loader"):
        argument = f"worker_count={processes}" if processes else f"read_options={reads}"
        return _Setting(argument.partition("=")[0], (f"# grain.DataLoader(…, {argument})",), note)
    if not processes:
        return _Setting("grain.ReadOptions", (f"# dataset.to_iter_dataset({reads})",), note)
    workers = f"grain.MultiprocessingOptions(num_workers={processes})"
    return _Setting("mp_prefetch", (f"# dataset.to_iter_dataset().mp_prefetch({workers})",), note)


_LIBRARIES: dict[str, Callable[[LoaderSummary, int], _Setting]] = {
    "torchdata.nodes": _torchdata,
    "grain": _grain,
}
"""By the module of what is watched."""
