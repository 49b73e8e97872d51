"""Memory that grows is named for what it is; what healthy trainings do is not reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from fakes import run_of
from memory_runs import GB, MB, SECONDS, Memory, S, ids, memory_run
from unstarve.analyze.diagnose import analyze_run
from unstarve.checks.evidence.all_checks import health_of
from unstarve.checks.evidence.memory_scene import dataset_source
from unstarve.model import Reading, Run
from unstarve.model.finding import Finding
from unstarve.model.memory_looks import AllocationSite, KeptTensor

SAMPLES = {
    "length": 1_281_167,
    "container": "self.samples",
    "container_kind": "list",
    "container_items": "tuple",
    "container_count": 1_281_167,
    "container_bytes": 210 * MB,
}


def health(run: Run) -> Sequence[Finding]:
    return health_of(run, analyze_run(run))


def found(run: Run) -> Finding:
    """The only finding."""
    (one,) = health(run)
    return one


def test_a_healthy_run_is_silent() -> None:
    assert not health(memory_run(dataset=SAMPLES))
    assert not health(memory_run(workers=0, dataset=SAMPLES))
    assert not health(run_of())


# --- copied on write ---


def test_a_container_that_is_copied_is_named_with_its_fix() -> None:
    one = found(memory_run(worker=Memory(copied=lambda s: 2 * MB * s), dataset=SAMPLES))
    assert one.id == "copy-on-write"
    assert one.message == (
        "train_set.samples, a list of 1,281,167 tuples (210 MB), is copied into each of 2 workers: "
        "118 MB so far, 2 MB a second, while the workers allocate little."
    )
    assert one.fix == "import unstarve\n\ntrain_set = unstarve.share(train_set)"
    assert one.where == "train.py:41"


def test_a_copy_that_is_complete_is_still_named() -> None:
    assert ids(health(memory_run(worker=Memory(copied=lambda s: min(s, 20) * 10 * MB), dataset=SAMPLES))) == [
        "copy-on-write"
    ]


@pytest.mark.parametrize(
    ("name", "copied", "dataset"),
    [
        ("the interpreter's own pages", lambda s: min(s, 6) * MB, SAMPLES),
        ("one garbage collection", lambda s: 120 * MB if s > 30 else 0, SAMPLES),
        ("no container that could be it", lambda s: 2 * MB * s, {"length": 10}),
        ("far less than the container holds", lambda s: 0.4 * MB * s, SAMPLES),
    ],
)
def test_other_copies_are_not_named(name: str, copied: object, dataset: dict[str, object]) -> None:
    assert not health(memory_run(worker=Memory(copied=copied), dataset=dataset)), name  # type: ignore[arg-type]


# --- caches ---


def test_a_cache_larger_than_the_dataset_is_named() -> None:
    worker = Memory(allocated=lambda s: 200 * MB + 5 * MB * s, sizes=lambda s: 50 * s)
    one = found(memory_run(worker=worker, dataset={"length": 1000}))
    assert one.id == "growing-cache"
    assert "train_set.cache has 2,950 entries in each of 2 workers and gains 50 a second" in one.message
    assert "5 MB a second" in one.message
    assert "train_set = unstarve.CachedDataset(train_set)" in one.fix


def test_a_cache_that_will_hold_all_samples_and_fit_is_welcome() -> None:
    worker = Memory(allocated=lambda s: 200 * MB + 5 * MB * s, sizes=lambda s: 50 * s)
    assert not health(memory_run(worker=worker, dataset={"length": 20_000}))
    tight = found(memory_run(worker=worker, dataset={"length": 20_000}, free_bytes=4 * GB))
    assert "With all 20,000 samples in it, each of 2 workers needs 2.0 GB." in tight.message


def test_a_cache_that_is_full_is_silent() -> None:
    worker = Memory(allocated=lambda s: 200 * MB + 5 * MB * min(s, 25), sizes=lambda s: 50 * min(s, 25))
    assert not health(memory_run(worker=worker, dataset={"length": 100}))


# --- leaks ---


def test_a_leak_of_python_objects_in_workers() -> None:
    worker = Memory(allocated=lambda s: 200 * MB + 3 * MB * s, blocks=lambda s: 600_000 + 900 * s)
    one = found(memory_run(worker=worker))
    assert one.id == "memory-leak"
    assert one.message == (
        "The memory of each of 2 workers grows by 3 MB a second (3 MB–3 MB). "
        "Python objects hold it: their number grows, too."
    )
    assert one.fix.startswith("unstarve run --memory ")


def test_a_leak_names_its_line_where_allocations_were_traced() -> None:
    memory = Memory(allocated=lambda s: 200 * MB + 3 * MB * s)
    sites = (AllocationSite("data.py", 12, 28 * MB, 900), AllocationSite("data.py", 3, MB, 5))
    one = found(memory_run(worker=memory.record(sites=sites, traced_s=10.0)))
    assert one.where == "data.py:12"
    assert one.message.endswith(" data.py:12 allocated 28 MB that stayed.")
    small = (AllocationSite("data.py", 3, 2 * MB, 5),)
    other = found(memory_run(worker=memory.record(sites=small, traced_s=10.0)))
    assert other.where == "train.py:41"
    assert other.fix.startswith("No line of Python allocates it.")


def test_a_leak_of_the_training_process_is_told_by_the_batch() -> None:
    one = found(memory_run(training=Memory(allocated=lambda s: 500 * MB + 4 * MB * s)))
    assert one.id == "memory-leak"
    assert one.message == (
        "The memory of the training process grows by 4 MB a second (4 MB–4 MB), 400 KB a batch."
    )


@pytest.mark.parametrize(
    ("name", "allocated", "free"),
    [
        ("an allocator that flattens", lambda s: 200 * MB + 80 * MB * (1 - 0.9**s), 20 * GB),
        ("a few megabytes", lambda s: 200 * MB + 0.1 * MB * s, 20 * GB),
        ("nothing next to the free memory", lambda s: 200 * MB + 0.4 * MB * s, 10_000 * GB),
        ("little next to what the process holds", lambda s: 5 * GB + 0.4 * MB * s, 20 * GB),
    ],
)
def test_growth_that_ends_or_does_not_matter_is_no_leak(name: str, allocated: object, free: int) -> None:
    assert not health(memory_run(worker=Memory(allocated=allocated), free_bytes=free)), name  # type: ignore[arg-type]


# --- kept batches, shared memory, descriptors ---


def kept(count: int, watched: int = 40) -> tuple[KeptTensor, ...]:
    return (KeptTensor(0, "batch[0]", 0, watched, 4096), KeptTensor(0, "batch[1]", count, watched, 256))


def test_kept_batches_are_named_with_their_part() -> None:
    training = Memory(shm=lambda s: MB + 40_000 * s, descriptors=lambda s: 20 + 10 * s, limit=10**6)
    one = found(memory_run(training=training.record(kept=kept(40))))
    assert one.id == "kept-batches"
    assert one.message == (
        "batch[1] of loader stays in memory: of 40 batches that were watched, 40 were still there many "
        "steps later (256 bytes each). /dev/shm grows by 2 MB a minute."
    )
    assert "kept.append(batch[1].clone())" in one.fix


def test_without_workers_a_copy_would_not_help() -> None:
    training = Memory(allocated=lambda s: 300 * MB + 4 * MB * s)
    one = found(memory_run(training=training.record(kept=kept(40)), workers=0))
    assert one.id == "kept-batches"
    assert "The process grows by 4 MB a second." in one.message
    assert ".item()" in one.fix


def test_batches_that_exist_anyway_or_are_few_are_not_kept() -> None:
    assert not health(memory_run(training=Memory().record(kept=kept(40))))  # nothing grows: the dataset's own
    grows = Memory(shm=lambda s: MB + 10_000 * s)
    assert not health(memory_run(training=grows.record(kept=kept(3))))


def test_shared_memory_that_fills_has_a_forecast() -> None:
    one = found(memory_run(training=Memory(shm=lambda s: 5 * MB + MB * s)))
    assert one.id == "shm-full"
    assert one.message == "/dev/shm is 64% full (64 MB of 100 MB) and will be full in about 360 batches."


def test_shared_memory_that_was_full_is_named_and_use_that_comes_and_goes_is_not() -> None:
    assert (
        "was 95% full" in found(memory_run(training=Memory(shm=lambda s: 95 * MB if s == 9 else MB))).message
    )
    assert not health(memory_run(training=Memory(shm=lambda s: 40 * MB + (s % 3) * 10 * MB)))


def test_descriptors_that_run_out_have_a_forecast() -> None:
    one = found(memory_run(training=Memory(descriptors=lambda s: 20 + 10 * s)))
    assert one.id == "descriptors"
    assert one.message == (
        "The training process has 610 of 1,024 file descriptors open and will run out in about 410 batches."
    )
    worker = found(memory_run(worker=Memory(descriptors=lambda s: 990)))
    assert worker.message == "A worker has 990 of 1,024 file descriptors open."
    assert not health(memory_run(training=Memory(descriptors=lambda s: 500)))


def on_gpu(used: Callable[[int], float], *, shared: bool = False) -> Run:
    run = memory_run()
    main, *workers = run.processes
    readings = tuple(Reading(0, s * S, 0.9, round(used(s)), 80 * GB, shared) for s in range(SECONDS))
    return replace(run, processes=(replace(main, readings=readings), *workers))


def test_device_memory_that_fills_has_a_forecast() -> None:
    one = found(on_gpu(lambda s: 20 * GB + 10 * MB * s))
    assert one.id == "memory-leak"
    assert one.message == (
        "The memory of GPU 0 grows by 10 MB a second (10 MB–10 MB), 1 MB a batch: "
        "it will be full in about 59,000 batches."
    )


def test_device_memory_that_is_reserved_once_or_used_by_others_is_silent() -> None:
    assert not health(on_gpu(lambda s: 20 * GB + min(s, 8) * GB))
    assert not health(on_gpu(lambda s: 20 * GB + 2 * GB * (s > 40)))
    assert not health(on_gpu(lambda s: 20 * GB + 10 * MB * s, shared=True))


# --- names ---


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("DataLoader(train_set, batch_size=4)", "train_set"),
        ("DataLoader(batch_size=4, dataset=self.data)", "self.data"),
        ("DataLoader(Images(root), 4)", "Images(root)"),
        ("DataLoader(*arguments)", None),
        ("DataLoader(", None),
        (None, None),
    ],
)
def test_the_dataset_has_the_users_name(source: str | None, name: str | None) -> None:
    assert dataset_source(source) == name


def test_a_dataset_without_a_name_is_shared_in_a_line_that_can_be_pasted() -> None:
    run = memory_run(
        worker=Memory(copied=lambda s: 2 * MB * s), dataset=SAMPLES, source="DataLoader(Images(root), 4)"
    )
    assert found(run).fix == "import unstarve\n\ndataset = unstarve.share(Images(root))"
    assert found(run).message.startswith("dataset.samples, a list of")


# --- the summary ---


def test_growth_and_peaks_are_in_the_summary() -> None:
    worker = Memory(copied=lambda s: 2 * MB * s)
    memory = analyze_run(memory_run(worker=worker, dataset=SAMPLES)).memory
    assert memory is not None
    assert {(one.who, one.what) for one in memory.growth} == {("workers", "copied")}
    assert memory.workers_most == 2
    assert memory.workers_uss_peak_bytes == 2 * (50 * MB + 2 * MB * (SECONDS - 1))
    assert memory.descriptors is not None
    assert (memory.descriptors.peak, memory.descriptors.limit) == (20, 1024)
    names = [line.name for line in memory.lines]
    assert names == [
        "training", "workers", "/dev/shm", "training PSS", "workers PSS", "training USS", "workers USS"
    ]  # fmt: skip
    assert max(memory.lines[-1].at_s) == SECONDS - 1
    assert S == 10**9
