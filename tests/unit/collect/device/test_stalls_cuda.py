"""The device's side of a wait on a real GPU: right numbers, and nothing broken."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from unstarve.collect.device.stalls import DeviceClock
from unstarve.record import format as f
from unstarve.record.run_reader import read_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

WAIT_S = 0.03
SOURCE = Path(__file__).parents[4] / "src"


class Training:
    """A training loop's view of the clock."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.gauges: list[tuple[Any, ...]] = []
        self.lost: list[str] = []
        self.clock = DeviceClock(self.write, self.lost.append)
        self.mhz = torch.cuda.get_device_properties(0).clock_rate / 1000

    def write(self, kind: int, now_ns: int, row: tuple[Any, ...]) -> None:
        (self.rows if kind == f.STALL else self.gauges).append(row)

    def work(self, seconds: float) -> None:
        """Keep the current stream busy for about so long."""
        torch.cuda._sleep(int(seconds * self.mhz * 1e6))

    def wait(self, during: Callable[[], object] = lambda: time.sleep(WAIT_S)) -> None:
        mark, ask_ns = self.clock.ask(), time.perf_counter_ns()
        during()
        if mark is not None:
            self.clock.got(mark, (0, f.BATCH_WAIT, 0, 0), ask_ns, time.perf_counter_ns())

    def shares(self) -> list[float]:
        """Stall over wait, of every wait that was timed."""
        torch.cuda.synchronize()
        self.clock.close()
        assert self.lost == []
        return [row[-1] / (row[-2] - row[-3]) for row in self.rows]


def in_fresh_process(script: str, folder: Path, *command: str, **environment: str) -> str:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(script))
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **environment}
    done = subprocess.run(
        [sys.executable, *command, str(path)],
        capture_output=True, text=True, env=environment, timeout=120, cwd=folder, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_idle_device_stalls_as_long_as_the_wait() -> None:
    training = Training()
    for _ in range(5):
        training.wait()
    assert all(0.9 < share < 1.1 for share in training.shares()[1:])


def test_a_busy_device_does_not_stall() -> None:
    training = Training()
    training.wait()
    training.work(10 * WAIT_S)
    training.wait()
    training.wait()
    assert all(share < 0.1 for share in training.shares()[1:])


def test_a_prefetchers_side_stream_does_not_hide_the_work_of_the_main_stream() -> None:
    training = Training()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        training.wait()
    training.work(10 * WAIT_S)
    with torch.cuda.stream(side):
        training.wait()
    assert training.shares()[1] < 0.1


def test_training_on_a_stream_of_its_own_is_seen_from_outside_of_it() -> None:
    training = Training()
    training.wait()
    weight = torch.ones(4, device="cuda", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    own = torch.cuda.Stream()
    for _ in range(2):  # what is used for the first time may have to wait for the device
        torch.cuda.synchronize()
        with torch.cuda.stream(own):
            training.work(10 * WAIT_S)
            optimizer.step()
        training.wait()
    assert training.shares()[2] < 0.1


def test_a_capture_around_a_wait_is_left_whole() -> None:
    training = Training()
    x = torch.ones(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        training.wait(lambda: None)
        x.add_(1)
    graph.replay()
    training.wait()
    assert len(training.shares()) == 1
    assert x[0] == 3


def test_a_capture_that_begins_during_a_wait_is_left_whole() -> None:
    training = Training()
    x = torch.ones(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    capture = torch.cuda.graph(graph)

    def begin() -> None:
        capture.__enter__()
        x.add_(1)

    training.wait(begin)
    x.add_(1)
    capture.__exit__(None, None, None)
    graph.replay()
    training.wait()
    assert len(training.shares()) == 1
    assert x[0] == 3


def test_a_capture_in_another_thread_survives_our_reading() -> None:
    training = Training()
    x = torch.ones(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    training.wait()
    torch.cuda.synchronize()
    inside, read = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def capture() -> None:
        try:
            with torch.cuda.graph(graph):
                x.add_(1)
                inside.set()
                read.wait(10)
                x.add_(1)
        except BaseException as error:
            errors.append(error)
            inside.set()

    thread = threading.Thread(target=capture)
    thread.start()
    inside.wait(10)
    training.clock.read(0)
    training.wait()
    read.set()
    thread.join()
    assert errors == []
    graph.replay()
    assert len(training.shares()) == 2
    assert x[0] == 3


@pytest.mark.filterwarnings("ignore")  # torch warns about parts of its own that it imports to compile
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_step_is_the_same_with_the_clock(mode: str) -> None:
    def train(clock: Training | None) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        compiled = torch.compile(model, mode=mode)
        update = torch.compile(optimizer.step)
        losses = []
        for _ in range(6):
            if clock is not None:
                clock.wait(lambda: None)
            loss = compiled(torch.randn(8, 32, device="cuda")).square().mean()
            loss.backward()
            update()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    training = Training()
    assert train(training) == train(None)
    assert len(training.shares()) == 6


def test_a_background_thread_is_not_timed() -> None:
    training = Training()
    thread = threading.Thread(target=training.wait)
    thread.start()
    thread.join()
    assert training.shares() == []


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # torch calls it a prototype
def test_nothing_synchronizes() -> None:
    training = Training()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            training.wait()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(training.shares()) == 3


def test_closing_does_not_wait_for_the_device() -> None:
    training = Training()
    training.wait()
    training.work(2.0)
    training.wait(lambda: None)
    training.clock.close()
    end = torch.cuda.Event()
    end.record()
    assert not end.query(), "the device is still at work"
    torch.cuda.synchronize()
    assert len(training.rows) == 1


def test_the_driver_tells_utilization_and_memory() -> None:
    training = Training()
    for _ in range(40):
        training.work(0.08)
        training.wait(lambda: time.sleep(0.1))
        training.clock.look_on(time.perf_counter_ns())
    training.shares()
    percents = [row[3] for row in training.gauges if row[3] >= 0]
    assert percents
    assert max(percents) > 50
    assert all(0 < row[4] <= row[5] for row in training.gauges)


def test_forked_workers_leave_cleanly_with_events_in_their_inheritance() -> None:
    training = Training()
    training.wait()
    loader = DataLoader(torch.zeros(64, 4), batch_size=4, num_workers=2)  # type: ignore[arg-type]  # a tensor is a dataset
    batches = iter(loader)
    for _ in range(16):
        training.wait(lambda: next(batches))
    with pytest.raises(StopIteration):
        next(batches)
    assert len(training.shares()) == 17


def test_no_context_is_made(tmp_path: Path) -> None:
    out = in_fresh_process(
        """
        import torch
        from unstarve.collect.device.stalls import DeviceClock
        clock = DeviceClock(lambda kind, now, row: None, print)
        mark = clock.ask(); mark and clock.got(mark, (0, 0, 0, 0), 0, 0)
        print(torch.cuda.is_initialized(), end=" ")
        torch.cuda.init()
        mark = clock.ask(); mark and clock.got(mark, (0, 0, 0, 0), 0, 0); clock.close()
        print(torch._C._cuda_hasPrimaryContext(0))
        """,
        tmp_path,
    )
    assert out.split() == ["False", "False"]


TRAIN = """
    import time, torch
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 400
        def __getitem__(self, index):
            time.sleep(0.002)
            return torch.ones(64)

    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for batch in DataLoader(Slow(), batch_size=8, num_workers=2):
            model(batch.cuda()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    ENDING
"""


ENDINGS = {"pass": 0.9, "torch.cuda._sleep(2**33)": 0.9, "import os; os._exit(0)": 0.3}
"""How a training may end, and the least share of its waits that must be known: a killed one loses some."""


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_recorded_training_tells_its_stalls(tmp_path: Path, ending: str) -> None:
    in_fresh_process(
        TRAIN.replace("ENDING", ending), tmp_path, "-m", "unstarve", "run", "--quiet", "-o", "run.unstarve"
    )
    process = next(p for p in read_run(tmp_path / "run.unstarve").processes if p.batches and not p.worker)
    assert process.lost == ()
    seen = {(s.epoch, s.position) for s in process.stalls}
    assert len(seen) >= ENDINGS[ending] * len(process.batches)
    waits = sum(stall.wait_ns for stall in process.stalls)
    assert sum(stall.stall_ns for stall in process.stalls) > 0.8 * waits
