"""What a look at a thread's stack says, and that looking leaves no traces."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch

from unstarve.collect import fetching
from unstarve.collect.memory.dataset_containers import DatasetContainers
from unstarve.collect.random_draws import DrawWatch
from unstarve.collect.sampling import stack_sampler as stacks
from unstarve.collect.sampling.line_expression import works_on_torch
from unstarve.collect.sampling.stack_sampler import Key, StackSampler, _place
from unstarve.collect.stuck.state_page import StatePage
from unstarve.record import format as f
from unstarve.record.format import NO_LOADER
from unstarve.record.writer import Ledger

needs_clocks = pytest.mark.skipif(
    not hasattr(time, "pthread_getcpuclockid"), reason="no CPU clock of threads"
)


def look(wants_cpu: bool = True, *, runs_python: bool = True) -> Key | None:
    """How the caller's stack is sorted in."""
    frame: FrameType | None = sys._getframe(1)
    assert frame is not None
    return _place(frame, wants_cpu, runs_python=runs_python)


class Owner:
    """Stands in for a recorder, and for its writer."""

    active = True
    perf = None

    def __init__(self) -> None:
        self.writer = self
        self.ledger = Ledger()
        self.ledger.next_flush_ns = sys.maxsize
        self.draws = DrawWatch(nothing)
        self.memory = SimpleNamespace(containers=DatasetContainers())
        self.page = StatePage(None)


def nothing(*_args: object, **_more: object) -> None:
    pass


def sampler_for(
    report: Callable[..., object] = nothing, lose: Callable[[str], object] = nothing
) -> StackSampler:
    return StackSampler(report, lose, lambda *_: 0.0)


def test_a_plain_function_is_part_of_the_step() -> None:
    found = look()
    assert found is not None
    place, function, file, line, on_cpu, in_torch = found
    assert (place, on_cpu, in_torch) == ("step", True, False)
    assert function == "test_a_plain_function_is_part_of_the_step"
    assert file == __file__
    assert line == sys._getframe().f_code.co_firstlineno


def test_making_a_batch_is_told_by_the_fetch_further_out() -> None:
    class Squares(torch.utils.data.Dataset[Key | None]):
        def __getitem__(self, index: int) -> Key | None:
            return look(wants_cpu=False)

    owner = Owner()
    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher(Squares(), True, list, False)
    probe = fetching.FetchProbe(owner, NO_LOADER)  # type: ignore[arg-type]  # all that a probe asks of a recorder
    original = getattr(type(fetcher).fetch, "__wrapped__", type(fetcher).fetch)
    (found,) = probe.fetch(original, fetcher, [3])
    assert found is not None
    assert (found[0], found[4]) == ("fetch", False)
    assert found[1].endswith("Squares.__getitem__")
    ((kind, rows),) = owner.ledger.take()
    assert (kind, len(rows)) == (f.WORK, f.ROW_KINDS[f.WORK].size)


def test_waiting_for_others_is_neither() -> None:
    namespace = {"__name__": "unstarve.collect.tap", "look": look}
    exec("def take():\n    return (lambda: look())()", namespace)
    assert namespace["take"]() is None  # type: ignore[operator]  # made by the line above


def test_frames_of_torch_compute_unless_they_write_to_disk() -> None:
    for module, computes in (("torch.nn.functional", True), ("torch.serialization", False)):
        namespace = {"__name__": module, "look": look}
        exec("def inside():\n    return look()", namespace)
        found = namespace["inside"]()  # type: ignore[operator]  # made by the line above
        assert found[5] is computes


@needs_clocks
def test_a_sampler_names_the_function_and_reports_at_the_end() -> None:
    reports: list[dict[str, Any]] = []
    sampler = sampler_for(lambda **found: reports.append(found))
    looks_at_once(sampler, busy)
    sampler.close()
    count = len(reports)
    sampler.close()
    assert len(reports) == count
    assert "busy" in {found[1] for found in reports[-1]["found"]}
    assert reports[-1]["cpu_s"] > 0


def busy() -> None:
    sum(range(1000))


def looks_at_once(sampler: StackSampler, work: Callable[[], object]) -> None:
    """Work until the sampler has seen it."""
    deadline = time.monotonic() + 180
    while work.__name__ not in {key[1] for key in list(sampler._seconds)} and time.monotonic() < deadline:
        for _ in range(1000):
            work()


@needs_clocks
def test_the_thread_is_not_among_the_users_and_goes_for_a_fork() -> None:
    listed = threading.enumerate()
    sampler = sampler_for()
    try:
        looks_at_once(sampler, busy)
        first = native_id(sampler)
        assert first in os_threads()
        assert set(threading.enumerate()) <= set(listed)  # one of an earlier test may end meanwhile
        stacks._before_fork()
        assert first not in os_threads()
        sampler.resume()
        sampler.resume()
        pid = os.fork()
        if pid == 0:  # in the child nothing may raise into pytest
            os._exit(0 if len(os_threads()) == 1 and not stacks._samplers else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert sampler.paused
        sampler.resume()
        sampler._seconds.clear()
        looks_at_once(sampler, busy)
        last = native_id(sampler)
        assert last in os_threads()
    finally:
        sampler.close()
    sampler.resume()
    assert last not in os_threads()
    assert sampler._looking is None


def native_id(sampler: StackSampler) -> str:
    assert sampler._looking is not None
    return str(sampler._looking._native_id)


def os_threads() -> set[str]:
    return {task.name for task in Path("/proc/self/task").iterdir()}


@needs_clocks
def test_a_defect_in_a_look_is_told_once_and_printed_nowhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lost: list[str] = []
    monkeypatch.setattr(stacks, "_place", lambda *_args, **_more: 1 / 0)
    sampler = sampler_for(lose=lost.append)
    deadline = time.monotonic() + 180
    while not lost and time.monotonic() < deadline:
        busy()
    sampler.close()
    assert len(lost) == 1
    assert "ZeroDivisionError" in lost[0]
    assert capfd.readouterr().err == ""


def test_a_machine_without_thread_clocks_has_no_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    with pytest.raises(OSError, match="no CPU clock"):
        sampler_for()


class FetchProbe:
    """Something that looks at its caller's frame where it is used, as the sampler does."""

    def __matmul__(self, other: object) -> bool:
        frame = sys._getframe(1)
        return works_on_torch(frame)

    __add__ = __matmul__


def test_an_expression_on_tensors_is_told_by_its_names() -> None:
    weights, offset, probe = torch.ones(2), 3, FetchProbe()
    about_tensors = probe @ weights  # not inside of an assert, which pytest rewrites
    about_numbers = probe + offset
    assert (about_tensors, about_numbers) == (True, False)


def test_looking_at_variables_keeps_nothing_alive() -> None:
    class Large:
        pass

    def step() -> tuple[bool, bool]:  # no assert in here: pytest would have it look at its own variables
        weights, probe, large = torch.ones(2), FetchProbe(), Large()
        gone = weakref.ref(large)
        told = probe @ weights
        del large
        return told, gone() is None

    assert step() == (True, True)


def test_a_functions_own_look_at_its_variables_stays_as_it_was() -> None:
    def step() -> list[str]:
        weights, probe = torch.ones(2), FetchProbe()
        mine = locals()
        before = list(mine)
        told = probe @ weights
        return [name for name in mine if name not in before and not told]

    assert step() == []


@pytest.mark.parametrize("cost_us", [50, 150, 300, 900])
def test_looking_takes_no_more_than_a_thousandth_of_a_core(cost_us: int) -> None:
    looks = 1000
    interval_s = stacks.interval_after(looks, looks * cost_us / 1e6)
    assert cost_us / 1e6 / interval_s <= 0.001 * 1.0001


def test_the_first_looks_are_close_together_whatever_they_cost() -> None:
    assert stacks.interval_after(10, own_cpu_s=1.0) == stacks.INTERVAL_S


def test_looks_that_are_dear_still_come_once_a_second() -> None:
    assert stacks.interval_after(100, own_cpu_s=100.0) == 1.0


@pytest.mark.parametrize(
    ("blocked", "wanted", "wanted_of_delay", "computes"),
    [
        (False, 0.1, 0.0, True),  # a short computation between long waits
        (True, 0.9, 0.0, False),  # a short wait between long computations
        (True, 0.2, 1.0, True),  # Python code, interrupted by the look
        (True, 0.0, 0.0, False),
        (True, 0.01, 0.1, False),  # another thread held the interpreter lock
        (None, 0.6, 0.0, True),
        (None, 0.4, 0.0, False),
    ],
)
def test_computing_and_waiting_are_told_apart_at_the_moment_of_the_look(
    blocked: bool | None, wanted: float, wanted_of_delay: float, computes: bool
) -> None:
    assert stacks.wants_a_cpu(blocked, wanted, wanted_of_delay) is computes


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc")
def test_the_state_of_a_thread_is_read() -> None:
    awake, asleep = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (awake.set(), asleep.wait()))
    thread.start()
    awake.wait()
    stat = f"/proc/self/task/{thread.native_id}/stat".encode()
    deadline = time.monotonic() + 180
    while not stacks._is_blocked(stat) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert stacks._is_blocked(stat) is True
    asleep.set()
    thread.join()
    assert stacks._is_blocked(f"/proc/self/task/{threading.get_native_id()}/stat".encode()) is False
    assert stacks._is_blocked(b"/proc/self/task/0/stat") is None
