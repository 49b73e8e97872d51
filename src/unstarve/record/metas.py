"""META payload → its fields, checked: types, ranges, finite numbers.

A run file may come from anywhere, so nothing in it is assumed to be written by unstarve.

A META payload is one UTF-8 JSON object whose key ``meta`` says what it describes:

    launch   command, kind, started_at, pid, host                      (by the launcher, first)
    result   exit_code, error, failure: the command's last words, limit: --steps or --stop-after;
             folded: false if the parts remain                         (by the launcher, last)
    process  pid, host, rank, worker, versions, start_ns, offset_ns    (first of a process)
             attempt: how often torchrun had restarted the ranks
    loader   id, name, where, kind, config, source, statement, dataset, maker, created
    batch    loader, tensors: the number of tensors in its first batch
    draws    loader, drew: whether its first fetches drew random numbers (changes at most once, to true)
    streams  torch, python, numpy: digests of the random state before the first fetch, of those drawn from
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
    machine  what `model.MachineTimes` names                           (by the launcher)
    perf     step, loading: the processor's counters; why_not          (repeated: the last one counts)
    hang     a wait for a batch that lasted too long, as `model.stuck.Hang`    (by the launcher)
    death    a worker that died, as `model.stuck.WorkerDeath`          (by the launcher)
    sizes    at_ns, sizes: entries of the dataset's containers         (repeated: all of them count)
    kept     loader, parts: name, kept, watched, bytes of parts of batches that were watched after delivery
                                                                       (repeated: the last one counts)
    allocated  seconds, sites: lines whose allocations stayed          (repeated: the last one counts)
    device   name, rank, allocated_peak_bytes, reserved_peak_bytes     (when training has begun, at its end)
    folded   files: names of the parts that this one replaces           (first of a folded part)
    lost     message: something could not be recorded
    end      end_ns, stopped                                           (last of a process)
    reserve  padding: space for ``lost`` or ``result`` when the disk is full
"""

from __future__ import annotations

import json
from typing import Any

from unstarve.model import MachineTimes
from unstarve.record import meta_values as v
from unstarve.record.meta_values import MOST_BYTES, Check

_LAST_MOMENT_S = 1 << 37
_FEWEST_CORES = 1e-3
_MOST_CREW = 1024


def meta_of(payload: bytes) -> dict[str, Any] | None:
    """The fields of a META; None for an unknown kind. Raises ValueError when it is invalid."""
    try:
        said = json.loads(payload)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(said, dict):
        raise ValueError("not a JSON object")
    fields = _FIELDS.get(v.text(said.get("meta")))
    if fields is None:
        return None
    checked = {name: check(said.get(name)) for name, check in fields.items()}
    return {"meta": said["meta"]} | {name: value for name, value in checked.items() if name in said}


def _config(value: Any) -> dict[str, Any]:
    """Arguments of a loader, which may be of any class: invalid ones are left out."""
    if not isinstance(value, dict) or len(value) > v.MOST_ITEMS:
        raise ValueError("not a mapping of arguments")
    config = {}
    for name, one in value.items():
        try:
            config[v.text(name)] = _ARGUMENTS.get(name, v.plain)(one)
        except ValueError:
            continue
    return config


_ARGUMENTS: dict[str, Check] = {
    "num_workers": v.whole(0, 1 << 16),
    "prefetch_factor": v.whole(1, v.MOST_NUMBER),
    "batch_size": v.whole(1, v.MOST_NUMBER),
}


def _times(*names: str) -> dict[str, Check]:
    return {f"{name}_s": v.seconds for name in names}


def _counts(*names: str) -> dict[str, Check]:
    return dict.fromkeys(names, v.count)


_NAMED_USE = v.object_of(
    {
        "name": v.text,
        "calls": v.count,
        "seconds": v.seconds,
        "self_s": v.optional(v.seconds),
        "device_s": v.optional(v.seconds),
        "process": v.optional(v.whole(0, v.LATEST_NS)),
    }
)

_net = v.whole(-v.LATEST_NS, v.LATEST_NS)
_ALLOCATED_BY = v.object_of({"name": v.text, **_counts("allocations", "allocated_bytes"), "net_bytes": _net})
_DEVICE_MEMORY = v.object_of(
    {
        "device": v.text,
        "relative": v.flag,
        "peak_bytes": v.count,
        "peak_at_s": v.seconds,
        **dict.fromkeys(("reserved_bytes", "unused_bytes"), v.optional(v.count)),
        "at_s": v.list_of(v.seconds),
        **dict.fromkeys(("allocated", "reserved"), v.list_of(v.count)),
        **dict.fromkeys(("by_phase", "by_operator"), v.list_of(_ALLOCATED_BY)),
    }
)

_PROCESSOR_COUNTS = v.object_of(
    {
        **_counts("cycles", "enabled_ns", "running_ns"),
        **dict.fromkeys(("instructions", "cache_misses", "tlb_misses"), v.optional(v.count)),
    }
)

_FIELDS: dict[str, dict[str, Check]] = {
    "launch": {
        "command": v.list_of(v.text, 1 << 20),
        "kind": v.text,
        "started_at": v.number(0, _LAST_MOMENT_S),
        "pid": v.optional(v.pid),
        "host": v.optional(v.text),
    },
    "result": {
        "exit_code": v.optional(v.whole(-v.MOST_NUMBER, v.MOST_NUMBER)),
        "error": v.optional(v.text),
        "failure": v.optional(v.text),
        "limit": v.optional(v.text),
        "folded": v.optional(v.flag),
    },
    "process": {
        "pid": v.pid,
        "host": v.text,
        "rank": v.optional(v.whole(0, v.MOST_NUMBER)),
        "worker": v.flag,
        "versions": v.mapping_of(v.text),
        "start_ns": v.moment,
        "offset_ns": v.whole(-v.LATEST_NS, v.LATEST_NS),
        "attempt": v.optional(v.count),
    },
    "loader": {
        "id": v.loader,
        "name": v.text,
        "where": v.text,
        "kind": v.text,
        "config": _config,
        "source": v.optional(v.text),
        "statement": v.optional(v.text),
        "dataset": v.optional(_config),
        "maker": v.optional(
            v.object_of({"framework": v.text, "function": v.optional(v.text), "option": v.optional(v.text)})
        ),
        "created": v.optional(v.count),
    },
    "batch": {"loader": v.loader, "tensors": v.optional(v.whole(0, v.MOST_NUMBER))},
    "draws": {"loader": v.loader, "drew": v.flag},
    "streams": dict.fromkeys(("torch", "python", "numpy"), v.optional(v.place)),
    "samples": {
        "loader": v.loader,
        "epoch": v.place,
        **_counts("indices", "headed", "head"),
        **dict.fromkeys(("sampler_epoch", "length", "distinct", "order", "members"), v.optional(v.count)),
        "shuffles": v.optional(v.flag),
    },
    "digests": {"loader": v.loader, "epoch": v.place, "task": v.place, "digests": v.text},
    "crew": {"loader": v.loader, "epoch": v.place, "pids": v.list_of(v.pid, _MOST_CREW)},
    "sampled": {"found": v.list_of(v.row_of(v.text, v.text, v.text, v.place, v.flag, v.flag, v.seconds))},
    "own": {
        "steps": v.count,
        "step_cpu_s": v.seconds,
        "fetches": v.count,
        "fetch_cpu_s": v.seconds,
        "rest_cpu_s": v.seconds,
    },
    "system": {
        "cores": v.optional(v.number(_FEWEST_CORES, v.MOST_NUMBER)),
        "quota_cores": v.optional(v.number(_FEWEST_CORES, v.MOST_NUMBER)),
        "affinity": v.optional(v.list_of(v.place)),
        "first_cores": v.optional(v.whole(1, v.MOST_NUMBER)),
        "throttled": v.optional(v.count),
        "counts_delay": v.optional(v.flag),
        "missing": v.optional(v.list_of(v.text)),
        "filesystems": v.optional(v.mapping_of(v.count)),
        "usage": v.optional(
            v.object_of(
                {
                    "at_ns": v.moment,
                    "process_cpu_s": v.seconds,
                    "machine_cpu_s": v.optional(v.number(0, v.LONGEST_S * v.MOST_NUMBER)),
                    "machine_cores": v.optional(v.whole(0, v.MOST_NUMBER)),
                    "periods": v.optional(v.count),
                    "throttled": v.optional(v.count),
                }
            )
        ),
        "grouped": v.optional(v.flag),
        "free_bytes": v.optional(v.whole(0, MOST_BYTES)),
        "device_memory": v.optional(
            v.object_of(
                dict.fromkeys(("allocated_bytes", "peak_bytes", "total_bytes"), v.whole(0, MOST_BYTES))
            )
        ),
    },
    "profile": {
        "source": v.text,
        "tool": v.text,
        "window_s": v.seconds,
        "waits": v.count,
        "wait_s": v.seconds,
        "devices": v.list_of(
            v.object_of(
                {
                    "device": v.place,
                    **_times("busy", "kernel", "idle", "starved", "exposed_copy", "launch_gap"),
                    "median_kernel_s": v.optional(v.seconds),
                    "launch_bound": v.optional(v.flag),
                }
            )
        ),
        "gaps": v.list_of(
            v.object_of({"device": v.place, "host": v.text, "begin_s": v.seconds, "seconds": v.seconds})
        ),
        "copies": v.list_of(
            v.object_of(
                {
                    "device": v.place,
                    "kind": v.text,
                    "memory": v.text,
                    "count": v.count,
                    "bytes": v.whole(0, v.LATEST_NS),
                    "seconds": v.seconds,
                    "exposed_s": v.seconds,
                }
            )
        ),
        "steps": v.count,
        "phases": v.list_of(v.object_of({"name": v.text, "seconds": v.seconds, "device_s": v.seconds})),
        "kernels": v.list_of(_NAMED_USE),
        "operators": v.list_of(_NAMED_USE),
        "by_shape": v.list_of(_NAMED_USE),
        "by_stack": v.list_of(_NAMED_USE),
        "memory": v.optional(v.list_of(_DEVICE_MEMORY)),
        "calls": v.list_of(_NAMED_USE),
        "files": v.list_of(
            v.object_of(
                {
                    "path": v.text,
                    "process": v.whole(0, v.LATEST_NS),
                    "opens": v.count,
                    "reads": v.count,
                    "bytes": v.whole(0, v.LATEST_NS),
                    "seconds": v.seconds,
                }
            )
        ),
    },
    "loop": {
        "seconds": v.seconds,
        "places": v.list_of(v.row_of(v.text, v.text, v.place, v.seconds)),
        "call": v.optional(v.row_of(v.text, v.text, v.text, v.place, v.text, v.seconds)),
    },
    "slow": {"loader": v.optional(v.loader), "iteration": v.place, "task": v.place, "file": v.text},
    "io": {
        "why_not": v.optional(v.text),
        "files": v.list_of(
            v.object_of(
                {
                    "path": v.text,
                    "kind": v.text,
                    "file_bytes": v.optional(v.count),
                    **_counts("processes", "opens", "reads", "bytes", "slow_reads", "jumps", "mapped_bytes"),
                    **_times("open", "slow", "longest"),
                    "seconds": v.seconds,
                }
            )
        ),
        "kinds": v.list_of(
            v.object_of(
                {
                    "kind": v.text,
                    **_counts("files", "opens", "reads", "bytes", "jumps", "mapped_bytes"),
                    "seconds": v.seconds,
                }
            )
        ),
        "processes": v.list_of(
            v.object_of(
                {
                    "process": v.pid,
                    **_counts("files", "opens", "reads", "bytes", "slow_reads", "mapped_bytes"),
                    **_times("open", "slow"),
                    "seconds": v.seconds,
                }
            )
        ),
    },
    "machine": dict.fromkeys(MachineTimes._fields, v.number(0, v.LONGEST_S)),
    "perf": {
        "why_not": v.optional(v.text),
        "step": v.optional(_PROCESSOR_COUNTS),
        "loading": v.optional(_PROCESSOR_COUNTS),
    },
    "sizes": {"at_ns": v.moment, "sizes": v.mapping_of(v.count)},
    "kept": {
        "loader": v.loader,
        "parts": v.list_of(v.row_of(v.text, v.count, v.count, v.whole(0, MOST_BYTES))),
    },
    "allocated": {
        "seconds": v.seconds,
        "sites": v.list_of(v.row_of(v.text, v.place, v.whole(0, MOST_BYTES), v.count)),
    },
    "hang": {
        **dict.fromkeys(("loader", "ended", "process", "doing", "wait", "source", "text"), v.text),
        **dict.fromkeys(("where", "file"), v.optional(v.text)),
        **dict.fromkeys(("epoch", "batch", "line"), v.optional(v.place)),
        "pid": v.pid,
        "waited_s": v.seconds,
        "timeout_s": v.optional(v.seconds),
    },
    "death": {
        **dict.fromkeys(("loader", "doing", "source"), v.text),
        **dict.fromkeys(("signal", "file"), v.optional(v.text)),
        **dict.fromkeys(("worker", "line"), v.optional(v.place)),
        "pid": v.pid,
        "exit_code": v.optional(v.whole(-v.MOST_NUMBER, v.MOST_NUMBER)),
        "oom_kills": v.optional(v.count),
    },
    "transforms": {"spent": v.list_of(v.row_of(v.text, v.seconds, v.count))},
    "device": {
        "name": v.text,
        "rank": v.optional(v.whole(0, v.MOST_NUMBER)),
        **dict.fromkeys(("allocated_peak_bytes", "reserved_peak_bytes"), v.optional(v.whole(0, MOST_BYTES))),
    },
    "folded": {"files": v.list_of(v.text)},
    "lost": {"message": v.text},
    "end": {"end_ns": v.optional(v.moment), "stopped": v.optional(v.text)},
}
