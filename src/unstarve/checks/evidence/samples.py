"""Which samples reached training, by the ledger: epochs that repeat themselves, samples that come twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from unstarve.checks.evidence.places import about
from unstarve.model import Diagnosis, Loader, Process, Run, SampleCount
from unstarve.model.finding import Finding
from unstarve.words import amount, counted

_FEWEST_INDICES = 32
"""Fewer may come in the same order twice by chance: 32 do so once in 10³⁵ times."""
_LEAST_SHARE = 0.01
"""Of the samples of an epoch that come twice: a stream may well hold a few equal ones."""


def set_epoch_missed(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """A sampler with an epoch number of its own, which stays the same while epochs go by."""
    for process, loader, epochs in _trained(run):
        told = [one for one in epochs if one.sampler_epoch is not None and one.shuffles is not False]
        repeated = _repeated(told)
        if repeated is None or len({one.sampler_epoch for one in told}) > 1:
            continue
        if process.rank not in (None, 0):
            continue  # said once, for all ranks
        yield about(
            loader,
            "set-epoch-missed",
            f"{counted(repeated, 'epoch')} of {loader.name} came in the same order: its sampler's epoch was "
            f"{told[0].sampler_epoch} in all of them.",
            f"{_variable(loader)}.sampler.set_epoch(epoch)  # the first line of the loop over epochs",
            harm=1.0,
        )


def same_order(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """A sampler that shuffles, and gave two epochs the same order."""
    for process, loader, epochs in _trained(run):
        told = [one for one in epochs if one.shuffles and one.sampler_epoch is None]
        repeated = _repeated(told)
        if repeated is None or process.rank not in (None, 0):
            continue
        yield about(
            loader,
            "same-order",
            f"{counted(repeated, 'epoch')} of {loader.name}, which shuffles, came in the same order.",
            "Create the generator and its seed once, before the loop over epochs, not in every epoch.",
            harm=1.0,
        )


def ranks_not_split(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """Ranks that train on the very same samples."""
    by_place: dict[str, list[tuple[Process, Loader, SampleCount]]] = defaultdict(list)
    for process, loader, epochs in _trained(run):
        if process.rank is not None and epochs and epochs[0].members is not None:
            by_place[loader.where].append((process, loader, epochs[0]))
    for found in by_place.values():
        ranks = {process.rank for process, _, _ in found}
        members = {(one.members, one.indices) for _, _, one in found}
        if len(ranks) < 2 or len(members) > 1 or found[0][2].indices < _FEWEST_INDICES:
            continue
        _, loader, first = found[0]
        yield about(
            loader,
            "ranks-not-split",
            f"All {len(ranks)} ranks of {loader.name} trained on the same "
            f"{counted(first.distinct or 0, 'sample')} in their first epoch.",
            f"sampler = DistributedSampler({_variable(loader)}.dataset)\n"
            "DataLoader(…, sampler=sampler)  # instead of shuffle=True\n"
            "sampler.set_epoch(epoch)  # at the beginning of every epoch",
            harm=1 - 1 / len(ranks),
        )


def dropped_by_collate(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """Whole epochs in which fewer samples were delivered than the sampler gave out."""
    for process, loader, epochs in _trained(run):
        size = loader.config.get("batch_size")
        if not isinstance(size, int):
            continue
        whole = {e.epoch for e in process.epochs if e.loader == loader.id and e.last_ask_ns and not e.error}
        by_epoch: dict[int, list[int | None]] = defaultdict(list)
        for batch in process.batches:
            if batch.loader == loader.id:
                by_epoch[batch.epoch].append(batch.size)
        given = delivered = 0
        for one in epochs:
            sizes = by_epoch[one.epoch]
            if one.epoch in whole and _counts_samples(sizes, size, one.indices):
                given += one.indices
                delivered += sum(n or 0 for n in sizes)
        if given and delivered < given:
            yield about(
                loader,
                "samples-missing",
                f"{counted(given - delivered, 'sample')} of {amount(given)} were fetched for "
                f"{loader.name} and did not reach training: collate_fn leaves them out.",
                "Find out why these samples are unusable and remove them from the dataset; batches then have "
                "the size you asked for.",
                harm=(given - delivered) / given,
            )


def worker_seeds_equal(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """Workers that draw random numbers, and began with the same ones."""
    by_pid = {(p.host, p.pid): p for p in run.processes if p.worker}
    for process, loader, _ in _loaders(run):
        # Persistent workers are one crew in all epochs.
        crews = {crew.pids for crew in process.crews if crew.loader == loader.id and len(crew.pids) > 1}
        workers = [[by_pid.get((process.host, pid)) for pid in pids] for pids in crews]
        for stream in ("numpy", "python", "torch"):
            told = [tuple(w and w.streams.get(stream) for w in crew) for crew in workers]
            seeds = [one for one in told if None not in one]
            alike = next((one for one in seeds if len(set(one)) < len(one)), None)
            if alike is None and len(set(seeds)) == len(seeds):
                continue
            said = (
                f"{counted(len(alike) - len(set(alike)) + 1, 'worker')} of {loader.name} began with the same "
                f"random state ({_LIBRARY[stream]})."
                if alike is not None
                else f"The workers of {loader.name} began with the same random state in several epochs "
                f"({_LIBRARY[stream]})."
            )
            yield about(
                loader,
                "worker-seeds-equal",
                said,
                "def seed_worker(worker_id):\n"
                "    seed = torch.initial_seed() % 2**32  # differs by worker and by epoch\n"
                "    numpy.random.seed(seed)\n"
                "    random.seed(seed)\n"
                "DataLoader(…, worker_init_fn=seed_worker)",
                harm=1.0,
            )
            break


def repeated_samples(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """Equal samples in one epoch, by their digests (`--ledger`): from several workers, or in all."""
    for process, loader, _ in _loaders(run):
        for epoch in sorted({one.epoch for one in process.digested if one.loader == loader.id}):
            batches = [one for one in process.digested if (one.loader, one.epoch) == (loader.id, epoch)]
            samples = Counter(digest for one in batches for digest in one.digests)
            delivered = sum(samples.values())
            if delivered - len(samples) < max(_LEAST_SHARE * delivered, 1):
                continue
            maker = _makers(run, process, loader.id, epoch)
            by_worker: dict[int, set[bytes]] = defaultdict(set)
            for one in batches:
                if one.task in maker:
                    by_worker[maker[one.task]].update(one.digests)
            pairs = [(len(by_worker[a] & by_worker[b]), a, b) for a, b in combinations(sorted(by_worker), 2)]
            shared, a, b = max(pairs, default=(0, 0, 0))
            several = shared >= _LEAST_SHARE * delivered
            said = (
                f"{amount(delivered - len(samples))} of the {counted(delivered, 'sample')} of epoch "
                f"{epoch} are repetitions."
            )
            if several:
                said += f" Workers {a} and {b} delivered {counted(shared, 'equal sample')}."
            yield about(
                loader,
                "iterable-not-split" if several else "samples-repeated",
                said,
                "worker = torch.utils.data.get_worker_info()  # in __iter__\n"
                "first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)\n"
                "yield from itertools.islice(samples, first, None, step)"
                if several
                else "Look for the repetition in the list of files or in the sampler.",
                harm=1 - len(samples) / delivered,
            )
            break


_LIBRARY = {"numpy": "numpy.random", "python": "random", "torch": "torch"}


def _loaders(run: Run) -> Iterator[tuple[Process, Loader, list[SampleCount]]]:
    """Every loader of every training process, with its epochs in order."""
    for process in run.processes:
        if not process.worker:
            for loader in process.loaders:
                counted = [one for one in process.samples if one.loader == loader.id]
                yield process, loader, sorted(counted, key=lambda one: one.epoch)


def _trained(run: Run) -> Iterator[tuple[Process, Loader, list[SampleCount]]]:
    """The same without loaders that validation iterates."""
    for process, loader, epochs in _loaders(run):
        if not any(e.no_grad for e in process.epochs if e.loader == loader.id):
            yield process, loader, epochs


def _repeated(epochs: Sequence[SampleCount]) -> int | None:
    """How many epochs have the order that most have; None when no two have the same."""
    heads = Counter((one.headed, one.head) for one in epochs if one.headed >= _FEWEST_INDICES)
    most = max(heads.values(), default=0)
    return most if most > 1 else None


def _counts_samples(sizes: Sequence[int | None], batch_size: int, indices: int) -> bool:
    """Whether the sizes are numbers of samples: the largest is the one asked for, and few are missing."""
    known = [n for n in sizes if n is not None]
    all_known = len(known) == len(sizes) == -(-indices // batch_size)
    return all_known and max(known, default=0) == batch_size and 2 * sum(known) > batch_size * len(known)


def _makers(run: Run, process: Process, loader: int, epoch: int) -> dict[int, int]:
    """Which worker made each batch of an epoch: its number in the crew, by task."""
    pids = next((c.pids for c in process.crews if (c.loader, c.epoch) == (loader, epoch)), ())
    began = next((e.begin_ns for e in process.epochs if (e.loader, e.epoch) == (loader, epoch)), 0)
    ended = next((e.end_ns for e in process.epochs if (e.loader, e.epoch) == (loader, epoch)), None)
    makers: dict[int, int] = {}
    for one in run.processes:
        if one.worker and one.host == process.host and one.pid in pids:
            for work in one.works:
                if began <= work.begin_ns and (ended is None or work.done_ns <= ended):
                    makers[work.task] = pids.index(one.pid)
    return makers


def _variable(loader: Loader) -> str:
    """The loader's name in the user's source, or one that stands for it."""
    return loader.name if all(part.isidentifier() for part in loader.name.split(".")) else "loader"
