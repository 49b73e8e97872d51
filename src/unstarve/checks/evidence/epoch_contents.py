"""Batches that some ranks, workers or epochs do not get, as far as a run shows it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from unstarve.advise.diagnosis_facts import stock_loader
from unstarve.analyze.loader_summary import loader_key
from unstarve.analyze.roles import Key
from unstarve.analyze.timeline import training_processes
from unstarve.checks.evidence.lost_time import setting
from unstarve.checks.evidence.places import about
from unstarve.model import Diagnosis, Finding, LoaderSummary, Process, Role, Run
from unstarve.words import mean_count, percent, workers

_WORTH = 0.05
"""Smallest share of an epoch that is worth reporting."""
_WHOLE_SAMPLERS = ("RandomSampler", "SequentialSampler")


def uneven_ranks(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """A rank whose epoch ended while another rank had more batches."""
    ranks = [process for process in training_processes(run) if process.rank is not None]
    for loader in d.loaders if len(ranks) > 1 else ():
        if loader.role is Role.VALIDATION or loader.nested or loader.background:
            continue
        taken: defaultdict[Key, dict[int, int]] = defaultdict(dict)
        ended: defaultdict[Key, set[int]] = defaultdict(set)
        for process in ranks:
            rank = process.rank or 0
            for key, (count, whole) in _epochs(process, loader).items():
                taken[key][rank] = count
                ended[key] |= {rank} if whole else set()
        for key, counts in taken.items():
            least = min(ended[key], key=lambda rank: counts[rank], default=None)
            most = max(counts, key=lambda rank: counts[rank])
            if least is not None and counts[least] < counts[most]:
                yield about(
                    loader,
                    "uneven-ranks",
                    f"In epoch {key[1]} of {loader.name}, rank {least} had {mean_count(counts[least])} "
                    f"batches and rank {most} {mean_count(counts[most])}.",
                    "Give every rank the same number: DistributedSampler for a map-style dataset, "
                    "itertools.islice(stream, n) for a stream, or Join from torch.distributed.algorithms.",
                    1 - counts[least] / counts[most],
                )
                break


def fewer_shards_than_workers(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Workers of a stream with nothing to read: too few shards, or no sample in a whole epoch."""
    loader = stock_loader(d)
    if loader is None or not loader.dataset.get("iterable"):
        return
    count, shards = int(loader.config["num_workers"]), loader.dataset.get("shards")
    if count > 1 and isinstance(shards, int) and 0 < shards < count:
        seen = f"The stream of {loader.name} has {shards} shard{'s' * (shards != 1)} for {workers(count)}"
        yield _idle_workers(loader, seen, count - shards, count)
        return
    for process in training_processes(run)[:1]:
        made = {
            (p.host, p.pid): sum(work.weight for work in p.works if not work.failed)
            for p in run.processes
            if p.worker
        }
        own = {one.id for one in process.loaders if loader_key(one) == loader_key(loader)}
        whole = {e.epoch for e in process.epochs if e.loader in own and _ended(e.end_ns, e.error)}
        for crew in process.crews:
            if crew.loader not in own or crew.epoch not in whole or len(crew.pids) < 2:
                continue
            counts = [made.get((process.host, pid)) for pid in crew.pids]
            known = [count for count in counts if count is not None]
            idle = known.count(0)
            if len(known) == len(counts) and idle and sum(known) >= 2 * len(counts):
                seen = f"{idle} of {workers(len(counts))} of {loader.name} had no sample in a whole epoch"
                yield _idle_workers(loader, seen, idle, len(counts))
                return


def _idle_workers(loader: LoaderSummary, seen: str, idle: int, count: int) -> Finding:
    fewer = setting(loader, num_workers=count - idle)[:-1]
    fix = f"{fewer}, or split the stream into at least {count} shards."
    return about(loader, "fewer-shards-than-workers", f"{seen}.", fix, idle / count)


def drop_last_loses(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """An incomplete last batch that is a good part of the epoch."""
    for loader in d.loaders:
        length, batch = loader.config.get("dataset_len"), loader.config.get("batch_size")
        if not loader.config.get("drop_last") or loader.config.get("sampler") not in _WHOLE_SAMPLERS:
            continue
        if not isinstance(length, int) or not isinstance(batch, int) or not length or loader.samples is None:
            continue
        lost = length % batch
        whole = [whole for p in training_processes(run) for _, whole in _epochs(p, loader).values()]
        delivered = (length - lost) * len(whole)
        if lost < _WORTH * length or not whole or not all(whole) or loader.samples != delivered:
            continue
        yield about(
            loader,
            "drop-last-loses",
            f"{loader.name} drops {mean_count(lost)} of {mean_count(length)} samples in every epoch "
            f"({percent(lost / length)}): batch_size={batch} and drop_last=True.",
            f"{setting(loader, drop_last=False)[:-1]}, or choose a smaller batch_size.",
            lost / length,
        )


def _epochs(process: Process, loader: LoaderSummary) -> dict[Key, tuple[int, bool]]:
    """Batches of each epoch of a loader, and whether the epoch was iterated to its end."""
    own = {one.id for one in process.loaders if loader_key(one) == loader_key(loader)}
    counts: Counter[Key] = Counter()
    for batch in process.batches:
        if batch.loader in own:
            counts[batch.loader, batch.epoch] += batch.weight
    return {
        key: (counts[key], _ended(epoch.end_ns, epoch.error))
        for epoch in process.epochs
        if (key := (epoch.loader, epoch.epoch))[0] in own
    }


def _ended(end_ns: int | None, error: str | None) -> bool:
    return end_ns is not None and error is None
