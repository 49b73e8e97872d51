"""A loader's lasting pace, where measuring began with a queue that slow warm-up steps had filled.

Compilation, a search for kernels or a first allocation hold training up while the workers go on. The batches
made meanwhile are there at once when measuring begins, so a short run looks faster than a long one will be.
The measured part is simulated with the recorded warm-up before it, and as it goes on when the queue is used
up: the difference is added to what was measured.
"""

from __future__ import annotations

import dataclasses
import itertools

from unstarve.model import Scenario
from unstarve.predict.demand import LoaderDemand
from unstarve.predict.recorded_run import WarmUp
from unstarve.predict.scenario import Draw, batches_in, fill_in, rounds, setup_of, start_of
from unstarve.predict.simulate import simulate

_MOST_SIMULATED = 160
"""Measured batches that are simulated: by then, the queue is as it will be."""


def lasting_demand(demand: LoaderDemand, draw: Draw) -> LoaderDemand:
    """The same, with the period and the share of waiting that a long run would have."""
    if demand.warm_up is None:
        return demand
    per_batch_s = _saved_s(demand, demand.warm_up, draw.as_recorded()) / demand.warm_up.batches
    period_s = demand.period_s + max(per_batch_s * demand.warm_up.share, -demand.wait_share * demand.period_s)
    return dataclasses.replace(
        demand,
        period_s=period_s,
        wait_share=1 - (1 - demand.wait_share) * demand.period_s / period_s,
        head_start=period_s / demand.period_s,
    )


def _saved_s(demand: LoaderDemand, warm_up: WarmUp, draw: Draw) -> float:
    """Seconds of waiting that the queue saved; below 0 if the last wait was for more than was taken."""
    full = fill_in(demand, Scenario())
    batches, setup = batches_in(demand, full, draw), setup_of(demand, full, draw)
    start = start_of(demand, full, draw)
    early = len(warm_up.steps_s)
    played = min(warm_up.batches, _MOST_SIMULATED)
    slow = [
        one._replace(step_s=0.0, step_delay_s=max(took_s, one.step_s + one.step_delay_s), ahead_s=0.0)
        for one, took_s in zip(itertools.cycle(batches), warm_up.steps_s)
    ]
    measured = [batches[number % len(batches)] for number in range(early, early + played)]
    recorded = simulate([*slow, *measured], early + played + 1, setup, start).ask_s
    settled = early + setup.workers * setup.prefetch
    lasting = simulate(batches, settled + rounds(played, setup) + 1, setup, start).got_s[settled:]
    lasting_s = (lasting[-1] - lasting[0]) / (len(lasting) - 1)
    return played * lasting_s - (recorded[early + played] - recorded[early])
