"""What a search asks for and concludes, on machines whose speed is a formula."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from unstarve.model import LoaderSettings
from unstarve.tune.bounds import Bounds, WorkerLimits
from unstarve.tune.cpu_clock import CpuTime
from unstarve.tune.search import Search
from unstarve.tune.search_result import SearchResult
from unstarve.tune.step_window import Block, StepWindow
from unstarve.tune.window_forecast import BatchFacts, WindowForecast, forecast_from
from unstarve.tune.window_reading import blocked_share, costs_to_receive, limit_of

TWO_CORES = WorkerLimits(cores=2, max_workers=16)


@dataclass
class Training:
    """A training on a machine with two cores; all in seconds per batch."""

    step_s: float = 0.002
    blocked_s: float = 0.0
    cpu_s: float = 0.0
    handoff_s: float = 0.0
    """CPU time of a worker, and as much in the training process, that it takes to hand a batch over."""
    sending_s: float = 0.0
    """CPU time that only a worker takes to hand a batch over: for shared memory that is new each time."""
    limit_s: float = 0.0
    """What a disk needs for a batch, however many ask."""
    tail_s: float = 0.0
    """What depth evens out."""
    image_cpu_s: float = 0.0
    """CPU time of a batch whose images unstarve reads."""
    gpu_image_s: float = 0.0
    """Time of a batch whose images the GPU decodes."""
    kept_s: float = 0.0002
    """Time to take a batch from memory, with a part that has it there."""
    noise: float = 0.0
    seed: int = 0
    tried: list[LoaderSettings] = field(default_factory=list)

    def window(self, settings: LoaderSettings) -> StepWindow:
        self.tried.append(settings)
        period, wait, workers_cpu = self._steps(settings)
        random.seed(f"{self.seed} {len(self.tried)}")
        drift = random.gauss(1, self.noise)
        blocks = tuple(Block(10, 10 * period * drift * random.gauss(1, self.noise / 2)) for _ in range(8))
        in_wait = self.cpu_s if settings.num_workers == 0 else self.handoff_s
        main = self.step_s + in_wait + (self.image_cpu_s if settings.part == "images" else 0.0)
        cpu = CpuTime(main, workers_cpu, in_wait, self.step_s, kernel_s=self.sending_s)
        return StepWindow(settings, blocks, wait, cpu)

    def _steps(self, settings: LoaderSettings) -> tuple[float, float, float]:
        count = settings.num_workers
        if settings.part in ("images", "gpu_images"):
            making = (self.blocked_s + self.image_cpu_s) / TWO_CORES.cores
            if settings.part == "gpu_images":
                making = self.blocked_s / TWO_CORES.cores + self.gpu_image_s
            period = max(self.step_s, making)
            return period, period - self.step_s, 0.0
        if settings.part in ("cached", "gather"):
            handed_s = self.kept_s + (self.handoff_s if count else 0.0)
            return self.step_s + handed_s, handed_s, 0.0
        if count == 0:
            wait = self.cpu_s + max(self.blocked_s, self.limit_s) + self.tail_s
            return self.step_s + wait, wait, 0.0
        handoff_s, sending_s = (0.0, 0.0) if settings.part == "ring" else (self.handoff_s, self.sending_s)
        worker_cpu = self.cpu_s + handoff_s + sending_s
        receiving = self.step_s + handoff_s
        making = (self.blocked_s + worker_cpu + self.tail_s / (settings.prefetch_factor or 1)) / count
        crowd = 1 + 0.02 * max(count - 2, 0) if self.cpu_s else 1.0
        period = max(receiving, making, crowd * (receiving + worker_cpu) / 2, self.limit_s)
        return period, period - self.step_s, crowd * worker_cpu


def foretell(window: StepWindow) -> WindowForecast | None:
    return forecast_from(window, TWO_CORES.cores, BatchFacts())


def search(
    training: Training,
    own: LoaderSettings,
    present: LoaderSettings | None = None,
    forecast: Any = foretell,
    **bounds: object,
) -> SearchResult:
    asking = Search(own, present or own, Bounds(TWO_CORES, **bounds), forecast).run()  # type: ignore[arg-type]
    wanted = next(asking)
    while True:
        try:
            wanted = asking.send(training.window(wanted))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def best_of_all(training: Training) -> float:
    grid = [LoaderSettings(0)] + [LoaderSettings(w, p) for w in range(1, 17) for p in range(1, 9)]
    return min(training._steps(settings)[0] for settings in grid)


TRAININGS: dict[str, Callable[[], Training]] = {
    "latency": lambda: Training(blocked_s=0.16, cpu_s=0.0005),
    "some latency": lambda: Training(step_s=0.01, blocked_s=0.05),
    "cpu": lambda: Training(cpu_s=0.02),
    "mixed": lambda: Training(cpu_s=0.004, blocked_s=0.06),
    "disk": lambda: Training(blocked_s=0.08, limit_s=0.015),
    "tail": lambda: Training(blocked_s=0.02, tail_s=0.1),
    "tiny": lambda: Training(step_s=0.0005, cpu_s=0.0002, handoff_s=0.0008),
    "hand-off": lambda: Training(step_s=0.001, cpu_s=0.001, handoff_s=0.01),
    "large": lambda: Training(cpu_s=0.001, sending_s=0.012),
    "fine": lambda: Training(step_s=0.02, cpu_s=0.002),
}


@pytest.mark.parametrize("own", [LoaderSettings(0), LoaderSettings(2, 2), LoaderSettings(12, 4)], ids=str)
@pytest.mark.parametrize("name", TRAININGS)
def test_it_comes_close_to_the_best_of_all_settings_in_a_few_trials(name: str, own: LoaderSettings) -> None:
    training = TRAININGS[name]()
    found = search(training, own)
    assert training._steps(found.chosen)[0] <= best_of_all(training) / 0.95
    assert len(training.tried) <= 16


@pytest.mark.parametrize("name", TRAININGS)
def test_with_noise_it_is_never_much_worse_than_the_users_own(name: str) -> None:
    for seed in range(20):
        training = TRAININGS[name]()
        training.noise, training.seed = 0.05, seed
        own = LoaderSettings(2, 2)
        found = search(training, own, forecast=lambda window: None)
        assert training._steps(found.chosen)[0] <= training._steps(own)[0] * 1.03


def test_waiting_for_a_remote_store_asks_for_more_workers_than_cores() -> None:
    found = search(Training(blocked_s=0.16), LoaderSettings(2, 2))
    assert found.chosen.num_workers == 16
    assert found.gain is not None
    assert found.gain.low > 3


def test_a_training_that_does_not_wait_is_left_alone_after_one_look() -> None:
    training = Training(step_s=0.05, cpu_s=0.01)
    found = search(training, LoaderSettings(1, 2))
    assert found.chosen == LoaderSettings(1, 2)
    assert found.gain is None
    assert len(training.tried) == 1


def test_full_cores_are_not_given_more_workers() -> None:
    training = Training(step_s=0.0005, cpu_s=0.02)
    found = search(training, LoaderSettings(2, 2))
    assert found.chosen == LoaderSettings(2, 2)
    assert max(settings.num_workers for settings in training.tried) <= 3


def test_too_many_workers_for_the_cores_become_fewer() -> None:
    found = search(Training(cpu_s=0.02), LoaderSettings(16, 2))
    assert found.chosen.num_workers <= 3


def test_a_setting_that_does_not_fit_in_memory_is_never_asked_for() -> None:
    training = Training(blocked_s=0.16)
    found = search(training, LoaderSettings(2, 2), fits=lambda settings: settings.in_flight <= 12)
    assert all(settings.in_flight <= 12 for settings in training.tried)
    assert 4 <= found.chosen.num_workers <= 6


def test_what_is_chosen_was_measured_in_turns_with_the_users_own_settings() -> None:
    training = Training(blocked_s=0.16)
    own = LoaderSettings(2, 2)
    found = search(training, own)
    assert training.tried[0] == own
    assert training.tried.count(own) >= 2
    assert training.tried.count(found.chosen) >= 2


def test_where_only_depth_may_change_the_number_of_workers_stays() -> None:
    training = Training(blocked_s=0.02, tail_s=0.1)
    found = search(training, LoaderSettings(4, 2), workers=False)
    assert {settings.num_workers for settings in training.tried} == {4}
    assert found.chosen == LoaderSettings(4, 8)


def test_workers_stay_where_may_drop_workers_the_work() -> None:
    training = TRAININGS["tiny"]()
    search(training, LoaderSettings(2, 2), no_workers=False)
    assert all(settings.num_workers > 0 for settings in training.tried)


def window(workers: int, period_s: float, wait_s: float, cpu: CpuTime | None) -> StepWindow:
    return StepWindow(LoaderSettings(workers, 2), (Block(80, 80 * period_s),), wait_s, cpu)


def test_without_workers_is_tried_where_a_batch_costs_little_or_receiving_it_costs_most() -> None:
    queued = CpuTime(0.0004, 0.0005, queued_s=0.05)
    assert costs_to_receive(window(4, 0.015, 0.001, queued))  # workers wait for a core that others have
    assert costs_to_receive(window(4, 0.002, 0.001, None))
    assert costs_to_receive(window(2, 0.04, 0.03, CpuTime(0.03, 0.01, wait_s=0.02)))
    assert not costs_to_receive(window(2, 0.16, 0.158, CpuTime(0.0004, 0.0005, wait_s=0.0002)))
    assert not costs_to_receive(window(2, 0.2, 0.15, None))


def test_what_other_processes_take_limits_the_best_setting_and_is_no_wait_for_storage() -> None:
    limits = WorkerLimits(2, 16)
    busy = CpuTime(0.03, 0.0, wait_s=0.02, loop_s=0.01, main_queued_s=0.06, foreign_cores=1.7)
    alone = window(0, 0.1, 0.09, busy)
    assert limit_of(alone, limits) == "other processes use 1.7 of 2 cores: it would take a quiet machine"
    assert blocked_share(alone) < 0.5
    assert blocked_share(window(0, 0.1, 0.09, replace(busy, main_queued_s=0.0))) > 0.5
    quiet = replace(busy, foreign_cores=0.1)
    assert limit_of(window(0, 0.1, 0.09, quiet), limits) is None
    asleep = CpuTime(0.01, 0.01, wait_s=0.001, loop_s=0.005)
    assert "faster storage" in str(limit_of(window(4, 0.1, 0.09, asleep), limits))


class SlowAtFirst(Training):
    """The first batches that the training process makes itself take long."""

    slow_blocks = 2

    def window(self, settings: LoaderSettings) -> StepWindow:
        window = super().window(settings)
        if settings.num_workers == 0 and self.tried.count(settings) == 1:
            slow = (Block(10, 1.0),) * self.slow_blocks
            return replace(window, blocks=(*slow, *window.blocks[self.slow_blocks :]))
        return window


def test_none_gets_a_second_chance_where_a_few_slow_batches_have_spoilt_the_first() -> None:
    training = SlowAtFirst(cpu_s=0.001, sending_s=0.012)
    assert search(training, LoaderSettings(2, 2)).chosen == LoaderSettings(0)


def test_none_gets_no_second_chance_where_most_of_the_first_was_slow() -> None:
    training = SlowAtFirst(cpu_s=0.001, sending_s=0.012)
    training.slow_blocks = 6
    search(training, LoaderSettings(2, 2))
    assert training.tried.count(LoaderSettings(0)) == 1


def test_at_most_one_worker_where_several_might_repeat_samples() -> None:
    training = Training(blocked_s=0.16, step_s=0.05)
    search(training, LoaderSettings(0), several_workers=False)
    assert {settings.num_workers for settings in training.tried} == {0, 1}


def test_what_is_gained_within_the_noise_is_not_taken() -> None:
    for seed in range(20):  # a disk that is busy however many workers there are
        training = Training(blocked_s=0.01, limit_s=0.02, noise=0.01, seed=seed)
        assert search(training, LoaderSettings(3, 2)).chosen == LoaderSettings(3, 2)


def test_a_search_that_is_ended_early_says_what_is_known() -> None:
    training = Training(blocked_s=0.16)
    own = LoaderSettings(2, 2)
    one = Search(own, own, Bounds(TWO_CORES))
    assert one.conclude().chosen == own
    asking = one.run()
    wanted = asking.send(training.window(next(asking)))
    assert one.conclude().chosen == own
    asking.send(training.window(wanted))
    assert one.conclude().chosen == wanted


def test_a_second_search_begins_with_what_runs_now_and_still_compares_with_the_users_own() -> None:
    training = Training(step_s=0.0005, cpu_s=0.02)
    found = search(training, LoaderSettings(2, 2), present=LoaderSettings(16, 2))
    assert training.tried[0] == LoaderSettings(16, 2)
    assert found.chosen.num_workers <= 3


def test_images_are_read_by_unstarve_where_that_is_faster() -> None:
    training = Training(cpu_s=0.02, image_cpu_s=0.006)
    found = search(training, LoaderSettings(2, 2), parts={"images"})
    assert found.chosen == LoaderSettings(2, 2, part="images")
    assert found.gain is not None
    assert found.gain.low > 2


def test_threads_that_share_each_batch_are_tried_in_one_number_only() -> None:
    for own, ahead in ((LoaderSettings(0), 2), (LoaderSettings(3, 2), 3), (LoaderSettings(12, 2), 4)):
        training = Training(cpu_s=0.1, image_cpu_s=0.01)
        assert search(training, own, parts={"images"}).chosen.part == "images"
        assert {one.num_workers for one in training.tried if one.part == "images"} == {ahead}


@pytest.mark.parametrize(("image_cpu_s", "gpu_image_s"), [(0.01, 0.02), (0.04, 0.01)])
def test_cores_and_gpu_are_both_measured_whatever_the_forecast_promises(
    image_cpu_s: float, gpu_image_s: float
) -> None:
    training = Training(cpu_s=0.1, image_cpu_s=image_cpu_s, gpu_image_s=gpu_image_s)
    found = search(training, LoaderSettings(2, 2), parts={"images", "gpu_images"})
    assert found.chosen.part == ("images" if image_cpu_s / 2 < gpu_image_s else "gpu_images")
    assert {"images", "gpu_images"} <= {one.part for one in training.tried}
    assert len(training.tried) <= 12


@pytest.mark.parametrize("image_cpu_s", [0.03, 0.0215])
def test_the_users_own_pixels_stay_where_others_are_hardly_faster(image_cpu_s: float) -> None:
    training = Training(step_s=0.0005, cpu_s=0.021, image_cpu_s=image_cpu_s)
    assert search(training, LoaderSettings(2, 2), parts={"images"}).chosen.part != "images"
    assert any(settings.part == "images" for settings in training.tried)


def test_images_are_not_touched_unasked_or_where_training_does_not_wait() -> None:
    for training, allowed in (
        (Training(cpu_s=0.02, image_cpu_s=0.001), False),
        (Training(step_s=0.05, cpu_s=0.01, image_cpu_s=0.001), True),
        (Training(step_s=0.05, blocked_s=0.2, image_cpu_s=0.001), True),  # enough workers will do
    ):
        found = search(training, LoaderSettings(1, 2), parts={"images"} if allowed else set())
        assert found.chosen.part != "images"
        assert not any(settings.part == "images" for settings in training.tried)


def test_a_second_search_stays_with_images_that_unstarve_reads() -> None:
    training = Training(cpu_s=0.02, image_cpu_s=0.006)
    present = LoaderSettings(4, 2, part="images")
    found = search(training, LoaderSettings(2, 2), present=present, parts={"images"})
    assert found.chosen.part == "images"
    assert {settings for settings in training.tried if settings.part != "images"} == {LoaderSettings(2, 2)}


@pytest.mark.parametrize("forecast", [foretell, lambda window: None])
def test_rows_in_memory_are_gathered_without_workers(forecast: Any) -> None:
    training = Training(cpu_s=0.004, handoff_s=0.001)
    found = search(training, LoaderSettings(2, 2), forecast=forecast, parts={"gather", "ring"})
    assert found.chosen == LoaderSettings(0, part="gather")


def test_samples_are_kept_in_memory_where_an_epoch_can_fill_it() -> None:
    training = Training(cpu_s=0.02)
    prepared: list[str] = []
    found = search(
        training,
        LoaderSettings(2, 2),
        parts={"cached"},
        epoch=lambda: 25,
        prepare=prepared.append,
    )
    assert found.chosen == LoaderSettings(0, part="cached")
    assert prepared == ["cached"]
    kept = [settings.part for settings in training.tried].index("cached")
    assert training.tried[kept].num_workers > 0  # the workers that are best without it fill it


@dataclass
class Truth:
    """A forecast that is right about everything."""

    training: Training

    def period_s(self, settings: LoaderSettings) -> float:
        return self.training._steps(settings)[0]

    def doubt(self, settings: LoaderSettings) -> float:
        return 1.05


def test_a_cache_is_tried_without_workers_where_theirs_would_be_no_faster() -> None:
    training = Training(step_s=0.001, cpu_s=0.01, handoff_s=0.01)
    bounds: Any = {"parts": {"cached", "ring"}, "epoch": lambda: 25}
    found = search(training, LoaderSettings(0), forecast=lambda window: Truth(training), **bounds)
    assert found.chosen == LoaderSettings(0, part="cached")
    assert not any(one.part == "cached" and one.num_workers for one in training.tried)


@pytest.mark.parametrize(
    ("epoch", "prepare", "words"),
    [
        (100_000, None, "filling it takes an epoch, "),
        (None, None, "filling it takes an epoch; it pays"),
        (25, "samples draw random numbers", "CachedDataset: samples draw random numbers"),
    ],
)
def test_a_cache_that_is_not_tried_is_named_with_the_reason(
    epoch: int | None, prepare: str | None, words: str
) -> None:
    training = Training(cpu_s=0.02)
    bounds = Bounds(TWO_CORES, parts={"cached"}, epoch=lambda: epoch, prepare=lambda part: prepare)
    one = Search(LoaderSettings(2, 2), LoaderSettings(2, 2), bounds, foretell)
    steps = one.run()
    wanted = next(steps)
    assert one.untried == ()
    with contextlib.suppress(StopIteration):
        while True:
            wanted = steps.send(training.window(wanted))
    assert not any(settings.part for settings in training.tried)
    (said,) = [note for note in one.untried if "CachedDataset" in note]
    assert words in said


def test_what_a_search_that_is_cut_short_has_not_come_to_is_said() -> None:
    training = Training(cpu_s=0.02)
    one = Search(LoaderSettings(2, 2), LoaderSettings(2, 2), Bounds(TWO_CORES, parts={"cached"}), foretell)
    steps = one.run()
    wanted = steps.send(training.window(next(steps)))
    assert one.untried == ("did not try CachedDataset: tuning has not come to it",)
    bounds = Bounds(TWO_CORES, parts={"gather"})
    one = Search(LoaderSettings(2, 2), LoaderSettings(2, 2), bounds, foretell)
    steps, wanted = one.run(), LoaderSettings(2, 2)
    assert next(steps) == wanted
    while wanted.part != "gather":
        wanted = steps.send(training.window(wanted))
    (said,) = one.untried
    assert said.endswith("(engine gather): training ended before it was measured")


def test_a_forecast_that_was_refuted_is_not_offered() -> None:
    """Workers are slower than any forecast from a loop without them could know."""
    training = Training(cpu_s=0.02, handoff_s=0.2)
    one = Search(LoaderSettings(0), LoaderSettings(0), Bounds(TWO_CORES), foretell)
    steps = one.run()
    wanted = steps.send(training.window(next(steps)))
    assert one.predicted is not None
    with contextlib.suppress(StopIteration):
        steps.send(training.window(wanted))
    assert one.predicted is None


@pytest.mark.parametrize(("blocked_s", "goes_back"), [(0.001, True), (0.1, False)])
def test_where_a_second_search_finds_no_waiting_the_users_own_settings_get_a_chance(
    blocked_s: float, *, goes_back: bool
) -> None:
    training = Training(step_s=0.02, blocked_s=blocked_s)
    own, present = LoaderSettings(2, 2), LoaderSettings(8, 2)
    found = search(training, own, present=present)
    assert training.tried == [present, own]
    assert found.chosen == (own if goes_back else present)


class Crowded(Training):
    """A batch takes next to nothing, and each worker waits long for a core."""

    def _steps(self, settings: LoaderSettings) -> tuple[float, float, float]:
        period = {0: 0.0005, 4: 0.004, 16: 0.003}.get(settings.num_workers, 0.0035)
        return period, period - self.step_s, 0.0003


def test_that_no_worker_may_do_is_told_by_any_window_not_only_by_the_best() -> None:
    found = search(Crowded(step_s=0.0002), LoaderSettings(4, 2))
    assert found.chosen == LoaderSettings(0)
