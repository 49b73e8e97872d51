"""Events → what the training thread did when: a sequence of spans without gaps.

Only the thread that trains counts: a loader consumed in a background thread does not make training wait by
itself, and a loader iterated inside another's ``next()`` is part of that wait. A timeline is about the
training loop, or about one validation loader: the time of other loops lies outside of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from unstarve.analyze.roles import Key, epoch_roles
from unstarve.model import Batch, Doing, Epoch, Phase, Process, Role, Run
from unstarve.model.thinned import Sketch, Thinned

WARMUP_STEPS = 5


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A stretch of time in which the training thread did one thing."""

    doing: Doing
    begin_ns: int
    end_ns: int
    batch: Batch | None = None
    """The batch that the span waited for."""
    sampler_ns: int = 0
    """Sampler time within an ``iter()``."""
    validation: int | None = None
    """Number of the validation loader that it belongs to; None for training."""

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def within(self, begin_ns: int, end_ns: int) -> TimeSpan:
        """The part of the span between two moments."""
        if (
            begin_ns <= self.begin_ns
            and self.end_ns <= end_ns
            and self.sampler_ns <= self.end_ns - self.begin_ns
        ):
            return self
        begin_ns, end_ns = max(self.begin_ns, begin_ns), min(self.end_ns, end_ns)
        sampler_ns = min(self.sampler_ns, end_ns - begin_ns)
        return TimeSpan(self.doing, begin_ns, end_ns, self.batch, sampler_ns, self.validation)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the main loader inside one epoch: from one delivery to the next."""

    begin_ns: int
    end_ns: int
    wait_s: float
    """Waiting for any loader during the step."""
    seconds: float
    """Its duration without other loops inside it, such as validation in the middle of an epoch."""
    number: int = 1
    """Of a long run: it stands for so many steps, and its times are sums."""
    sketch: Sketch = ()
    """Of their durations; empty for one step."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """One process's training thread."""

    process: Process
    main: int
    """Number of the main loader: the training loader whose epochs cover the most time."""
    spans: tuple[TimeSpan, ...]
    """All of the recorded time, in order, from the first ``iter()`` to the last event."""
    own: tuple[TimeSpan, ...]
    """Those of the loop that the timeline is about, from its first ``iter()`` on."""
    measured: tuple[TimeSpan, ...]
    """`own` without warm-up, up to the end of the last step; for `unstarve ideal`, the real steps."""
    batches: tuple[Batch, ...]
    """The main loader's batches."""
    measured_batches: tuple[Batch, ...]
    steps: tuple[Step, ...]
    """The main loader's measured steps."""
    others: frozenset[Key]
    """The epochs of other loops."""

    @property
    def wall_s(self) -> float:
        return sum(span.seconds for span in self.spans)

    @property
    def measured_s(self) -> float:
        return sum(span.seconds for span in self.measured)

    @property
    def wait_s(self) -> float:
        return sum(span.seconds for span in self.measured if span.doing in (Doing.START, Doing.WAIT))


def training_processes(run: Run) -> list[Process]:
    """The processes that train: all ranks, or without ranks the one that iterated loaders longest.

    Of ranks that were restarted, those of the attempt with the most batches.
    """
    candidates = [p for p in run.processes if not p.worker and p.batches]
    ranked = [p for p in candidates if p.rank is not None]
    if ranked:
        batches = dict.fromkeys(sorted({p.attempt for p in ranked}, reverse=True), 0)
        for process in ranked:
            batches[process.attempt] += len(process.batches)
        chosen = max(batches, key=lambda attempt: batches[attempt])
        return [process for process in ranked if process.attempt == chosen]
    return sorted(candidates, key=lambda p: p.batches[0].ask_ns - p.batches[-1].got_ns)[:1]


def timelines_of(run: Run, warmup_steps: int) -> list[Timeline]:
    """The timelines of the processes that train; processes that received no batch are left out.

    An imported window has no warm-up: it was chosen to be typical.
    """
    left_out = 0 if run.kind == "import" else warmup_steps
    return [t for p in training_processes(run) if (t := build_timeline(p, left_out)) is not None]


def build_timeline(process: Process, warmup_steps: int, validation: Collection[int] = ()) -> Timeline | None:
    """The timeline of a process; None when its training thread received no batch, or all in no time.

    It is about the training loop, or about the validation epochs of the loaders with these numbers.
    """
    outer = [batch for batch in process.batches if not batch.nested]
    if not outer:
        return None
    roles = epoch_roles(process)
    validating = {key for key, role in roles.items() if role is Role.VALIDATION}
    thread = training_thread([b for b in outer if (b.loader, b.epoch) not in validating] or outer)
    batches = _one_after_the_other([batch for batch in outer if batch.thread == thread])
    epochs = [epoch for epoch in process.epochs if epoch.thread == thread and not epoch.nested]
    keys = {(epoch.loader, epoch.epoch) for epoch in epochs}
    training, apart = _loops(roles, {(batch.loader, batch.epoch) for batch in batches})
    spans = _spans(batches, epochs, apart)
    if validation:
        training = {key for key in apart if key[0] in validation}
    own_batches = [batch for batch in batches if (batch.loader, batch.epoch) in training]
    if not spans or not own_batches:
        return None
    main = _main_loader(own_batches, [epoch for epoch in epochs if (epoch.loader, epoch.epoch) in training])
    own = tuple(batch for batch in own_batches if batch.loader == main)
    begins = [e.begin_ns for e in epochs if (e.loader, e.epoch) in training] or [own_batches[0].ask_ns]
    looped = _clipped([span for span in spans if span.validation in (validation or (None,))], min(begins))
    if not looped:
        return None
    if any(batch.block for batch in own):
        measured_batches = _real_steps(own)
        steps = _steps(measured_batches, own, epochs, looped)
        measured = _covered(looped, steps)
    else:
        # What stands for thousands of batches is no warm-up.
        warmup_steps = next((at for at, one in enumerate(own[:warmup_steps]) if one.thinned), warmup_steps)
        measured_batches = own[warmup_steps:]
        begin_ns = measured_batches[0].ask_ns if warmup_steps and measured_batches else 0
        measured = _without_end(_clipped(looped, begin_ns)) if measured_batches else ()
        steps = _steps(measured_batches, own, epochs, looped)
    others = keys - training if validation else apart
    return Timeline(process, main, spans, looped, measured, own, measured_batches, steps, frozenset(others))


def _loops(roles: Mapping[Key, Role], delivered: set[Key]) -> tuple[set[Key], set[Key]]:
    """The epochs of the training loop, and those of validation, among those that delivered batches.

    A run without training is one loop, whatever its role.
    """
    by_role = {role: {key for key in delivered if roles.get(key, Role.UNKNOWN) is role} for role in Role}
    training = by_role[Role.TRAIN] or by_role[Role.UNKNOWN]
    if not training:
        return delivered, set()
    return training, {key for key, role in roles.items() if role is Role.VALIDATION}


def _without_end(spans: tuple[TimeSpan, ...]) -> tuple[TimeSpan, ...]:
    """Without what follows the last step: the last epoch's end."""
    count = len(spans)
    while count and spans[count - 1].doing in (Doing.END, Doing.BETWEEN):
        count -= 1
    return spans[:count]


def training_thread(batches: Iterable[Batch]) -> int:
    """The main thread if it takes batches, else the thread that takes the most."""
    counts = Counter[int]()
    for batch in batches:
        counts[batch.thread] += batch.weight
    return 0 if 0 in counts else counts.most_common(1)[0][0]


def _one_after_the_other(batches: list[Batch]) -> list[Batch]:
    """Drop overlapping waits: a thread waits for one batch at a time, whatever a damaged file says."""
    kept: list[Batch] = []
    for batch in batches:
        if not kept or batch.ask_ns >= kept[-1].got_ns:
            kept.append(batch)
    return kept


def _main_loader(batches: list[Batch], epochs: list[Epoch]) -> int:
    last_got: dict[tuple[int, int], int] = {}
    counts: Counter[int] = Counter()
    for batch in batches:
        last_got[batch.loader, batch.epoch] = batch.got_ns
        counts[batch.loader] += batch.weight
    covered: defaultdict[int, float] = defaultdict(float)
    for epoch in epochs:
        end_ns = epoch.end_ns or last_got.get((epoch.loader, epoch.epoch), epoch.ready_ns)
        covered[epoch.loader] += (end_ns - epoch.begin_ns) / 1e9
    longest = max(covered.values(), default=0.0)
    # Loaders iterated side by side cover nearly the same time: the first of them is the main one.
    leaders = [loader for loader in counts if covered[loader] >= 0.98 * longest]
    return min(leaders or counts, key=lambda loader: (-counts[loader], loader))


def _spans(batches: list[Batch], epochs: list[Epoch], validation: set[Key]) -> tuple[TimeSpan, ...]:
    """Waits and starts as recorded, and what lies between them.

    What lies between two events of validation belongs to the first one's loader.
    """
    of = {key: key[0] for key in validation}
    marks: list[tuple[TimeSpan, bool]] = []  # whether an epoch ends here
    last_got: dict[tuple[int, int], int] = {}
    for batch in batches:
        doing = Doing.START if batch.position == 0 else Doing.WAIT
        loader = of.get((batch.loader, batch.epoch))
        marks.append((TimeSpan(doing, batch.ask_ns, batch.got_ns, batch, validation=loader), False))
        last_got[batch.loader, batch.epoch] = batch.got_ns
    covers: list[tuple[int, int]] = []
    for epoch in epochs:
        loader = of.get((epoch.loader, epoch.epoch))
        start = TimeSpan(Doing.START, epoch.begin_ns, epoch.ready_ns, None, epoch.sampler_ns, loader)
        marks.append((start, False))
        if epoch.last_ask_ns is not None and epoch.end_ns is not None:
            end = TimeSpan(Doing.END, epoch.last_ask_ns, epoch.end_ns, validation=loader)
            marks.append((end, True))
        end_ns = epoch.end_ns or last_got.get((epoch.loader, epoch.epoch), epoch.ready_ns)
        covers.append((epoch.begin_ns, end_ns))
    marks.sort(key=lambda mark: (mark[0].begin_ns, mark[0].end_ns))
    covers.sort(reverse=True)
    spans: list[TimeSpan] = []
    at, after_epoch, covered_ns, before = marks[0][0].begin_ns, False, -1, marks[0][0].validation
    for mark, ends_epoch in marks:
        if mark.begin_ns > at:
            while covers and covers[-1][0] < at:
                covered_ns = max(covered_ns, covers.pop()[1])
            outside = after_epoch and covered_ns <= at
            doing = Doing.BETWEEN if outside else Doing.STEP
            loader = None if mark.validation is None else before
            spans.append(TimeSpan(doing, at, mark.begin_ns, validation=loader))
        if mark.end_ns > at:
            spans.append(mark.within(at, mark.end_ns))
            at = mark.end_ns
        after_epoch, before = ends_epoch, mark.validation
    return tuple(spans)


def _real_steps(own: tuple[Batch, ...]) -> tuple[Batch, ...]:
    """For `unstarve ideal`: settled real batches whose step ends with a real wait, not with a replay."""
    return tuple(
        batch
        for batch, after in pairwise(own)
        if batch.block and batch.phase is after.phase is Phase.REAL and not batch.settling
    )


def _clipped(spans: Iterable[TimeSpan], begin_ns: int) -> tuple[TimeSpan, ...]:
    return tuple(span.within(begin_ns, span.end_ns) for span in spans if span.end_ns > begin_ns)


def _steps(
    measured: tuple[Batch, ...], own: tuple[Batch, ...], epochs: list[Epoch], spans: tuple[TimeSpan, ...]
) -> tuple[Step, ...]:
    """Steps that begin with a measured batch and end inside the same epoch."""
    following = {id(batch): after for batch, after in pairwise(own)}
    loader = own[0].loader
    last_ask = {e.epoch: e.last_ask_ns for e in epochs if e.loader == loader}
    waited_ns = passed_ns([s for s in spans if s.doing in (Doing.WAIT, Doing.START)])
    own_ns = passed_ns(spans)
    steps: list[Step] = []
    for batch in measured:
        after = following.get(id(batch))
        if batch.thinned is not None:
            steps += _thinned_steps(batch, batch.thinned, waited_ns)
        if after is not None and after.thinned is not None:
            continue  # the step that ends there is one of its own
        begin_ns = batch.last_ns
        end_ns = last_ask.get(batch.epoch) if after is None or after.epoch != batch.epoch else after.got_ns
        if end_ns is not None and after is not None:
            end_ns = min(end_ns, after.got_ns)
        if end_ns is not None and end_ns > begin_ns:
            wait_s = (waited_ns(end_ns) - waited_ns(begin_ns)) / 1e9
            seconds = (own_ns(end_ns) - own_ns(begin_ns)) / 1e9
            steps.append(Step(begin_ns, end_ns, wait_s, seconds))
    return tuple(steps)


def _thinned_steps(batch: Batch, thinned: Thinned, waited_ns: Callable[[int], int]) -> Iterator[Step]:
    """The steps that ended with the batches that this one stands for."""
    if thinned.steps and thinned.step_ns:
        seconds = thinned.step_ns / 1e9
        wait_s = min((waited_ns(thinned.end_ns) - waited_ns(batch.ask_ns)) / 1e9, seconds)
        yield Step(batch.ask_ns, thinned.end_ns, wait_s, seconds, thinned.steps, thinned.step_sketch)


def passed_ns(spans: Sequence[TimeSpan]) -> Callable[[int], int]:
    """A function of time: how much of the spans lies before it."""
    ends = [span.end_ns for span in spans]
    before = list(accumulate((span.end_ns - span.begin_ns for span in spans), initial=0))

    def until(at_ns: int) -> int:
        ended = bisect_right(ends, at_ns)
        return before[ended] + (max(at_ns - spans[ended].begin_ns, 0) if ended < len(spans) else 0)

    return until


def _covered(spans: tuple[TimeSpan, ...], steps: tuple[Step, ...]) -> tuple[TimeSpan, ...]:
    """The parts of the spans inside the steps; both are in order."""
    covered: list[TimeSpan] = []
    at = 0
    for step in steps:
        while at < len(spans) and spans[at].end_ns <= step.begin_ns:
            at += 1
        look = at
        while look < len(spans) and spans[look].begin_ns < step.end_ns:
            covered.append(spans[look].within(step.begin_ns, step.end_ns))
            look += 1
    return tuple(covered)
