"""The rows of one process → its rounds, and those folded into windows: a few kilobytes for each minute.

Works on tables of rows instead of events: a large job has millions of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unstarve.analyze.rank_rounds import RankRounds, StepColumns, rounds_from
from unstarve.analyze.timeline import WARMUP_STEPS
from unstarve.model import FoldedSteps, Meeting
from unstarve.record import format as f
from unstarve.record.rows import Packed, rows_of, valid

_MOST_BYTES_PER_MINUTE = 4096 - 256
"""Of a folded rank; the rest is for the headers of chunks."""
_READ = (f.BATCH, f.MEETING, f.EPOCH_BEGIN, f.EPOCH_NO_GRAD)


def rounds_of_rows(packed: Mapping[int, Sequence[Packed]], who: Mapping[str, Any]) -> RankRounds | None:
    """The rounds of a rank from its rows; `who` has its rank, host and device. None without any."""
    read = {kind: rows_of(kind, packed.get(kind, ())) for kind in _READ}
    batches, meetings = (read[kind][valid(kind, read[kind])] for kind in (f.BATCH, f.MEETING))
    begins, no_grad = read[f.EPOCH_BEGIN], read[f.EPOCH_NO_GRAD]
    batches = batches[(batches["flags"] & f.NESTED == 0) & (batches["thread"] == 0)]
    key = batches["loader"].astype(np.int64) << 32 | batches["epoch"]
    batches = batches[~np.isin(key, no_grad["loader"].astype(np.int64) << 32 | no_grad["epoch"])]
    if not len(batches):
        return None
    batches = batches[batches["loader"] == np.bincount(batches["loader"]).argmax()]
    batches = batches[np.argsort(batches["got_ns"], kind="stable")]
    begun = begins[begins["loader"] == batches["loader"][0]]
    start_ns = batches["ask_ns"].astype(np.int64)
    if len(begun):
        order = np.argsort(begun["epoch"], kind="stable")
        at = np.minimum(np.searchsorted(begun["epoch"], batches["epoch"], sorter=order), len(begun) - 1)
        its = begun[order[at]]
        start_ns = np.where(
            (batches["position"] == 0) & (its["epoch"] == batches["epoch"]),
            its["begin_ns"].astype(np.int64),
            start_ns,
        )
    steps = StepColumns(
        batches["epoch"].astype(np.int64),
        batches["position"].astype(np.int64),
        start_ns,
        batches["got_ns"].astype(np.int64),
        None,
        batches["nbytes"],
        np.append(np.maximum(batches["step_queued_ns"][1:], 0), 0),
        np.zeros(len(batches), np.int64),  # validation is not looked up here, nor are other loaders
        np.zeros(len(batches), np.int64),
        batches["flags"] & f.THINNED == 0,
    )
    met = np.stack([meetings[name].astype(np.int64) for name in Meeting._fields], axis=1)
    met = met[np.argsort(met[:, -1], kind="stable")]
    on_cpu = who.get("device", "cpu") == "cpu"
    return rounds_from(steps, met, who["rank"], who["host"], WARMUP_STEPS, on_cpu=on_cpu)


def window_steps(rounds: RankRounds) -> int:
    """Steps of a window, a power of two, so that a minute of them takes 4 KB at most."""
    seconds = float(rounds.end_ns[-1] - rounds.begin_ns[0]) / 1e9
    windows = max(seconds / 60 * _MOST_BYTES_PER_MINUTE / f.ROW_KINDS[f.WINDOW].size, 1.0)
    most = 1
    while rounds.steps.sum() / most > windows:
        most *= 2
    return most


def packed_windows(steps: FoldedSteps) -> bytes:
    """Rows of `WINDOW`."""
    return np.array(steps, dtype="<u4").T.tobytes()
