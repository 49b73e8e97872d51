"""Processes → one summary per loader, over all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from unstarve.analyze.roles import epoch_roles, loader_role
from unstarve.analyze.stats import known_total, number_of, wait_spread_ms
from unstarve.model import Batch, Epoch, Loader, LoaderSummary, Phase, Process, Role

MOST_LOADERS = 500

LoaderKey = tuple[str, str, str]
"""Name, place and kind: what makes loaders of several ranks one."""


@dataclass
class _Gathered:
    loader: Loader
    batches: list[Batch] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    roles: set[Role] = field(default_factory=set)
    draws: list[bool] = field(default_factory=list)
    """Whether each worker drew random numbers, of those that told."""


def loader_key(loader: Loader | LoaderSummary) -> LoaderKey:
    """Loaders of the same name and place are told apart by their dataset, which ranks agree on."""
    return loader.name, loader.where, f"{loader.kind} {loader.config.get('dataset')}"


def summarize_loaders(
    processes: Sequence[Process], workers: Sequence[Process] = ()
) -> tuple[LoaderSummary, ...]:
    """The loaders that these processes iterated, busiest first, at most `MOST_LOADERS`.

    `workers` may be any processes of the run: its workers know whether samples are random.
    """
    drew = {(one.host, one.pid): one.draws for one in workers if one.draws is not None}
    gathered: dict[LoaderKey, _Gathered] = {}
    for process in processes:
        roles = epoch_roles(process)
        batches: defaultdict[int, list[Batch]] = defaultdict(list)
        epochs: defaultdict[int, list[Epoch]] = defaultdict(list)
        for batch in process.batches:
            batches[batch.loader].append(batch)
        for epoch in process.epochs:
            epochs[epoch.loader].append(epoch)
        for loader in process.loaders:
            into = gathered.setdefault(loader_key(loader), _Gathered(loader))
            into.roles.add(loader_role(loader.id, roles))
            crews = [crew.pids for crew in process.crews if crew.loader == loader.id]
            into.draws += [
                drew[who] for pids in crews for pid in pids if (who := (process.host, pid)) in drew
            ]
            into.batches += batches[loader.id]
            into.epochs += epochs[loader.id]
    busiest = sorted(gathered.values(), key=lambda one: -number_of(one.batches))[:MOST_LOADERS]
    summaries = [_summary(one) for one in busiest]
    return tuple(sorted(summaries, key=lambda s: (s.nested, s.background, -s.steps)))


def _summary(gathered: _Gathered) -> LoaderSummary:
    loader, batches, epochs = gathered.loader, gathered.batches, gathered.epochs
    real = [batch for batch in batches if batch.phase is Phase.REAL]
    later = [batch for batch in real if batch.position > 0]
    first_s = sum(batch.wait_ns for batch in real if batch.position == 0) / 1e9
    making_s = sum(epoch.ready_ns - epoch.begin_ns for epoch in epochs) / 1e9
    return LoaderSummary(
        name=loader.name,
        where=loader.where,
        kind=loader.kind,
        config=loader.config,
        steps=number_of(batches),
        epochs=len(epochs),
        wait_s=sum(batch.wait_ns for batch in later) / 1e9,
        startup_s=first_s + making_s,
        samples=known_total([batch.size for batch in batches]),
        bytes=known_total([batch.nbytes for batch in batches]),
        nested=bool(epochs) and all(epoch.nested for epoch in epochs),
        background=bool(batches) and all(batch.thread != 0 for batch in batches),
        wait_ms=wait_spread_ms(later or real),
        source=loader.source,
        tensors=loader.tensors,
        statement=loader.statement,
        role=next((r for r in (Role.TRAIN, Role.VALIDATION) if r in gathered.roles), Role.UNKNOWN),
        dataset={**loader.dataset, "draws": any(gathered.draws)} if gathered.draws else loader.dataset,
        maker=loader.maker,
    )
