"""The ring engine with real worker processes: in everything but speed it is torch's own loader."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from same_batches import same
from unstarve import DataLoader
from unstarve.fixes.memory.buffers import empty_batch
from unstarve.fixes.samples.built_batch import Batched

LARGE = 20_000  # float32 elements: more than what is copied out of a slot
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*use of fork:DeprecationWarning",  # other tests left threads
    "ignore:This DataLoader will create:UserWarning",  # more workers than this machine has cores
)


def ring(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, engine="ring", **options)


class Noise(Dataset[Any]):
    """Samples that depend on every random stream of the worker."""

    def __init__(self, count: int = 11, size: int = LARGE) -> None:
        self.count, self.size = count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        info = get_worker_info()
        assert info is not None
        return {
            "x": torch.rand(self.size),
            "array": np.random.rand(self.size // 4),  # the global stream, which torch seeds
            "y": index,
            "z": random.random(),
            "name": f"sample {index}",
            "worker": (info.id, info.num_workers, info.seed),
        }


class NoiseStream(IterableDataset[Any]):
    def __init__(self, count: int = 11) -> None:
        self.samples = Noise(count)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        return (self.samples[i] for i in range(info.id, self.samples.count, info.num_workers))


def batches(make: Callable[..., Any], dataset: Any, **options: Any) -> list[Any]:
    torch.manual_seed(5)
    return list(make(dataset, **options))


@pytest.mark.parametrize(
    ("method", "dataset", "workers"),
    [
        ("fork", Noise(), 1),
        ("fork", Noise(), 2),
        ("fork", NoiseStream(), 1),
        ("fork", NoiseStream(), 2),
        ("spawn", NoiseStream(), 2),
        ("forkserver", Noise(), 1),
    ],
)
def test_batches_and_seeds_are_torchs(method: str, dataset: Any, workers: int) -> None:
    options = {"batch_size": 4, "num_workers": workers, "shuffle": isinstance(dataset, Noise)}
    expected = batches(TorchLoader, dataset, multiprocessing_context="fork", **options)
    after_torch = torch.rand(3)
    assert same(batches(ring, dataset, multiprocessing_context=method, **options), expected)
    assert torch.equal(torch.rand(3), after_torch)


class Rows(Dataset[Any]):
    """Tensors and a number: what is stacked right in a slot."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> Any:
        return torch.rand(LARGE), torch.tensor([index]), index


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_that_look_alike_are_torchs(method: str) -> None:
    options = {"batch_size": 4, "num_workers": 1, "shuffle": True, "persistent_workers": True}
    loaders = (
        TorchLoader(Rows(), multiprocessing_context="fork", **options),
        ring(Rows(), multiprocessing_context=method, **options),
    )
    epochs = []
    for loader in loaders:
        torch.manual_seed(5)
        epochs.append([*loader, *loader])  # each with a smaller batch at its end; all of them kept
    assert same(epochs[1], epochs[0])


def _first_of(samples: list[Any]) -> Any:
    return [samples[0]["x"][::3], samples[0]["array"], [sample["name"] for sample in samples]]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": None},
        {"batch_size": 3, "collate_fn": _first_of},
        {"batch_size": 3, "drop_last": True, "prefetch_factor": 1},
        {"batch_size": 1, "persistent_workers": True},
    ],
    ids=" ".join,
)
def test_other_ways_of_making_batches(options: dict[str, Any]) -> None:
    expected = batches(TorchLoader, Noise(), num_workers=2, **options)
    received = batches(ring, Noise(), num_workers=2, **options)
    for one, other in zip(received, expected, strict=True):
        assert repr(one) == repr(other)


def test_out_of_order_every_batch_comes_once() -> None:
    loader = ring(range(50), batch_size=5, num_workers=3, in_order=False)
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(50))


class Sizes(Dataset[Any]):
    """Sample i is filled with i and as long as it is told."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.sizes[index],), float(index))


def is_intact(index: int, tensor: torch.Tensor) -> bool:
    return bool((tensor == index).all())


def test_who_keeps_every_batch_has_every_batch() -> None:
    count = 40
    kept = list(ring(Sizes([LARGE] * count), batch_size=None, num_workers=2))
    assert all(is_intact(i, x) for i, x in enumerate(kept))


def test_who_keeps_a_view_of_one_batch_has_it_to_the_end() -> None:
    iterator = iter(ring(Sizes([LARGE] * 60), batch_size=None, num_workers=1))
    view = next(iterator)[100:110]
    for i, x in enumerate(iterator, start=1):
        assert is_intact(i, x)
    del iterator
    assert is_intact(0, view)


def test_batch_sizes_may_vary_wildly() -> None:
    sizes = [0, 1, 10, 100_000, 3, 2_000_000, 0, 50_000, 1_000_000, 7, 4_000_000, 1]
    kept: list[tuple[int, torch.Tensor]] = []
    for i, x in enumerate(ring(Sizes(sizes * 2), batch_size=None, num_workers=2)):
        assert len(x) == (sizes * 2)[i]
        kept = [*kept[-2:], (i, x)]
        assert all(is_intact(at, tensor) for at, tensor in kept)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mapped() -> int:
    gc.collect()
    return Path("/proc/self/maps").read_text().count("unstarve-ring")


def test_ten_thousand_small_batches_leak_nothing() -> None:
    maps = mapped()
    iterator = iter(ring(range(10_000), batch_size=None, num_workers=2))
    for _ in range(100):
        next(iterator)
    before = descriptors()
    assert sum(1 for _ in iterator) == 9_900
    assert descriptors() <= before
    del iterator
    assert mapped() <= maps


def test_many_large_batches_use_the_same_few_slots() -> None:
    maps = mapped()
    iterator: Any = iter(ring(Sizes([LARGE] * 500), batch_size=None, num_workers=2, prefetch_factor=3))
    next(iterator)
    before = descriptors()
    for i, x in enumerate(iterator, start=1):
        assert x[0] == i
        if i == 400:
            assert iterator._inbox.slot_count <= 2 * (3 + 3)
            assert descriptors() <= before
    del iterator, x
    assert mapped() <= maps


class Special(Dataset[Any]):
    """What only torch's own way can send, between batches that fit."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        plain = torch.full((LARGE,), float(index))
        special: list[Any] = [
            plain,
            torch.eye(3).to_sparse(),
            torch.nn.Parameter(plain.clone()),
            plain.clone().requires_grad_(),
            [plain, plain.view(2, -1)],
            plain.view(10, -1).T,
            torch.tensor([1, 2], dtype=torch.complex64).conj(),
            {"text": "y" * 300_000},
        ]
        return index, special[index], plain


@pytest.mark.filterwarnings("ignore")  # torch warns of what is old or experimental
def test_what_does_not_fit_goes_torchs_way_one_by_one() -> None:
    expected = batches(TorchLoader, Special(), batch_size=None, num_workers=1)
    received = batches(ring, Special(), batch_size=None, num_workers=1)
    for one, other in zip(received, expected, strict=True):
        assert type(one[1]) is type(other[1])
        assert repr(one) == repr(other)
    assert received[3][1].requires_grad
    whole, view = received[4][1]
    whole.zero_()
    assert not view.any()
    assert received[5][1].stride() == (1, LARGE // 10)


class Failing(Dataset[Any]):
    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 11 and self.how == "raise":
            raise KeyError("no such sample")
        if index == 11 and self.how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 11 and self.how == "hang":
            time.sleep(2.5)
        return torch.zeros(LARGE + (index == 11 and self.how == "differ"))


def error_of(make: Callable[..., Any], how: str, **options: Any) -> tuple[type[BaseException], str, int]:
    """How an epoch ended, and after how many batches."""
    count, iterator = 0, iter(make(Failing(how), batch_size=2, num_workers=3, **options))
    try:
        for _ in iterator:
            count += 1
    except Exception as error:
        ended = type(error), str(error), count
    with contextlib.suppress(RuntimeError):  # torch may tell of a worker that died once more
        iterator._shutdown_workers()  # or the traceback keeps them, and the next loader's inherit them
    return ended


def test_an_error_in_a_worker_is_reported_as_torch_does() -> None:
    assert error_of(ring, "raise") == error_of(TorchLoader, "raise")


def test_what_cannot_be_collated_is_refused_in_torchs_words() -> None:
    kind, text, count = error_of(ring, "differ")
    expected_kind, expected_text, expected_count = error_of(TorchLoader, "differ")
    assert (kind, count) == (expected_kind, expected_count)
    assert [text.splitlines()[at] for at in (0, -1)] == [expected_text.splitlines()[at] for at in (0, -1)]


def test_a_worker_that_is_killed_is_reported_as_torch_does() -> None:
    kind, text, _ = error_of(ring, "die")
    expected_kind, expected_text, _ = error_of(TorchLoader, "die")
    assert kind is expected_kind is RuntimeError
    assert text.split("(pid")[0] == expected_text.split("(pid")[0]
    assert "exited unexpectedly" in text or "killed by signal" in text


def test_a_worker_that_hangs_is_a_timeout_as_in_torch() -> None:
    assert error_of(ring, "hang", timeout=1)[:2] == (RuntimeError, "DataLoader timed out after 1 seconds")


def test_after_an_error_persistent_workers_go_on() -> None:
    loader = ring(Failing("raise"), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(2):
        with pytest.raises(KeyError, match="no such sample"):
            list(loader)


class Unpicklable(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return lambda: index


def test_what_cannot_be_sent_is_told_by_the_worker_as_in_torch(capfd: pytest.CaptureFixture[str]) -> None:
    batches = iter(ring(Unpicklable(), batch_size=None, num_workers=1, timeout=1))
    end = time.monotonic() + 180
    while "lambda" not in capfd.readouterr().err:
        assert time.monotonic() < end
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="timed out"):
        next(batches)


def test_persistent_workers_start_over_also_in_the_middle() -> None:
    loader = ring(Sizes([LARGE] * 12), batch_size=None, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert all(is_intact(i, x) for i, x in enumerate(loader))
        some = [x for _, x in zip(range(5), loader, strict=False)]
        assert is_intact(4, some[4])


def test_two_loaders_at_once_and_one_inside_the_other() -> None:
    one, other = Sizes([LARGE] * 10), Sizes([LARGE + 5] * 6)
    pairs = zip(ring(one, batch_size=None, num_workers=1), ring(other, batch_size=None, num_workers=1))  # noqa: B905  # of different lengths
    for i, (x, y) in enumerate(pairs):
        assert is_intact(i, x)
        assert is_intact(i, y)
    for i, x in enumerate(ring(one, batch_size=None, num_workers=1)):
        if i % 4 == 0:
            inner = [y.sum().item() for y in ring(other, batch_size=None, num_workers=1)]
            assert inner == [j * (LARGE + 5) for j in range(6)]
        assert is_intact(i, x)


def test_iterating_in_a_thread() -> None:
    found: list[bool] = []

    def read() -> None:
        loader = ring(Sizes([LARGE] * 30), batch_size=None, num_workers=2)
        found.extend(is_intact(i, x) for i, x in enumerate(loader))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 60


def test_a_loader_left_in_the_middle_takes_everything_with_it() -> None:
    maps, before = mapped(), descriptors()
    iterator: Any = iter(ring(Sizes([LARGE] * 50), batch_size=None, num_workers=2))
    kept = [next(iterator) for _ in range(3)]
    workers = [psutil.Process(worker.pid) for worker in iterator._workers]
    del iterator
    assert psutil.wait_procs(workers, timeout=180)[1] == []
    assert all(is_intact(i, x) for i, x in enumerate(kept))
    assert mapped() <= maps + 3
    kept.clear()
    assert mapped() <= maps
    gc.collect()
    assert descriptors() <= before


def test_workers_end_while_training_uses_the_last_batch() -> None:
    iterator: Any = iter(ring(Sizes([LARGE] * 5), batch_size=None, num_workers=2))
    batches = [next(iterator) for _ in range(5)]
    for worker in iterator._workers:
        worker.join(timeout=180)
    assert [worker.exitcode for worker in iterator._workers] == [0, 0]
    assert all(is_intact(i, x) for i, x in enumerate(batches))
    with pytest.raises(StopIteration):
        next(iterator)


def test_persistent_workers_outlive_the_last_batch() -> None:
    loader = ring(Sizes([LARGE] * 5), batch_size=None, num_workers=2, persistent_workers=True)
    iterator: Any = iter(loader)
    workers = [worker.pid for worker in iterator._workers]
    assert all(is_intact(i, x) for i, x in enumerate(iterator))
    assert all(is_intact(i, x) for i, x in enumerate(loader))
    assert [worker.pid for worker in loader._iterator._workers if worker.is_alive()] == workers  # type: ignore[union-attr]  # it has one


def test_a_loader_used_in_a_forked_child() -> None:
    loader = ring(Sizes([LARGE] * 10), batch_size=None, num_workers=1)
    iterator = iter(loader)
    first = next(iterator)
    child = os.fork()
    if child == 0:
        good = is_intact(0, first) and all(is_intact(i, x) for i, x in enumerate(loader))
        del iterator  # must not stop the parent's workers
        gc.collect()
        os._exit(0 if good else 1)
    rest = [is_intact(i, x) for i, x in enumerate(iterator, start=1)]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rest == [True] * 9
    assert is_intact(0, first)


class Remembers(Dataset[Any]):
    """Keeps what its collate function returned, and checks later that nobody has written to it."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((LARGE,), float(index))

    def collate(self, samples: list[torch.Tensor]) -> Any:
        intact = all(
            is_intact(int(kept[0, 0]), kept[0]) and (kept[1] == kept[0] + 1).all() for kept in self.kept
        )
        batch = default_collate(samples)
        self.kept = [*self.kept[-2:], batch]
        return batch, intact


def test_what_a_worker_keeps_of_its_batches_is_left_alone() -> None:
    dataset = Remembers()
    for i, (batch, intact) in enumerate(
        ring(dataset, batch_size=2, num_workers=1, collate_fn=dataset.collate)
    ):
        assert intact
        assert is_intact(2 * i, batch[0])


class WholeBatches(Sizes):
    def __getitems__(self, indices: list[int]) -> Batched:
        whole = empty_batch((len(indices), LARGE), torch.float32)
        for row, index in enumerate(indices):
            whole[row] = index
        return Batched(whole, len(indices), lambda i: whole[i])


def test_batches_that_a_dataset_builds_itself() -> None:
    dataset = WholeBatches([LARGE] * 40)
    received = torch.cat([batch[:, 0] for batch in ring(dataset, batch_size=4, num_workers=1)])
    assert received.tolist() == list(range(40))


def test_it_is_not_for_loaders_without_workers() -> None:
    with pytest.raises(ValueError, match="num_workers=0"):
        ring(range(3), num_workers=0)
