"""All rules, asked in order; their gains; and what is advised: the best first, pairs included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from unstarve.advise.asked_questions import about_workers
from unstarve.advise.diagnosis_facts import stock_loader, workers_of
from unstarve.advise.gain import both, likely_speedup, predict
from unstarve.advise.loader_call import STOCK, code_for
from unstarve.advise.proposal import Edit, Outcome, Proposal
from unstarve.advise.rules import (
    batch_delivery,
    batch_timing,
    data_storage,
    device_copies,
    image_decoding,
    kept_samples,
    remote_samples,
    unseen_batches,
    watched_sources,
    worker_count,
)
from unstarve.advise.sample_facts import takes_engine
from unstarve.intervals import WORTH_IT, WORTH_MENTIONING
from unstarve.model import Advice, Diagnosis, Gain, Rejected, Scenario, State
from unstarve.model.saved import NEED_WORKERS
from unstarve.words import times, times_interval

Rule = Callable[[Diagnosis], Proposal | Rejected | None]

RULES: tuple[Rule, ...] = (
    worker_count.workers_past_the_cores,
    remote_samples.fetch_ahead,
    remote_samples.read_ahead,
    watched_sources.parallel_source,
    worker_count.more_shards,
    worker_count.workers_instead_of_none,
    worker_count.workers_on_idle_cores,
    image_decoding.decode_only_the_crop,
    image_decoding.decode_on_the_gpu,
    image_decoding.keep_decoded,
    worker_count.cheaper_samples,
    worker_count.one_thread_per_worker,
    worker_count.more_cores,
    data_storage.deeper_disk_queue,
    data_storage.local_copy,
    data_storage.smaller_chunks,
    data_storage.read_less,
    data_storage.mapped_pages,
    kept_samples.keep_in_memory,
    kept_samples.rows_in_memory,
    data_storage.tensor_files,
    data_storage.pack_small_files,
    batch_delivery.ring_engine,
    batch_delivery.no_workers,
    batch_delivery.keep_large_memory,
    batch_delivery.cheaper_collate,
    batch_delivery.unpinned,
    device_copies.copies_beside_the_step,
    device_copies.pinned_copies,
    device_copies.copies_that_do_not_block,
    batch_delivery.cheaper_sampler,
    batch_timing.persistent_workers,
    batch_timing.no_workers_to_start,
    batch_timing.lighter_dataset,
    batch_timing.any_order,
    batch_timing.deeper_prefetch,
    batch_timing.level_samples,
)
"""Advice with equal gains comes in this order."""

HOST_RULES: tuple[Rule, ...] = (worker_count.fewer_workers, batch_timing.lighter_loop)
"""Rules about the training process, not its data: they apply to a fed training, too."""

_MOST_PAIRED = 5
"""Proposals with the largest gains that are tried in pairs."""
_SLOWER = 0.99
"""A change of less is none."""
_DIGITS = 2
_FETCHING = ("cpu", "disk", "remote")


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A proposal and its predicted gain."""

    proposal: Proposal
    gain: Gain | None

    @property
    def predicted(self) -> float:
        return 0.0 if self.gain is None else self.gain.predicted


def advise(d: Diagnosis) -> tuple[tuple[Advice, ...], tuple[Rejected, ...]]:
    """What to change, largest predicted gain first, and what was considered and rejected.

    Nothing when data is not the problem.
    """
    state = d.verdict.state
    if state is State.INCONCLUSIVE:
        watched = unseen_batches.watch_batches(d)
        return (() if watched is None else (watched,)), ()
    advised: list[_Weighed] = []
    rejected: list[Rejected] = []
    answered: set[str] = set()
    for rule in HOST_RULES if state is State.FED else RULES + HOST_RULES:
        found = _applicable(d, rule(d))
        if isinstance(found, Rejected):
            rejected.append(found)
        elif found is not None:
            one = _weighed(d, found)
            reason = _against(one)
            if reason is None:
                advised.append(one)
            elif found.edit.changes_call and state is not State.FED:  # nobody asks about the others
                rejected.append(Rejected(found.id, found.what, reason))
                answered |= _arguments(one)
    advised = _one_per_argument(sorted(advised, key=lambda one: one.predicted, reverse=True))
    answered |= {name for one in advised for name in _arguments(one)}
    told = "num_workers" in answered or any(one.id == "more-workers" for one in rejected)
    question = None if told or state is State.FED else about_workers(d)
    pair = _best_pair(d, advised)
    if pair is not None:
        advised.insert(0, pair)
    considered = rejected if question is None else [question, *rejected]
    return tuple(_advice(d, one) for one in advised), tuple(_still_asked(considered, advised))


def _applicable(d: Diagnosis, found: Proposal | Rejected | None) -> Proposal | Rejected | None:
    loader = stock_loader(d)
    if not isinstance(found, Proposal) or not found.edit.engine or loader is None or takes_engine(loader):
        return found
    return _without_engine(found)


def _without_engine(proposal: Proposal) -> Proposal | None:
    """The same with torch's loader: only its dataset is another; None if there is nothing else to change."""
    edit = proposal.edit
    if edit.dataset is None:
        return None
    arguments = {name: value for name, value in edit.arguments.items() if name in STOCK}
    return replace(
        proposal,
        edit=replace(edit, arguments=arguments, engine=False),
        likely=_fetched(proposal.likely),
        worst=_fetched(proposal.worst),
        best=_fetched(proposal.best),
    )


def _fetched(outcome: Outcome | None) -> Outcome | None:
    """What of it concerns fetching: torch's loader collates and delivers batches as before."""
    if not isinstance(outcome, Scenario):
        return outcome
    left = {stage: share for stage, share in outcome.left.items() if stage in _FETCHING}
    return replace(outcome, workers=None, left=left)


def _still_asked(rejected: Iterable[Rejected], advised: Sequence[_Weighed]) -> Iterator[Rejected]:
    """Rejections that no advice answers, each change once."""
    seen = {one.proposal.id for one in advised} | {one.proposal.what for one in advised}
    for one in rejected:
        if one.id not in seen and one.what not in seen:
            seen.add(one.what)
            yield one


def _weighed(d: Diagnosis, proposal: Proposal) -> _Weighed:
    if proposal.likely is None:
        return _Weighed(proposal, None)
    return _Weighed(proposal, predict(d, proposal.likely, worst=proposal.worst, best=proposal.best))


def _against(one: _Weighed) -> str | None:
    """Why a change is not advised: it gains too little, or may lose more than it gains."""
    gain = one.gain
    if gain is None:
        return None
    if gain.predicted < (one.proposal.least or WORTH_MENTIONING):
        return (
            f"would be slower, {times(gain.predicted, 2)}" if gain.predicted < _SLOWER else "would not help"
        )
    if gain.may_be_loss and 1 - gain.low > gain.predicted - 1:
        return f"could be slower, {times_interval(gain.predicted, gain.low, gain.high, 2)}"
    return None


def _one_per_argument(ordered: Sequence[_Weighed]) -> list[_Weighed]:
    """Of several values for the same argument of the same loader and dataset, only the best is kept."""
    kept: list[_Weighed] = []
    for one in ordered:
        alike = [other for other in kept if _made_of(other) == _made_of(one)]
        if all(_arguments(one).isdisjoint(_arguments(other)) for other in alike):
            kept.append(one)
    return kept


def _arguments(one: _Weighed) -> set[str]:
    return set(one.proposal.edit.arguments)


def _made_of(one: _Weighed) -> tuple[str | None, bool]:
    return one.proposal.edit.dataset, one.proposal.edit.engine


def _best_pair(d: Diagnosis, advised: Sequence[_Weighed]) -> _Weighed | None:
    """The two changes that gain most together, if that is clearly more than the best one alone."""
    known = [one for one in advised if one.gain is not None][:_MOST_PAIRED]
    found = [
        (speedup, pair)
        for a, b in combinations(known, 2)
        if (pair := _joined(d, a, b)) is not None and (speedup := likely_speedup(d, pair.likely)) is not None
    ]
    speedup, pair = max(found, key=lambda one: one[0], default=(0.0, None))
    if pair is None or speedup <= known[0].predicted * WORTH_IT:
        return None
    best = _weighed(d, pair)
    return best if best.predicted > known[0].predicted * WORTH_IT and _against(best) is None else None


def _joined(d: Diagnosis, a: _Weighed, b: _Weighed) -> Proposal | None:
    """Both changes as one; None when they exclude each other or are not made in the loader's call."""
    first, second = a.proposal, b.proposal
    if first.alone or second.alone or not (first.edit.changes_call and second.edit.changes_call):
        return None
    edit = first.edit.joined(second.edit)
    if edit is None or _needs_absent_workers(d, edit):
        return None
    likely = both(first.likely, second.likely)
    if likely is None:
        return None
    alone = ", ".join(f"{one.proposal.what} {times(one.predicted, _DIGITS)}" for one in (a, b))
    return Proposal(
        f"{first.id}+{second.id}",
        f"{first.what} with {second.what}",
        f"Combine {first.what} with {second.what}",
        f"each alone would gain less: {alone}",
        edit,
        likely,
        both(first.worst or first.likely, second.worst or second.likely),
        both(first.best or first.likely, second.best or second.likely),
        " ".join(note for note in (first.note, second.note) if note),
    )


def _needs_absent_workers(d: Diagnosis, edit: Edit) -> bool:
    """Whether it sets what only workers need, and there would be none."""
    count = edit.arguments.get("num_workers", workers_of(d))
    return not count and any(edit.arguments.get(name) for name in NEED_WORKERS)


def _advice(d: Diagnosis, one: _Weighed) -> Advice:
    proposal = one.proposal
    return Advice(
        proposal.id,
        proposal.title,
        proposal.why,
        dict(proposal.edit.arguments),
        one.gain,
        code_for(stock_loader(d), proposal.edit),
        proposal.note,
        proposal.command,
        parts=tuple(proposal.id.split("+")) if "+" in proposal.id else (),
    )
