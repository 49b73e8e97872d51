"""Results as JSON, the contract for programs: one function and one schema name for each.

What is not known is null.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from unstarve.analyze.device_idle import device_findings
from unstarve.model import Benchmark, Comparison, Diagnosis, Finding, Forecast, Live, WhatIf
from unstarve.model.profile import Profile

SCHEMA = "unstarve.report/1"
COMPARISON_SCHEMA = "unstarve.comparison/1"
LIVE_SCHEMA = "unstarve.live/1"
BENCH_SCHEMA = "unstarve.bench/1"
BENCH_NODES_SCHEMA = "unstarve.bench-nodes/1"
WHATIF_SCHEMA = "unstarve.whatif/1"


def report(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole report."""
    d = diagnosis
    return {
        "schema": SCHEMA,
        "run": {
            "command": list(d.command),
            "kind": d.kind,
            "path": d.path,
            "started_at": d.started_at,
            "wall_s": d.wall_s,
            "steps": d.steps,
            "warmup_steps": d.warmup_steps,
            "ranks": d.ranks,
            "device": d.device,
            "versions": dict(d.versions),
            "exit_code": d.exit_code,
            "failure": d.failure,
            "cut_short": d.cut_short,
            "live": d.live,
        },
        "verdict": _plain(d.verdict),
        "wait_share": d.wait_share,
        "stall_share": d.stall_share,
        "throughput": _plain(d.throughput),
        "step_ms": _plain(d.step_ms),
        "wait_ms": _plain(d.wait_ms),
        "budget": [_plain(share) for share in d.budget],
        "outside": [_plain(part) for part in d.outside],
        "waits": dict(d.waits),
        "demand": _plain(d.demand),
        "headroom": _plain(d.headroom),
        "functions": [_plain(cost) for cost in d.functions],
        "transforms": [_plain(cost) for cost in d.transforms],
        "slow_samples": [_plain(sample) for sample in d.slow_samples],
        "unseen_batches": _plain(d.unseen_batches),
        "advice": [_plain(advice) for advice in d.advice],
        "rejected": [_plain(one) for one in d.rejected],
        "whatif": None if d.whatif is None else _forecasts(d.whatif),
        "health": [_finding(one) for one in d.health],
        "gpu": _plain(d.gpu),
        "copies": _plain(d.copies),
        "memory": _plain(d.memory),
        "profile": None if d.profile is None else profile(d.profile),
        "io": _plain(d.io),
        "perf": _plain(d.perf),
        "ranks": _plain(d.rank_times),
        "overhead": _plain(d.overhead),
        "system": dict(d.system),
        "walk": list(d.walk),
        "loaders": [_plain(loader) for loader in d.loaders],
        "lost": list(d.lost),
    }


def _finding(one: Finding) -> dict[str, Any]:
    return {**dataclasses.asdict(one), "doc": one.doc}


def profile(found: Profile) -> dict[str, Any]:
    """What a profiler recorded, and sentences on the devices."""
    return {**dataclasses.asdict(found), "findings": list(device_findings(found))}


def comparison(result: Comparison) -> dict[str, Any]:
    """Both reports, the compared numbers and the gates."""
    return {
        "schema": COMPARISON_SCHEMA,
        "headline": result.headline,
        "change": _plain(result.change),
        "rows": [_plain(row) for row in result.rows],
        "notes": list(result.notes),
        "gates": [_plain(gate) for gate in result.gates],
        "operators": [_plain(one) for one in result.operators],
        "a": report(result.a),
        "b": report(result.b),
    }


def live(now: Live) -> dict[str, Any]:
    """A run as it is now."""
    return {"schema": LIVE_SCHEMA, **dataclasses.asdict(now), "command": list(now.command)}


def bench(result: Benchmark) -> dict[str, Any]:
    """Everything a benchmark measured."""
    return {
        "schema": BENCH_SCHEMA,
        "started_at": result.started_at,
        "wall_s": result.wall_s,
        "seeds": list(result.seeds),
        "quick": result.quick,
        "interrupted": result.interrupted,
        "machine": dict(result.machine),
        "versions": dict(result.versions),
        "parts": [
            {
                "part": part.letter,
                "name": part.name,
                "title": part.title,
                "batch_samples": part.batch_samples,
                "ways": [_way(dataclasses.asdict(way)) for way in part.ways],
            }
            for part in result.parts
        ],
    }


def bench_nodes(results: Mapping[str, Benchmark]) -> dict[str, Any]:
    """What was measured on each node of a cluster."""
    return {
        "schema": BENCH_NODES_SCHEMA,
        "nodes": [{"node": name} | bench(result) for name, result in results.items()],
    }


def _way(way: dict[str, Any]) -> dict[str, Any]:
    bars = [
        {
            "promise": one["bar"]["promise"],
            "limit": one["bar"]["limit"],
            "measured": one["measured"],
            "met": one["met"],
        }
        for one in way.pop("checked")
    ]
    memory = way.pop("extra")
    return way | {"batch_s": list(way["batch_s"]), "memory": memory, "bars": bars}


def whatif(result: WhatIf, run: str) -> dict[str, Any]:
    """Throughput predicted from the run file `run`, setting by setting."""
    return {"schema": WHATIF_SCHEMA, "run": run, **_forecasts(result)}


def _forecasts(result: WhatIf) -> dict[str, Any]:
    return {
        "loader": result.loader,
        "notes": list(result.notes),
        "costs": result.costs,
        "busy_cores": result.busy_cores,
        "curve": [_point(one) for one in result.curve],
    }


def _point(one: Forecast) -> dict[str, Any]:
    return {
        "workers": one.setting.workers,
        "prefetch": one.setting.prefetch,
        "batch_size": one.setting.batch_size,
        "steps_per_s": one.steps_per_s,
        "low": one.low,
        "high": one.high,
        "samples_per_s": one.samples_per_s,
        "wait_share": one.wait_share,
        "speedup": {"predicted": one.speedup, "low": one.speedup_low, "high": one.speedup_high},
        "recorded": one.recorded,
        "best": one.best,
        "enough": one.enough,
        "quiet_steps_per_s": one.quiet_steps_per_s,
    }


def _plain(value: Any) -> Any:
    return None if value is None else dataclasses.asdict(value)
