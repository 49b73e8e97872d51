"""to_device: the loader's batches on a device. Its copies on a stream need a GPU; the rest is tested here."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

import unstarve
from unstarve.errors import UsageError
from unstarve.fixes.loader import to_device as module
from unstarve.fixes.loader.to_device import batches_ahead

Pair = namedtuple("Pair", ["x", "y"])
META = "meta"
"""A device that every torch has: tensors on it have no memory."""


def test_batches_are_the_loaders_and_its_attributes_stay() -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=4)
    moved = unstarve.to_device(loader, "cpu")
    assert [batch[0].tolist() for batch in moved] == [batch[0].tolist() for batch in loader]
    assert len(moved) == 3
    assert moved.batch_size == 4
    assert isinstance(moved, DataLoader)


def test_every_tensor_moves_however_nested_and_nothing_else() -> None:
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    batch = {
        "pair": Pair(torch.ones(2), "text"),
        "list": [torch.zeros(1), (torch.ones(1), 5, None)],
        "ordered": OrderedDict(a=torch.ones(1)),
        "packed": packed,
    }
    (moved,) = unstarve.to_device([batch], META)
    assert moved["pair"].x.device.type == META
    assert moved["pair"].y == "text"
    assert moved["list"][0].device.type == moved["list"][1][0].device.type == META
    assert moved["list"][1][1:] == (5, None)
    assert type(moved["ordered"]) is OrderedDict
    assert moved["packed"].data.device.type == META


@dataclass(frozen=True)
class Example:
    x: torch.Tensor
    name: str = "name"


class Encoding(UserDict[str, Any]):
    """Like those of Hugging Face's tokenizers: it moves its own tensors, in place."""

    def __init__(self, data: dict[str, Any], tokens: list[str]) -> None:
        super().__init__(data)
        self.tokens = tokens

    def to(self, device: Any) -> Encoding:
        self.data = {key: value.to(device) for key, value in self.data.items()}
        return self


class Graph:
    """An object that moves itself, and knows no `non_blocking`."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def to(self, device: Any) -> Graph:
        return Graph(self.x.to(device))


def test_containers_keep_their_types_and_the_loaders_batch_its_tensors() -> None:
    made: defaultdict[str, Any] = defaultdict(list, x=torch.ones(1))
    batch = [Example(torch.ones(2)), Encoding({"ids": torch.ones(3)}, ["a"]), Graph(torch.ones(4)), made]
    ((example, encoding, graph, mapping),) = unstarve.to_device([batch], META)
    assert (type(example), example.name, example.x.device.type) == (Example, "name", META)
    assert (type(encoding), encoding.tokens, encoding["ids"].device.type) == (Encoding, ["a"], META)
    assert (type(graph), graph.x.device.type) == (Graph, META)
    assert (mapping["x"].device.type, mapping["new"]) == (META, [])
    assert all(one.is_cpu for one in (batch[0].x, batch[1]["ids"], batch[2].x, made["x"]))


class Cuda:
    """Stands in for the streams of a GPU, and writes down what happens on which."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.here = "training"
        self.copies = SimpleNamespace(name="copies", record_event=self.recorded)
        self.training = SimpleNamespace(name="training", wait_event=self.waited)

        def kept_for(tensor: torch.Tensor, stream: Any) -> None:
            assert tensor.device.type == META
            self.log.append(f"kept for {stream.name}")

        monkeypatch.setattr(module, "_copy_stream", lambda device: self.copies)
        monkeypatch.setattr(module, "pinned", self.pinned)
        monkeypatch.setattr(torch.cuda, "stream", self.stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.training)
        monkeypatch.setattr(torch.Tensor, "record_stream", kept_for)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.here = stream.name
        yield
        self.here = "training"

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        self.log.append(f"{self.here}: copy {int(tensor[0])}")
        return tensor

    def recorded(self) -> str:
        self.log.append(f"{self.here}: event")
        return "event"

    def waited(self, event: str) -> None:
        self.log.append(f"{self.here}: wait for {event}")


def test_copies_run_beside_and_training_waits_for_them_and_keeps_their_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = Cuda(monkeypatch)
    batches = iter([{"x": torch.full((2,), number)} for number in range(2)])
    for _ in batches_ahead(batches, module._begin_copy(torch.device(META)), 1, deque()):
        cuda.log.append("step")
    given = ["training: wait for event", "kept for training", "step"]
    assert cuda.log == [
        *(["copies: copy 0", "copies: event", "copies: copy 1", "copies: event"]),
        *given,
        *given,
    ]


def test_what_moves_itself_moves_on_trainings_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch)

    class Logged(Graph):
        def to(self, device: Any) -> Graph:
            cuda.log.append(f"{cuda.here}: to")
            return super().to(device)

    class Named(torch.Tensor):
        pass

    tensor = torch.ones(1).as_subclass(Named)
    batch = [Logged(torch.ones(1)), pack_sequence([torch.ones(2)]), torch.ones(2).to_sparse(), tensor]
    move = module._begin_copy(torch.device(META))
    (moved,) = batches_ahead(iter([batch]), move, 0, deque())
    assert cuda.log == ["copies: event", "training: wait for event", "training: to"]
    assert moved[1].data.device.type == moved[2].device.type == moved[3].device.type == META
    assert type(moved[3]) is Named


def moves(log: list[str]) -> Callable[[Any], Callable[[], Any]]:
    def move(batch: int) -> Callable[[], int]:
        log.append(f"begin {batch}")

        def finish() -> int:
            log.append(f"finish {batch}")
            return batch

        return finish

    return move


def test_with_one_ahead_the_next_copy_begins_before_a_batch_is_given() -> None:
    log: list[str] = []
    for batch in batches_ahead(iter([0, 1]), moves(log), 1, deque()):
        log += [f"step {batch}"]
    assert log == ["begin 0", "begin 1", "finish 0", "step 0", "finish 1", "step 1"]


def test_without_any_ahead_the_loader_is_asked_when_training_asks() -> None:
    log: list[str] = []
    for batch in batches_ahead(iter([0, 1]), moves(log), 0, deque()):
        log += [f"step {batch}"]
    assert log == ["begin 0", "finish 0", "step 0", "begin 1", "finish 1", "step 1"]


def test_an_exception_comes_after_the_batches_before_it() -> None:
    def breaks() -> Iterator[int]:
        yield 0
        raise OSError("the disk is gone")

    given = batches_ahead(breaks(), moves([]), 2, deque())
    assert next(given) == 0
    with pytest.raises(OSError, match="the disk is gone"):
        next(given)


def test_only_loaders_with_workers_are_asked_ahead() -> None:
    data = TensorDataset(torch.arange(4))
    assert unstarve.to_device(DataLoader(data, num_workers=2), "cuda").ahead == 1
    assert unstarve.to_device(unstarve.DataLoader(data, num_workers=2), "cuda").ahead == 1
    assert unstarve.to_device(DataLoader(data, num_workers=2), "cpu").ahead == 0
    assert unstarve.to_device(DataLoader(data), "cuda").ahead == 0
    assert unstarve.to_device([1, 2], "cuda").ahead == 0
    assert unstarve.to_device([1, 2], "cuda", ahead=3).ahead == 3


class WithState(DataLoader[Any]):
    def state_dict(self) -> dict[str, Any]:
        return {"given": 1}


def test_a_state_is_never_one_of_batches_that_training_has_not_got() -> None:
    loader: Any = WithState(TensorDataset(torch.arange(3)), num_workers=2)
    assert unstarve.to_device(loader, "cuda").ahead == 0
    moved: Any = unstarve.to_device([1, 2], "cpu", ahead=1)
    assert not hasattr(moved, "state_dict")
    moved = unstarve.to_device(WithState(TensorDataset(torch.arange(3))), "cpu", ahead=1)
    batches = iter(moved)
    next(batches)
    with pytest.raises(UsageError, match=r"save its state between epochs, or use to_device\(…, ahead=0\)"):
        moved.state_dict()
    list(batches)
    assert moved.state_dict() == {"given": 1}
    for _ in moved:
        break
    assert moved.state_dict() == {"given": 1}


def test_every_iteration_begins_anew_also_after_an_early_end() -> None:
    moved = unstarve.to_device(DataLoader(TensorDataset(torch.arange(4))), "cpu", ahead=2)
    for (value,) in moved:
        assert value.item() == 0
        break
    assert [value.item() for (value,) in moved] == [0, 1, 2, 3]


def test_wrong_arguments_say_what_is_right() -> None:
    with pytest.raises(UsageError, match="a loader must be iterable, got 3"):
        unstarve.to_device(3, "cpu")  # type: ignore[arg-type] # that is the point
    with pytest.raises(UsageError, match="to_device needs a device, such as 'cuda', got 'gpu'"):
        unstarve.to_device([], "gpu")
    with pytest.raises(UsageError, match="ahead must be >= 0, got -1"):
        unstarve.to_device([], "cpu", ahead=-1)
