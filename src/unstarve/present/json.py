"""The report as JSON, schema ``unstarve.report/1``: the contract for programs."""

from __future__ import annotations

import dataclasses
from typing import Any

from unstarve.model import Comparison, Diagnosis, Live
from unstarve.present.whatif import plain as plain_whatif

SCHEMA = "unstarve.report/1"
COMPARISON_SCHEMA = "unstarve.comparison/1"
LIVE_SCHEMA = "unstarve.live/1"


def report(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole report; what is not known is null."""
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
        "waits": dict(d.waits),
        "demand": _plain(d.demand),
        "headroom": _plain(d.headroom),
        "functions": [_plain(cost) for cost in d.functions],
        "slow_samples": [_plain(sample) for sample in d.slow_samples],
        "advice": [_plain(advice) for advice in d.advice],
        "whatif": plain_whatif(d.whatif),
        "health": [],
        "gpu": _plain(d.gpu),
        "memory": _plain(d.memory),
        "overhead": _plain(d.overhead),
        "system": dict(d.system),
        "walk": list(d.walk),
        "loaders": [_plain(loader) for loader in d.loaders],
        "lost": list(d.lost),
    }


def comparison(result: Comparison) -> dict[str, Any]:
    """Both reports, the rows and the gates."""
    return {
        "schema": COMPARISON_SCHEMA,
        "headline": result.headline,
        "change": _plain(result.change),
        "rows": [_plain(row) for row in result.rows],
        "gates": [_plain(gate) for gate in result.gates],
        "a": report(result.a),
        "b": report(result.b),
    }


def live(now: Live) -> dict[str, Any]:
    """A run as it is now; what is not known is null."""
    return {"schema": LIVE_SCHEMA, **dataclasses.asdict(now), "command": list(now.command)}


def _plain(value: Any) -> Any:
    return None if value is None else dataclasses.asdict(value)
