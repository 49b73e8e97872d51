"""All rules, asked in order; their gains; and what is advised: the best first, pairs included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from unstarve.advise.diagnosis_facts import stock_loader
from unstarve.advise.gain import both, predict
from unstarve.advise.loader_call import code_for
from unstarve.advise.proposal import Proposal
from unstarve.advise.rules import batch_delivery, batch_timing, data_storage, image_decoding, worker_count
from unstarve.intervals import WORTH_IT, WORTH_MENTIONING
from unstarve.model import Advice, Diagnosis, Gain, Rejected, State
from unstarve.words import times, times_interval

Rule = Callable[[Diagnosis], Proposal | Rejected | None]

RULES: tuple[Rule, ...] = (
    worker_count.workers_past_the_cores,
    worker_count.workers_instead_of_none,
    worker_count.workers_on_idle_cores,
    image_decoding.decode_only_the_crop,
    worker_count.cheaper_samples,
    worker_count.one_thread_per_worker,
    worker_count.more_cores,
    data_storage.deeper_disk_queue,
    data_storage.local_copy,
    data_storage.keep_in_memory,
    data_storage.pack_small_files,
    batch_delivery.ring_engine,
    batch_delivery.no_workers,
    batch_delivery.keep_large_memory,
    batch_delivery.cheaper_collate,
    batch_delivery.unpinned,
    batch_delivery.pinned_copies,
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
"""Of the proposals with the largest gains, so many are tried in pairs."""


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
        return (), ()
    advised: list[_Weighed] = []
    rejected: list[Rejected] = []
    for rule in HOST_RULES if state is State.FED else RULES + HOST_RULES:
        found = rule(d)
        if isinstance(found, Rejected):
            rejected.append(found)
        elif found is not None:
            one = _weighed(d, found)
            reason = _against(one)
            if reason is None:
                advised.append(one)
            else:
                rejected.append(Rejected(found.id, found.what, reason))
    advised = _one_per_argument(sorted(advised, key=lambda one: one.predicted, reverse=True))
    pair = _best_pair(d, advised)
    if pair is not None:
        advised.insert(0, pair)
    kept = {one.proposal.id for one in advised}
    return tuple(_advice(d, one) for one in advised), tuple(r for r in rejected if r.id not in kept)


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
        return f"would be slower ({times(gain.predicted, 2)})" if gain.predicted < 0.99 else "would not help"
    if gain.may_be_loss and 1 - gain.low > gain.predicted - 1:
        return f"could as well be slower ({times_interval(gain.predicted, gain.low, gain.high, 2)})"
    return None


def _one_per_argument(ordered: Sequence[_Weighed]) -> list[_Weighed]:
    """Of several values for the same argument, only the best is kept."""
    kept: list[_Weighed] = []
    for one in ordered:
        if all(_arguments(one).isdisjoint(_arguments(other)) for other in kept):
            kept.append(one)
    return kept


def _arguments(one: _Weighed) -> set[str]:
    return set(one.proposal.edit.arguments)


def _best_pair(d: Diagnosis, advised: Sequence[_Weighed]) -> _Weighed | None:
    """The two changes that gain most together, if that is clearly more than the best one alone."""
    best: _Weighed | None = None
    known = [one for one in advised if one.gain is not None][:_MOST_PAIRED]
    for a, b in combinations(known, 2):
        pair = _joined(a.proposal, b.proposal)
        if pair is None:
            continue
        weighed = _weighed(d, pair)
        if weighed.predicted > (best or known[0]).predicted * (1.0 if best else WORTH_IT):
            best = weighed
    return best if best is not None and _against(best) is None else None


def _joined(a: Proposal, b: Proposal) -> Proposal | None:
    edit = a.edit.joined(b.edit)
    likely = None if a.likely is None or b.likely is None else both(a.likely, b.likely)
    if edit is None or likely is None or not (a.edit.changes_call and b.edit.changes_call):
        return None
    return Proposal(
        f"{a.id}+{b.id}",
        f"{a.what} and {b.what}",
        f"Do both: {a.what} and {b.what}",
        f"{a.why}; {b.why}",
        edit,
        likely,
        both(a.worst or a.likely, b.worst or b.likely) if a.likely and b.likely else None,
        both(a.best or a.likely, b.best or b.likely) if a.likely and b.likely else None,
        " ".join(note for note in (a.note, b.note) if note),
    )


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
