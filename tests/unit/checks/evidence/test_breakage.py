"""Findings about hangs, timeouts and dead workers, from runs that were made up."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes import FakeTraining, run_of
from unstarve.api import diagnose
from unstarve.checks.evidence.gpu_out_of_memory import largest_batch
from unstarve.model import Crew, Finding, Pulse, Run
from unstarve.model.stuck import Breakage, Hang, WorkerDeath

HANG = Hang(
    loader="train_loader",
    waited_s=75.0,
    ended="resolved",
    process="worker 2",
    pid=4711,
    doing="fetching sample 131 (4th of 32) of batch 4",
    wait="sleeps (clock_nanosleep)",
    source="time.sleep(1e6)",
    text="",
    where="train.py:40",
    epoch=0,
    batch=4,
    file="train.py",
    line=31,
)
DEATH = WorkerDeath(pid=200, loader="the loader", doing="fetching sample 131 of batch 4", source="", worker=1)
GB = 10**9


def broken(
    *hangs: Hang, deaths: tuple[WorkerDeath, ...] = (), pulses: Any = (), worker_pulses: Any = ()
) -> Run:
    training = FakeTraining()
    training.epoch([(0.01, 0.02)] * 4)
    main = training.process()
    main = dataclasses.replace(main, crews=(Crew(0, 0, (200,)),), pulses=tuple(pulses))
    worker = dataclasses.replace(
        main, pid=200, worker=True, loaders=(), batches=(), epochs=(), crews=(), pulses=tuple(worker_pulses)
    )
    return dataclasses.replace(run_of(main, worker), breakage=Breakage(hangs, deaths))


def only_finding(run: Run) -> Finding:
    (found,) = diagnose(run).health
    return found


def pulse(at_s: float, *, rss: int | None = None, shm: int | None = None) -> Pulse:
    return Pulse(round(at_s * 1e9), None, None, None, None, rss, None, shm, None if shm is None else GB)


def test_a_run_in_which_nothing_broke_has_no_finding() -> None:
    assert diagnose(broken()).health == ()


def test_a_hang_names_line_sample_and_wait() -> None:
    found = only_finding(broken(HANG))
    assert (found.id, found.where) == ("worker-hang", "train.py:31")
    assert found.message == (
        "train_loader gave no batch (batch 4 of epoch 0) for 1:15; then the batch came. "
        "Worker 2 (pid 4711) was in train.py:31 `time.sleep(1e6)`, "
        "fetching sample 131 (4th of 32) of batch 4; it sleeps (clock_nanosleep)."
    )
    assert found.fix.startswith("Look at train.py:31. ")


def test_a_hang_without_a_stack_still_says_what_is_known() -> None:
    bare = dataclasses.replace(HANG, file=None, line=None, source="", wait="is stopped by a signal")
    found = only_finding(broken(bare))
    assert "Worker 2 (pid 4711) was stuck, fetching sample 131" in found.message
    assert found.where is None


def test_a_timeout_names_the_sample() -> None:
    found = only_finding(broken(dataclasses.replace(HANG, timeout_s=5.0, ended="timeout")))
    assert (found.id, found.where) == ("worker-timeout", "train.py:31")
    assert "within timeout=5." in found.message
    assert "sample 131" in found.message
    assert found.fix == "Make train.py:31 faster, or raise the limit: timeout=10."


@pytest.mark.parametrize(
    ("changes", "said", "fix"),
    [
        ({"signal": "SIGKILL", "oom_kills": 1}, "for lack of memory during the run", "Lower num_workers"),
        (
            {"signal": "SIGKILL", "oom_kills": 0},
            "killed no process for lack",
            "Another program sent the signal",
        ),
        ({"signal": "SIGKILL"}, "was killed by SIGKILL", "Whether memory ran out is not known"),
        ({"exit_code": 3}, "exited with code 3", "Something in the worker ended it"),
        (
            {"signal": "SIGSEGV", "file": "train.py", "line": 9, "source": "decode(path)"},
            "Its last line was train.py:9 `decode(path)`.",
            "Native code called from train.py:9 crashed",
        ),
        ({"signal": "SIGBUS"}, "was killed by SIGBUS", "Look for a mapped file"),
    ],
)
def test_a_dead_worker_is_explained_by_what_is_known(changes: dict[str, Any], said: str, fix: str) -> None:
    found = only_finding(broken(deaths=(dataclasses.replace(DEATH, **changes),)))
    assert found.id == "worker-killed"
    assert found.message.startswith("Worker 1 (pid 200) of train ")
    assert "while fetching sample 131 of batch 4." in found.message
    assert said in found.message
    assert found.fix.startswith(fix)


@pytest.mark.parametrize(("used", "id"), [(GB, "shm-full"), (GB // 2, "worker-killed")])
def test_a_bus_error_is_blamed_on_shared_memory_only_if_that_was_full(used: int, id: str) -> None:
    bus_error = dataclasses.replace(DEATH, signal="SIGBUS")
    found = only_finding(broken(deaths=(bus_error,), pulses=[pulse(1, shm=0), pulse(2, shm=used)]))
    assert found.id == id
    assert ("100% full" if id == "shm-full" else "at most 50% full") in found.message


def test_torchs_own_words_about_a_full_shared_memory_are_understood() -> None:
    said = "RuntimeError: unable to allocate shared memory(shm) for file </torch_3>: No space left on device"
    run = broken(pulses=[pulse(1, shm=GB)])
    found = only_finding(dataclasses.replace(run, failure=said, exit_code=1))
    assert (found.id, found.message) == (
        "shm-full", "A batch did not fit into shared memory. /dev/shm was 100% full (1.0 GB of 1.0 GB)."
    )  # fmt: skip
    elsewhere = "OSError: [Errno 28] No space left on device: 'model.pt'"
    assert diagnose(dataclasses.replace(run, failure=elsewhere, exit_code=1)).health == ()


def test_shared_memory_that_was_full_long_ago_is_not_blamed() -> None:
    bus_error = dataclasses.replace(DEATH, signal="SIGBUS")
    found = only_finding(broken(deaths=(bus_error,), pulses=[pulse(1, shm=GB), pulse(60, shm=0)]))
    assert found.id == "worker-killed"


def test_the_memory_curve_of_a_dead_worker_is_told() -> None:
    killed = dataclasses.replace(DEATH, signal="SIGKILL", oom_kills=2)
    curve = [pulse(1, rss=210 * 10**6), pulse(2, rss=GB), pulse(3, rss=3 * GB)]
    assert (
        "Its memory grew from 210 MB to 3.0 GB."
        in only_finding(broken(deaths=(killed,), worker_pulses=curve)).message
    )


# --- the memory of the GPU ----------------------------------------------------------------------------------

MEMORY = {"allocated_bytes": 10 * GB, "peak_bytes": 50 * GB, "total_bytes": 80 * GB}
FAILURE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def out_of_memory(
    sizes: list[int], failure: str | None = FAILURE, memory: Any = MEMORY, code: int = 1
) -> Run:
    training = FakeTraining()
    training.begin("train")
    for count in sizes:
        training.take(0.001, "train", size=count)
        training.spend(0.02)
    process = dataclasses.replace(training.process(), system={"device_memory": memory})
    return dataclasses.replace(run_of(process, exit_code=code), failure=failure)


def test_out_of_gpu_memory_names_the_batch_and_the_largest_that_fits() -> None:
    found = only_finding(out_of_memory([64] * 6 + [256]))
    assert found.id == "cuda-out-of-memory"
    assert found.message == (
        "The step on batch 6 of epoch 0 of train (256 samples, 64 bytes) did not fit into the GPU's memory. "
        "After 5 steps of 64 samples, the peak was 50.0 GB of 80.0 GB."
    )
    assert found.fix == "By the measured slope at most 99 samples fit: batch_size=99."
    assert largest_batch(MEMORY, 64) == 99


def test_a_size_that_fitted_before_means_that_memory_has_grown() -> None:
    found = only_finding(out_of_memory([64] * 8))
    assert "A batch of 64 samples had fit before, so memory has grown since." in found.message


def test_without_a_measured_peak_no_number_is_promised() -> None:
    assert only_finding(out_of_memory([64], memory=None)).fix == "Lower the batch_size of train."


@pytest.mark.parametrize("run", [out_of_memory([64] * 8, "ValueError: no"), out_of_memory([64] * 8, code=0)])
def test_other_failures_are_not_taken_for_it(run: Run) -> None:
    assert diagnose(run).health == ()
