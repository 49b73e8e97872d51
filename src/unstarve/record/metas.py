"""META payload → its fields, checked: types, ranges, finite numbers.

A run file may come from anywhere, so nothing in it is assumed to be written by unstarve.

A META payload is one UTF-8 JSON object whose key ``meta`` says what it describes:

    launch   command, kind, started_at, pid, host                      (by the launcher, first)
    result   exit_code, error, failure: the command's last words, limit: --steps or --stop-after;
             folded: false if the parts remain                         (by the launcher, last)
    process  pid, host, rank, worker, versions, start_ns, offset_ns    (first of a process)
    loader   id, name, where, kind, config, source, statement, dataset, maker, created
    batch    loader, tensors: the number of tensors in its first batch
    draws    loader, drew: whether its first fetches drew random numbers (changes at most once, to true)
    streams  torch, python, numpy: digests of the random state before the first fetch
    samples  loader, epoch, sampler_epoch, shuffles, length, indices, distinct, headed, head, order, members:
             what the sampler gave out, as `model.recorded.SampleCount`
    digests  loader, epoch, task, digests: of the samples of one batch (with --ledger)
    crew     loader, epoch, pids: the workers of an epoch
    sampled  found, cpu_s: what the stack sampler has seen so far      (repeated: the last one counts)
    slow     loader, iteration, task, file: the file of a batch's slowest sample, if it stands out
    loop     seconds, places, call: what a training did that iterated no loader
    own      steps, step_cpu_s: recording costs so much for so many steps,
             fetches, fetch_cpu_s: and for so many fetches, all measured;
             rest_cpu_s: and so much for everything else               (repeated: the last one counts)
    system   cores, quota, …: what the process knows of its machine    (repeated: the last one counts)
    transforms  spent: name, seconds, calls of single transforms       (repeated: the last one counts)
    profile  what a profiler's file says, as `model.profile.Profile`   (in imported runs)
    io       what processes read, as `model.file_reads.RecordedReads`  (by the launcher, with --io)
    perf     step, loading: the processor's counters; why_not          (repeated: the last one counts)
    hang     a wait for a batch that lasted too long, as `model.stuck.Hang`    (by the launcher)
    death    a worker that died, as `model.stuck.WorkerDeath`          (by the launcher)
    sizes    at_ns, sizes: entries of the dataset's containers         (repeated: all of them count)
    kept     loader, parts: name, kept, watched, bytes of parts of batches that were watched after delivery
                                                                       (repeated: the last one counts)
    allocated  seconds, sites: lines whose allocations stayed          (repeated: the last one counts)
    device   name, rank, allocated_peak_bytes, reserved_peak_bytes     (when training has begun, at its end)
    lost     message: something could not be recorded
    end      end_ns, stopped                                           (last of a process)
    reserve  padding: space for ``lost`` or ``result`` when the disk is full
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

LATEST_NS = 1 << 62
"""No time stamp and no duration is larger: 146 years."""
MOST_BYTES = 1 << 45
"""No process holds or reads more bytes."""
_LONGEST_S = 1e9
_LAST_MOMENT_S = 1 << 37
_MOST_NUMBER = 1 << 31
_FEWEST_CORES = 1e-3
_MOST_CREW = 1024
_MOST_ITEMS = 10_000
"""Length of a list, entries of a mapping."""

Check = Callable[[Any], Any]
"""Returns the value, cleaned; raises ValueError when it is invalid."""


def meta_of(payload: bytes) -> dict[str, Any] | None:
    """The fields of a META; None for an unknown kind. Raises ValueError when it is invalid."""
    try:
        said = json.loads(payload)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(said, dict):
        raise ValueError("not a JSON object")
    fields = _FIELDS.get(_text(said.get("meta")))
    if fields is None:
        return None
    checked = {name: check(said.get(name)) for name, check in fields.items()}
    return {"meta": said["meta"]} | {name: value for name, value in checked.items() if name in said}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value.encode("utf-8", "replace").decode()  # file names need not be valid Unicode


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("not true or false")
    return value


def _whole(least: int, most: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError("not a number in range")
        return value

    return check


def _number(least: float, most: float) -> Check:
    def check(value: Any) -> float:
        # A NaN fails as well: it is not between two numbers.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ValueError("not a number in range")
        return value

    return check


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _list_of(check: Check, most: int = _MOST_ITEMS) -> Check:
    def check_all(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError("not a list, or too long")
        return [check(one) for one in value]

    return check_all


def _row_of(*checks: Check) -> Check:
    def check_each(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) != len(checks):
            raise ValueError("not a row of this length")
        return [check(one) for check, one in zip(checks, value, strict=True)]

    return check_each


def _mapping_of(check: Check) -> Check:
    def check_all(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > _MOST_ITEMS:
            raise ValueError("not a mapping, or too large")
        return {_text(name): check(one) for name, one in value.items()}

    return check_all


def _object_of(checks: Mapping[str, Check]) -> Check:
    def check_each(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return {name: check(value.get(name)) for name, check in checks.items()}

    return check_each


def _config(value: Any) -> dict[str, Any]:
    """Arguments of a loader, which may be of any class: invalid ones are left out."""
    if not isinstance(value, dict) or len(value) > _MOST_ITEMS:
        raise ValueError("not a mapping of arguments")
    config = {}
    for name, one in value.items():
        try:
            config[_text(name)] = _ARGUMENTS.get(name, _plain)(one)
        except ValueError:
            continue
    return config


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _whole(-LATEST_NS, LATEST_NS)(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return _text(value)


_moment = _whole(0, LATEST_NS)
_seconds = _number(0, _LONGEST_S)
_place = _whole(0, (1 << 32) - 1)
_loader = _whole(0, (1 << 16) - 1)
_count = _whole(0, LATEST_NS)
_pid = _whole(0, _MOST_NUMBER)

_ARGUMENTS: dict[str, Check] = {
    "num_workers": _whole(0, 1 << 16),
    "prefetch_factor": _whole(1, _MOST_NUMBER),
    "batch_size": _whole(1, _MOST_NUMBER),
}


def _times(*names: str) -> dict[str, Check]:
    return {f"{name}_s": _seconds for name in names}


def _counts(*names: str) -> dict[str, Check]:
    return dict.fromkeys(names, _count)


_NAMED_USE = _object_of(
    {
        "name": _text,
        "calls": _count,
        "seconds": _seconds,
        "self_s": _optional(_seconds),
        "device_s": _optional(_seconds),
        "process": _optional(_whole(0, LATEST_NS)),
    }
)

_net = _whole(-LATEST_NS, LATEST_NS)
_ALLOCATED_BY = _object_of({"name": _text, **_counts("allocations", "allocated_bytes"), "net_bytes": _net})
_DEVICE_MEMORY = _object_of(
    {
        "device": _text,
        "relative": _flag,
        "peak_bytes": _count,
        "peak_at_s": _seconds,
        **dict.fromkeys(("reserved_bytes", "unused_bytes"), _optional(_count)),
        "at_s": _list_of(_seconds),
        **dict.fromkeys(("allocated", "reserved"), _list_of(_count)),
        **dict.fromkeys(("by_phase", "by_operator"), _list_of(_ALLOCATED_BY)),
    }
)

_PROCESSOR_COUNTS = _object_of(
    {
        **_counts("cycles", "enabled_ns", "running_ns"),
        **dict.fromkeys(("instructions", "cache_misses", "tlb_misses"), _optional(_count)),
    }
)

_FIELDS: dict[str, dict[str, Check]] = {
    "launch": {
        "command": _list_of(_text, 1 << 20),
        "kind": _text,
        "started_at": _number(0, _LAST_MOMENT_S),
        "pid": _optional(_pid),
        "host": _optional(_text),
    },
    "result": {
        "exit_code": _optional(_whole(-_MOST_NUMBER, _MOST_NUMBER)),
        "error": _optional(_text),
        "failure": _optional(_text),
        "limit": _optional(_text),
        "folded": _optional(_flag),
    },
    "process": {
        "pid": _pid,
        "host": _text,
        "rank": _optional(_whole(0, _MOST_NUMBER)),
        "worker": _flag,
        "versions": _mapping_of(_text),
        "start_ns": _moment,
        "offset_ns": _whole(-LATEST_NS, LATEST_NS),
    },
    "loader": {
        "id": _loader,
        "name": _text,
        "where": _text,
        "kind": _text,
        "config": _config,
        "source": _optional(_text),
        "statement": _optional(_text),
        "dataset": _optional(_config),
        "maker": _optional(
            _object_of({"framework": _text, "function": _optional(_text), "option": _optional(_text)})
        ),
        "created": _optional(_count),
    },
    "batch": {"loader": _loader, "tensors": _optional(_whole(0, _MOST_NUMBER))},
    "draws": {"loader": _loader, "drew": _flag},
    "streams": dict.fromkeys(("torch", "python", "numpy"), _optional(_place)),
    "samples": {
        "loader": _loader,
        "epoch": _place,
        **_counts("indices", "headed", "head"),
        **dict.fromkeys(("sampler_epoch", "length", "distinct", "order", "members"), _optional(_count)),
        "shuffles": _optional(_flag),
    },
    "digests": {"loader": _loader, "epoch": _place, "task": _place, "digests": _text},
    "crew": {"loader": _loader, "epoch": _place, "pids": _list_of(_pid, _MOST_CREW)},
    "sampled": {"found": _list_of(_row_of(_text, _text, _text, _place, _flag, _flag, _seconds))},
    "own": {
        "steps": _count,
        "step_cpu_s": _seconds,
        "fetches": _count,
        "fetch_cpu_s": _seconds,
        "rest_cpu_s": _seconds,
    },
    "system": {
        "cores": _optional(_number(_FEWEST_CORES, _MOST_NUMBER)),
        "quota_cores": _optional(_number(_FEWEST_CORES, _MOST_NUMBER)),
        "affinity": _optional(_list_of(_place)),
        "first_cores": _optional(_whole(1, _MOST_NUMBER)),
        "throttled": _optional(_count),
        "counts_delay": _optional(_flag),
        "missing": _optional(_list_of(_text)),
        "filesystems": _optional(_mapping_of(_count)),
        "usage": _optional(
            _object_of(
                {
                    "at_ns": _moment,
                    "process_cpu_s": _seconds,
                    "machine_cpu_s": _optional(_number(0, _LONGEST_S * _MOST_NUMBER)),
                    "machine_cores": _optional(_whole(0, _MOST_NUMBER)),
                    "periods": _optional(_count),
                    "throttled": _optional(_count),
                }
            )
        ),
        "grouped": _optional(_flag),
        "free_bytes": _optional(_whole(0, MOST_BYTES)),
        "device_memory": _optional(
            _object_of(dict.fromkeys(("allocated_bytes", "peak_bytes", "total_bytes"), _whole(0, MOST_BYTES)))
        ),
    },
    "profile": {
        "source": _text,
        "tool": _text,
        "window_s": _seconds,
        "waits": _count,
        "wait_s": _seconds,
        "devices": _list_of(
            _object_of(
                {
                    "device": _place,
                    **_times("busy", "kernel", "idle", "starved", "exposed_copy", "launch_gap"),
                    "median_kernel_s": _optional(_seconds),
                    "launch_bound": _optional(_flag),
                }
            )
        ),
        "gaps": _list_of(
            _object_of({"device": _place, "host": _text, "begin_s": _seconds, "seconds": _seconds})
        ),
        "copies": _list_of(
            _object_of(
                {
                    "device": _place,
                    "kind": _text,
                    "memory": _text,
                    "count": _count,
                    "bytes": _whole(0, LATEST_NS),
                    "seconds": _seconds,
                    "exposed_s": _seconds,
                }
            )
        ),
        "steps": _count,
        "phases": _list_of(_object_of({"name": _text, "seconds": _seconds, "device_s": _seconds})),
        "kernels": _list_of(_NAMED_USE),
        "operators": _list_of(_NAMED_USE),
        "by_shape": _list_of(_NAMED_USE),
        "by_stack": _list_of(_NAMED_USE),
        "memory": _optional(_list_of(_DEVICE_MEMORY)),
        "calls": _list_of(_NAMED_USE),
        "files": _list_of(
            _object_of(
                {
                    "path": _text,
                    "process": _whole(0, LATEST_NS),
                    "opens": _count,
                    "reads": _count,
                    "bytes": _whole(0, LATEST_NS),
                    "seconds": _seconds,
                }
            )
        ),
    },
    "loop": {
        "seconds": _seconds,
        "places": _list_of(_row_of(_text, _text, _place, _seconds)),
        "call": _optional(_row_of(_text, _text, _text, _place, _text, _seconds)),
    },
    "slow": {"loader": _optional(_loader), "iteration": _place, "task": _place, "file": _text},
    "io": {
        "why_not": _optional(_text),
        "files": _list_of(
            _object_of(
                {
                    "path": _text,
                    "kind": _text,
                    "file_bytes": _optional(_count),
                    **_counts("processes", "opens", "reads", "bytes", "slow_reads", "jumps", "mapped_bytes"),
                    **_times("open", "slow", "longest"),
                    "seconds": _seconds,
                }
            )
        ),
        "kinds": _list_of(
            _object_of(
                {
                    "kind": _text,
                    **_counts("files", "opens", "reads", "bytes", "jumps", "mapped_bytes"),
                    "seconds": _seconds,
                }
            )
        ),
        "processes": _list_of(
            _object_of(
                {
                    "process": _pid,
                    **_counts("files", "opens", "reads", "bytes", "slow_reads", "mapped_bytes"),
                    **_times("open", "slow"),
                    "seconds": _seconds,
                }
            )
        ),
    },
    "perf": {
        "why_not": _optional(_text),
        "step": _optional(_PROCESSOR_COUNTS),
        "loading": _optional(_PROCESSOR_COUNTS),
    },
    "sizes": {"at_ns": _moment, "sizes": _mapping_of(_count)},
    "kept": {"loader": _loader, "parts": _list_of(_row_of(_text, _count, _count, _whole(0, MOST_BYTES)))},
    "allocated": {
        "seconds": _seconds,
        "sites": _list_of(_row_of(_text, _place, _whole(0, MOST_BYTES), _count)),
    },
    "hang": {
        **dict.fromkeys(("loader", "ended", "process", "doing", "wait", "source", "text"), _text),
        **dict.fromkeys(("where", "file"), _optional(_text)),
        **dict.fromkeys(("epoch", "batch", "line"), _optional(_place)),
        "pid": _pid,
        "waited_s": _seconds,
        "timeout_s": _optional(_seconds),
    },
    "death": {
        **dict.fromkeys(("loader", "doing", "source"), _text),
        **dict.fromkeys(("signal", "file"), _optional(_text)),
        **dict.fromkeys(("worker", "line"), _optional(_place)),
        "pid": _pid,
        "exit_code": _optional(_whole(-_MOST_NUMBER, _MOST_NUMBER)),
        "oom_kills": _optional(_count),
    },
    "transforms": {"spent": _list_of(_row_of(_text, _seconds, _count))},
    "device": {
        "name": _text,
        "rank": _optional(_whole(0, _MOST_NUMBER)),
        **dict.fromkeys(("allocated_peak_bytes", "reserved_peak_bytes"), _optional(_whole(0, MOST_BYTES))),
    },
    "lost": {"message": _text},
    "end": {"end_ns": _optional(_moment), "stopped": _optional(_text)},
}
