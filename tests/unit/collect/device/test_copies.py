"""Copies of timed steps, with stand-ins for the device: no test here needs CUDA."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from unstarve.collect.copy_patch import WatchedMethod, set_copy_patch
from unstarve.collect.device import copies as module
from unstarve.collect.device.copies import CopyWatch
from unstarve.collect.device.wait_marks import StreamLane
from unstarve.launch.patching import lend, take_back
from unstarve.record import format as f

MS = 1_000_000
TRAINING, SIDE, FOREIGN = 0, 3, 4096
STEP = (1, f.BATCH_WAIT, 2, 3)


class Base:
    """What ``torch._C.TensorBase`` is to ``torch.Tensor``; `cost` is what a copy from here takes."""

    layout = torch.strided

    def __init__(self, place: str = "cpu", nbytes: int = 1000, *, pinned: bool = False, **facts: Any) -> None:
        self.device = torch.device(place)
        self.is_cuda, self.is_cpu = place != "cpu", place == "cpu"
        self.dtype = torch.complex64 if facts.get("complex") else torch.float32
        self.nbytes, self._pinned, self.facts = nbytes, pinned, facts

    def is_pinned(self) -> bool:
        if "broken" in self.facts:
            raise RuntimeError("no such thing")
        return self._pinned

    def numel(self) -> int:
        return self.nbytes

    def to(self, *args: Any, **kwargs: Any) -> Any:
        asked = args[0] if args else kwargs.get("device", "cpu")
        if not isinstance(asked, str):
            raise TypeError("to() received an invalid combination of arguments")
        self.facts.get("while_copying", lambda: None)()
        return type(self)(asked, self.nbytes)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        return type(self)("cuda", self.nbytes)

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        return self


class Tensor(Base):
    pass


class Parameter(Tensor):
    pass


class Device:
    def __init__(self) -> None:
        self.now = 0
        self.stream = TRAINING
        self.capturing = False
        self.modes = 0
        self.contexts = {0}
        self.start_callbacks: list[Any] = []
        self.rows: list[Any] = []
        self.lost: list[str] = []
        self.recorded = 0
        self.watch = CopyWatch(
            self.record,
            lambda key: StreamLane(key[1], SimpleNamespace(), []),  # type: ignore[arg-type]  # a stand-in
            lambda key: key[0] == TRAINING,
            lambda: self.capturing,
            self.lost.append,
        )

    def record(self, plan: Any) -> list[Any]:
        self.recorded += 1
        self.now += MS
        return [self.now]

    def steps(self, *actions: Callable[[], object], before: int = 8) -> None:
        """Steps that do nothing, then one that does each of these."""
        for _ in range(before):
            self.watch.got(STEP, self.now)
            self.watch.asked()
        self.watch.got(STEP, self.now)
        for action in actions:
            action()
        self.watch.asked()

    def read(self, *, done: bool = True) -> list[f.CopyRow]:
        self.watch.read(
            lambda event: done, lambda a, b: (b - a) / MS, lambda kind, now, row: self.rows.append(row), 0
        )
        return self.rows


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    made: list[Device] = []
    handler = SimpleNamespace(start_callbacks=[], end_callbacks=[])
    handler.register_start_callback = handler.start_callbacks.append
    handler.register_end_callback = handler.end_callbacks.append
    handler.remove_start_callback = handler.start_callbacks.remove
    handler.remove_end_callback = handler.end_callbacks.remove
    c = SimpleNamespace(
        _cuda_getCurrentStream=lambda index: (made[0].stream, index, 1),
        _len_torch_function_stack=lambda: made[0].modes,
        _len_torch_dispatch_stack=lambda: 0,
        _get_tracing_state=lambda: None,
        _functorch=SimpleNamespace(peek_interpreter_stack=lambda: None),
        _nn=torch._C._nn,
    )
    cuda = SimpleNamespace(current_device=lambda: 0)
    like = SimpleNamespace(Tensor=Tensor, strided=torch.strided, device=torch.device, cuda=cuda, _C=c)
    monkeypatch.setattr(module, "torch", like)
    monkeypatch.setattr(module, "has_context", lambda index: index in made[0].contexts)
    monkeypatch.setattr(module, "cuda_driver", lambda: None)
    monkeypatch.setattr(module, "_compile_callbacks", lambda: handler)
    set_copy_patch(swap)
    made.append(Device())
    made[0].start_callbacks = handler.start_callbacks
    yield made[0]
    made[0].watch.close()
    set_copy_patch(None)
    assert patched() == []
    assert handler.start_callbacks == handler.end_callbacks == []


def swap(methods: Iterable[WatchedMethod], watched: bool) -> None:
    for method in methods:
        (lend if watched else take_back)(Tensor, method.name, method)


def patched() -> list[str]:
    return [name for name in ("to", "cuda", "copy_") if name in vars(Tensor)]


def test_a_copy_is_timed_on_the_device_and_told_apart(device: Device) -> None:
    device.steps(lambda: Tensor(nbytes=5).to("cuda:0"), lambda: Tensor(nbytes=7).to(device="cuda:0"))
    (row,) = device.read()
    assert (row.loader, row.epoch, row.position, row.device) == (1, 2, 3, 0)
    assert (row.copies, row.nbytes, row.device_ns, row.flags) == (2, 12, 2 * MS, 0)
    assert f.ROW_KINDS[f.COPY].pack(*row)


@pytest.mark.parametrize(
    ("copy", "flags"),
    [
        (lambda: Tensor(pinned=True).to("cuda", non_blocking=True), f.PINNED | f.NON_BLOCKING),
        (lambda: Tensor().to("cuda", torch.float16, True), f.NON_BLOCKING),
        (lambda: Tensor().to("cuda", copy=True), 0),
        (lambda: Tensor(pinned=True).cuda(), f.PINNED),
        (lambda: Tensor().cuda(0, True), f.NON_BLOCKING),
        (lambda: Tensor("cuda:0").copy_(Tensor(pinned=True), non_blocking=True), f.PINNED | f.NON_BLOCKING),
    ],
)
def test_every_way_to_copy_is_seen(device: Device, copy: Callable[[], object], flags: int) -> None:
    device.steps(copy)
    assert [(row.copies, row.flags) for row in device.read()] == [(1, flags)]


def test_a_copy_on_another_stream_lies_beside_training(device: Device) -> None:
    device.stream = SIDE
    device.steps(lambda: Tensor().to("cuda"))
    assert [row.flags for row in device.read()] == [f.BESIDE]


@pytest.mark.parametrize(
    "call",
    [
        lambda: Tensor().to("cpu"),
        lambda: Tensor("cuda").to("cuda"),
        lambda: Parameter().to("cuda"),
        lambda: Tensor(complex=True).to("cuda"),
        lambda: Tensor(nbytes=0).to("cuda"),
        lambda: Tensor().to("cuda:1"),
        lambda: Tensor.to(Tensor(), "cuda"),
        lambda: Tensor("cuda").copy_(Tensor("cuda")),
    ],
    ids=[
        "to the cpu",
        "on the device",
        "a parameter",
        "complex",
        "empty",
        "a sleeping device",
        "unbound",
        "d2d",
    ],
)
def test_what_is_no_copy_of_a_batch_is_left_alone(device: Device, call: Callable[[], object]) -> None:
    device.steps(call)
    assert [row.copies for row in device.read()] == [0]
    assert (device.recorded, device.lost) == (0, [])


def test_exceptions_of_the_copy_are_its_own(device: Device) -> None:
    def copy() -> None:
        with pytest.raises(TypeError, match="invalid combination"):
            Tensor().to(3.5)
        with pytest.raises(ZeroDivisionError):
            Tensor(while_copying=lambda: 1 / 0).to("cuda")

    device.steps(copy)
    assert [row.copies for row in device.read()] == [0]
    assert device.lost == []


@pytest.mark.parametrize("state", ["capturing", "modes"])
def test_captures_and_modes_are_left_alone(device: Device, state: str) -> None:
    device.steps(lambda: setattr(device, state, 1), lambda: Tensor().to("cuda"))
    assert device.recorded == 0
    setattr(device, state, 0)


def test_a_foreign_stream_may_be_gone_and_is_not_marked(device: Device) -> None:
    device.stream = FOREIGN
    device.steps(lambda: Tensor().to("cuda"))
    assert device.recorded == 0


def test_an_error_of_ours_ends_it_for_good_and_is_said_once(device: Device) -> None:
    copied: list[Any] = []
    device.steps(lambda: copied.append(Tensor(broken=True).to("cuda")), lambda: Tensor(broken=True).cuda())
    device.steps(lambda: Tensor().to("cuda"), before=100)
    assert copied[0].device == torch.device("cuda")
    assert device.recorded == 0
    assert device.lost == ["copies to the GPU are not seen from here on: RuntimeError('no such thing')"]


def test_only_during_a_timed_step_is_anything_patched(device: Device) -> None:
    seen: list[list[str]] = []
    for _ in range(30):
        device.watch.got(STEP, 0)
        seen.append(patched())
        device.watch.asked()
        assert patched() == []
    timed = [number for number, names in enumerate(seen) if names]
    assert timed == list(range(8, 30, 3))
    assert seen[8] == ["to", "cuda", "copy_"]


def test_the_class_and_its_subclasses_never_see_a_stand_in(device: Device) -> None:
    own = {name: getattr(Base, name) for name in ("to", "cuda", "copy_")}

    def look() -> None:
        assert patched()
        for name, method in own.items():
            assert getattr(Tensor, name) is method
            assert getattr(Parameter(), name).__func__ is method
        assert {own["to"]: "found"}.get(Tensor.to) == "found"

    device.steps(look)


def test_what_somebody_else_puts_there_stays(device: Device) -> None:
    def theirs(self: Any, *args: Any) -> str:
        return "theirs"

    device.steps(lambda: setattr(Tensor, "to", theirs))
    try:
        assert Tensor().to("cuda") == "theirs"
        device.steps(lambda: Tensor().to("cuda"))
        assert Tensor().to("cuda") == "theirs"
    finally:
        del Tensor.to


@pytest.mark.parametrize(
    ("call", "times", "pause"),
    [(lambda: Tensor().to("cuda"), 9, 20), (lambda: Tensor("cuda").to("cuda"), 140, 22)],
    ids=["copies", "lookups"],
)
def test_the_more_a_step_costs_the_longer_the_pause(
    device: Device, call: Callable[[], object], times: int, pause: int
) -> None:
    device.steps(*[call] * times)
    following = 0
    while not patched():
        device.watch.asked()
        device.watch.got(STEP, 0)
        following += 1
    assert following == pause + 1


def test_pauses_grow_with_the_number_of_timed_steps(device: Device) -> None:
    timed = 0
    for _ in range(100_000):
        device.watch.got(STEP, 0)
        timed += bool(patched())
        device.watch.asked()
        device.read()
    assert timed < 300


def test_torch_compile_finds_torch_as_it_was(device: Device) -> None:
    def compile() -> None:
        (begins,) = device.start_callbacks
        begins(None)
        assert patched() == []
        Tensor().to("cuda")

    device.steps(compile)
    device.steps(lambda: None, before=40)  # it is still compiling
    assert device.read() == []


def test_a_step_that_was_the_last_one_does_not_stay_patched(device: Device) -> None:
    for _ in range(9):
        device.watch.asked()
        device.watch.got(STEP, 0)
    device.watch.look_on(MS)
    assert patched()
    device.watch.look_on(10_000 * MS)
    assert patched() == []


def test_another_threads_copies_are_not_the_steps(device: Device) -> None:
    def elsewhere() -> None:
        thread = threading.Thread(target=lambda: Tensor().to("cuda"))
        thread.start()
        thread.join()

    device.steps(elsewhere)
    assert device.recorded == 0


def test_a_forked_child_is_not_watched(device: Device) -> None:
    answer: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            os._exit(len(patched()))
        answer.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    device.steps(fork)
    assert answer == [0]


def test_nothing_is_written_before_the_device_has_come_that_far(device: Device) -> None:
    device.steps(lambda: Tensor().to("cuda"))
    assert device.read(done=False) == []
    assert len(device.read()) == 1


def test_without_leave_to_patch_no_step_is_timed(device: Device) -> None:
    set_copy_patch(None)
    device.steps(lambda: Tensor().to("cuda"), before=50)
    assert device.read() == []
