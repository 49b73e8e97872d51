"""The device's side of a wait, on a fake device with a fake clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from unstarve.collect.copy_patch import set_copy_patch
from unstarve.collect.device import copies
from unstarve.collect.device import stalls as module
from unstarve.collect.device.stalls import DeviceClock, device_clock
from unstarve.record import format as f

MS = 1_000_000
DEFAULT, SIDE, FOREIGN = 0, 3, 4096


class FakeDevice:
    """Streams that are busy until some moment; events fire when their stream gets there."""

    def __init__(self) -> None:
        self.now = 1_000 * MS
        self.busy_until: dict[int, int] = {}
        self.current = DEFAULT
        self.capturing = False
        self.initialized = True
        self.contexts = {0}
        self.current_device = 0
        self.recorded: list[tuple[int, int]] = []
        self.broken = False
        self.made = 0
        self.asked = 0
        self.never_idle = False
        self.hook: Callable[[Any, Any, Any], None] | None = None

    def work(self, ms: float, stream: int = DEFAULT) -> None:
        self.busy_until[stream] = max(self.now, self.busy_until.get(stream, 0)) + round(ms * MS)

    def sleep(self, ms: float) -> None:
        self.now += round(ms * MS)

    def step(self, device: str = "cuda:0") -> None:
        """An optimizer steps parameters that lie on `device`."""
        parameter = SimpleNamespace(device=torch.device(device))
        assert self.hook is not None
        self.hook(Stepper([{"params": [parameter]}]), (), {})


class Stepper:
    def __init__(self, param_groups: list[Any]) -> None:
        self.param_groups = param_groups


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    fake = FakeDevice()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            fake.made += 1
            self.at = 0

        def record(self, stream: Any) -> None:
            if fake.broken:
                raise RuntimeError("CUDA error: device-side assert triggered")
            assert not fake.capturing
            fake.recorded.append((stream.device_index, stream.stream_id))
            self.at = max(fake.now, fake.busy_until.get(stream.stream_id, 0))

        def query(self) -> bool:
            return fake.now >= self.at

        def elapsed_time(self, end: Event) -> float:
            return (end.at - self.at) / MS

    class Stream(SimpleNamespace):
        def query(self) -> bool:
            if fake.broken:
                raise RuntimeError("CUDA error: device-side assert triggered")
            assert not fake.capturing
            fake.asked += 1
            return not fake.never_idle and fake.now >= fake.busy_until.get(self.stream_id, 0)

    def register(hook: Callable[[Any, Any, Any], None]) -> Any:
        fake.hook = hook
        return SimpleNamespace()

    torch_like = SimpleNamespace(
        cuda=SimpleNamespace(
            Event=Event,
            Stream=Stream,
            is_current_stream_capturing=lambda: fake.capturing,
            current_device=lambda: fake.current_device,
            device_count=lambda: 2,
        ),
        _C=SimpleNamespace(_cuda_getCurrentStream=lambda device: (fake.current, device, 1)),
        compiler=torch.compiler,
    )
    monkeypatch.setattr(module, "torch", torch_like)
    monkeypatch.setattr(module, "cuda_in_use", lambda: fake.initialized)
    monkeypatch.setattr(module, "has_context", lambda device: device in fake.contexts)
    monkeypatch.setattr(module, "cuda_driver", lambda: None)
    monkeypatch.setattr(module, "Gauge", SimpleNamespace(of=lambda device: None))
    monkeypatch.setattr(module, "register_optimizer_step_post_hook", register)
    return fake


@pytest.mark.parametrize("known", [True, False])
def test_the_driver_is_asked_for_power_beside_training_only(
    known: bool, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (400_000, 3 * 10**9, 10**6, 40)
    gauge = SimpleNamespace(
        utilization=list, memory=lambda: (1, 2), shared=lambda: False, engines=lambda: asked
    )
    monkeypatch.setattr(module, "Gauge", SimpleNamespace(of=lambda device: gauge if known else None))
    training = Training(device)
    training.wait(10)
    training.clock.look_on(device.now)
    rows = [row for row in training.rows if isinstance(row, f.EnginesRow)]
    assert [row[3:] for row in rows] == ([asked] if known else [])
    assert f.ROW_KINDS[f.ENGINES].pack(*rows[0]) if known else not training.lost
    training.clock.close()
    assert len([row for row in training.rows if isinstance(row, f.EnginesRow)]) == len(rows)


class Training:
    """A training loop's view of the clock."""

    def __init__(self, device: FakeDevice) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.lost: list[str] = []
        self.device = device
        self.clock = DeviceClock(lambda kind, now, row: self.rows.append(row), self.lost.append)

    def wait(self, ms: float, during: Callable[[], None] = lambda: None) -> None:
        mark, ask = self.clock.ask(), self.device.now
        self.device.sleep(ms)
        during()
        if mark is not None:
            self.clock.got(mark, (1, f.BATCH_WAIT, 2, 3), ask, self.device.now)

    def stalls_ms(self) -> list[float]:
        """After all work is done."""
        self.device.sleep(1000)
        self.clock.read(self.device.now)
        return [row[-1] / MS for row in self.rows]


@pytest.fixture
def training(device: FakeDevice) -> Iterator[Training]:
    training = Training(device)
    yield training
    training.clock.close()


def test_a_wait_on_an_idle_device_is_all_stall(training: Training) -> None:
    training.wait(8)
    assert training.stalls_ms() == [8]


def test_a_wait_behind_queued_work_stalls_only_when_that_is_done(
    training: Training, device: FakeDevice
) -> None:
    device.work(5)
    training.wait(8)
    device.work(20)
    training.wait(8)
    assert training.stalls_ms() == [3, 0]


def test_a_device_that_is_idle_at_every_ask_is_asked_and_not_marked(
    training: Training, device: FakeDevice
) -> None:
    training.wait(8)
    training.stalls_ms()
    device.recorded.clear()
    for _ in range(5):
        device.work(3)
        device.sleep(3)  # training waits for its device
        training.wait(8)
    assert device.recorded == []
    assert training.stalls_ms() == [8] * 6


def test_a_device_that_has_work_again_is_marked_again(training: Training, device: FakeDevice) -> None:
    training.wait(8)
    training.stalls_ms()
    device.work(5)
    training.wait(8)
    device.work(20)
    training.wait(8)
    assert device.asked == 1
    assert training.stalls_ms() == [8, 3, 0]


class Synchronizing:
    """A training that waits for its device in every step, and has done so for long."""

    def __init__(self, training: Training, device: FakeDevice) -> None:
        self.training, self.device = training, device
        training.wait(1)
        training.stalls_ms()
        self.steps(40)
        training.stalls_ms()
        training.rows.clear()
        device.asked = 0

    def steps(self, count: int, wait_ms: float = 1) -> None:
        for _ in range(count):
            self.device.work(3)
            self.device.sleep(3)
            self.training.wait(wait_ms)


def test_a_device_that_was_idle_for_long_is_asked_now_and_then(
    training: Training, device: FakeDevice
) -> None:
    Synchronizing(training, device).steps(81)
    assert 0 < device.asked <= 12
    assert training.stalls_ms().count(1) >= 81 - 15


def test_waits_of_which_nobody_asked_are_forgotten_if_there_is_work_again(
    training: Training, device: FakeDevice
) -> None:
    known = Synchronizing(training, device)
    idle_steps = 0
    while not training.clock._assumed:
        known.steps(1)
        idle_steps += 1
    for _ in range(40):
        device.work(30)
        training.wait(1)
    stalls = training.stalls_ms()
    assert stalls.count(1) <= idle_steps
    assert stalls.count(0) >= 40 - 15


def test_after_a_long_wait_the_device_is_asked(training: Training, device: FakeDevice) -> None:
    Synchronizing(training, device).steps(8, wait_ms=100)
    assert device.asked >= 7


def test_a_row_tells_which_batch_was_waited_for(training: Training, device: FakeDevice) -> None:
    training.wait(8)
    begin = device.now - 8 * MS
    training.stalls_ms()
    assert training.rows == [(1, f.BATCH_WAIT, 2, 3, 0, 0, begin, begin + 8 * MS, 8 * MS)]
    assert f.ROW_KINDS[f.STALL].pack(*training.rows[0])


def test_nothing_is_written_before_the_device_has_come_that_far(
    training: Training, device: FakeDevice
) -> None:
    for _ in range(10):
        device.work(500)
        training.wait(30)
    assert training.rows == []
    device.sleep(5000)
    training.wait(1)
    assert len(training.rows) == 11


def test_events_are_used_again(training: Training, device: FakeDevice) -> None:
    for _ in range(1000):
        training.wait(25)
    assert device.made <= 2 * 64 + 2


def test_a_device_that_never_gets_done_is_given_up_and_not_waited_for(
    training: Training, device: FakeDevice
) -> None:
    device.work(10**9)
    for _ in range(5000):
        training.wait(30)
    assert device.made <= 2 * (1024 + 64) + 2
    training.clock.close()
    assert training.rows == []


def test_before_cuda_is_used_nothing_happens(training: Training, device: FakeDevice) -> None:
    device.initialized = False
    training.wait(8)
    assert (device.recorded, device.hook) == ([], None)


def test_a_device_without_a_context_is_left_asleep(training: Training, device: FakeDevice) -> None:
    device.contexts = set()
    training.wait(8)
    assert device.recorded == []
    device.contexts = {1}  # training uses the second device and leaves the first one current
    training.wait(8)
    assert {on for on, _ in device.recorded} == {1}


def test_only_devices_that_an_optimizer_trains_count_once_one_was_seen(
    training: Training, device: FakeDevice
) -> None:
    device.never_idle = True
    device.contexts = {0, 1}
    training.wait(8)
    device.step("cuda:1")
    device.recorded.clear()
    training.wait(8)
    assert device.recorded == [(1, DEFAULT)] * 2


def test_an_optimizer_on_the_cpu_says_nothing(training: Training, device: FakeDevice) -> None:
    training.wait(8)
    device.step("cpu")
    training.wait(8)
    assert training.stalls_ms() == [8, 8]


@pytest.mark.parametrize("when", ["ask", "got"])
def test_a_graph_capture_is_left_alone(training: Training, device: FakeDevice, when: str) -> None:
    device.capturing = when == "ask"
    training.wait(8, during=lambda: setattr(device, "capturing", True))
    device.capturing = False
    assert training.stalls_ms() == []
    training.wait(8)
    assert training.stalls_ms() == [8]
    assert training.lost == []


def test_an_optimizer_step_inside_a_capture_teaches_nothing(training: Training, device: FakeDevice) -> None:
    device.never_idle = True
    training.wait(8)
    device.capturing, device.current = True, SIDE
    device.step()
    device.capturing, device.current = False, DEFAULT
    device.recorded.clear()
    training.wait(8)
    assert device.recorded == [(0, DEFAULT)] * 2


def test_a_prefetcher_on_a_side_stream_does_not_hide_the_training_streams_work(
    training: Training, device: FakeDevice
) -> None:
    device.work(6, DEFAULT)
    device.current = SIDE
    training.wait(8)
    assert training.stalls_ms() == [2]


def test_a_copy_on_the_side_stream_is_work_too(training: Training, device: FakeDevice) -> None:
    device.work(2, DEFAULT)
    device.work(6, SIDE)
    device.current = SIDE
    training.wait(8)
    assert training.stalls_ms() == [2]


def test_training_on_its_own_stream_is_found_by_its_optimizer(training: Training, device: FakeDevice) -> None:
    training.wait(1)
    device.current = SIDE
    device.step()
    device.work(6, SIDE)
    device.current = DEFAULT  # the loop asks outside of `with torch.cuda.stream(…)`
    training.wait(8)
    assert training.stalls_ms()[-1] == 2


def test_a_stream_of_a_warm_up_is_forgotten(training: Training, device: FakeDevice) -> None:
    device.never_idle = True
    training.wait(1)
    device.current = SIDE
    device.step()
    device.current = DEFAULT
    for _ in range(100):
        training.wait(1)
    device.recorded.clear()
    training.wait(1)
    assert device.recorded == [(0, DEFAULT)] * 2


def test_a_foreign_stream_is_not_remembered_because_it_may_be_gone(
    training: Training, device: FakeDevice
) -> None:
    device.never_idle = True
    training.wait(1)
    device.current = FOREIGN
    device.step()
    device.current = DEFAULT
    device.recorded.clear()
    training.wait(1)
    assert device.recorded == [(0, DEFAULT)] * 2


def in_thread(action: Callable[[], None]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_a_loader_consumed_in_a_background_thread_is_not_timed(
    training: Training, device: FakeDevice
) -> None:
    in_thread(lambda: training.wait(8))
    training.wait(4)
    device.step()
    in_thread(lambda: training.wait(8))
    training.wait(4)
    assert training.stalls_ms() == [4, 4]


def test_a_training_that_runs_in_a_thread_of_its_own_is_timed(training: Training, device: FakeDevice) -> None:
    def train() -> None:
        training.wait(8)
        device.step()
        training.wait(4)

    in_thread(train)
    assert training.stalls_ms() == [4]


def test_a_broken_device_is_given_up_after_some_errors_and_said_once(
    training: Training, device: FakeDevice
) -> None:
    training.wait(1)
    device.broken = True
    for _ in range(20):
        training.wait(1)
    device.broken = False
    training.wait(1)
    assert len(training.lost) == 1
    assert "device-side assert" in training.lost[0]


def test_without_cuda_in_torch_there_is_no_clock() -> None:
    if torch.backends.cuda.is_built():
        pytest.skip("this torch has CUDA")
    assert device_clock(lambda kind, now, row: None, print) is None


def test_the_hook_stays_because_taking_it_away_would_make_torch_compile_again(
    training: Training, device: FakeDevice
) -> None:
    training.wait(1)
    training.clock.close()
    device.step()
    training.wait(1)
    assert len(training.rows) == 1


def test_steps_whose_copies_are_timed_are_read_like_waits(
    training: Training, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = SimpleNamespace(start_callbacks=[], end_callbacks=[], register_start_callback=lambda one: None)
    handler.register_end_callback = handler.register_start_callback
    monkeypatch.setattr(copies, "_compile_callbacks", lambda: handler)
    watched: list[bool] = []
    set_copy_patch(lambda methods, on: watched.append(on))
    for _ in range(12):
        training.wait(8)
    training.stalls_ms()
    set_copy_patch(None)
    rows = [row for row in training.rows if isinstance(row, f.CopyRow)]
    assert [(row.loader, row.epoch, row.position, row.copies) for row in rows] == [(1, 2, 3, 0)]
    assert watched == [True, False, True]
    training.clock.close()
    assert watched == [True, False, True, False]
    assert training.lost == []
