"""Samples and batches are what the source's were, whatever a sample consists of."""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from unstarve import CachedDataset
from unstarve.errors import CacheError, CacheTooLargeError, UsageError
from unstarve.fixes.batched import Batched
from unstarve.fixes.cached import rows as rows_module
from unstarve.native import native, why_not_native

Point = namedtuple("Point", "x y")


class Source(Dataset[Any]):
    """Samples made by a function, and how often each was asked for."""

    def __init__(self, make: Callable[[int], Any], count: int = 12) -> None:
        self.make = make
        self.count = count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.make(index)


def image(index: int) -> torch.Tensor:
    return (torch.arange(48, dtype=torch.uint8) + index).reshape(3, 4, 4)


COLLATED: dict[str, Callable[[int], Any]] = {
    "tensor": image,
    "bfloat16": lambda i: torch.tensor([i, 2 * i], dtype=torch.bfloat16),
    "float8": lambda i: torch.tensor([i, 2]).to(torch.float8_e4m3fn),
    "complex": lambda i: torch.tensor([i + 1j * i]),
    "no dimensions": torch.tensor,
    "empty tensor": lambda i: torch.empty(0, 3),
    "transposed": lambda i: (torch.arange(6) + i).reshape(2, 3).T,
    "array": lambda i: np.full((2, 3), i, np.float32),
    "uint16 array": lambda i: np.full(3, i, np.uint16),
    "array without dimensions": np.array,
    "pair": lambda i: (image(i), i),
    "list": lambda i: [image(i), float(i)],
    "dict": lambda i: {"image": image(i), "label": i, "weight": i / 3, "flag": i % 2 == 0, "name": f"№{i}"},
    "nested": lambda i: {"x": (image(i), [np.int16(i), {"y": np.bool_(i % 2)}]), "ids": (f"a{i}", b"b")},
    "scalars": lambda i: (np.float32(i), np.int64(i), np.uint8(i), np.float64(i)),
    "bare int": lambda i: i,
    "bare float": lambda i: i / 2,
    "bare text": lambda i: f"text {i}",
    "text only": lambda i: (f"text {i}", "x"),
    "negative": lambda i: (-i, -(2**63), 2**63 - 1),
    "namedtuple": lambda i: Point(image(i), i),
    "ordered dict": lambda i: OrderedDict(b=i, a=image(i)),
    "empty tuple": lambda i: (),
    "mixed numbers": lambda i: (i if i % 3 else i / 2, i),
}
ONLY_SAMPLES: dict[str, Callable[[int], Any]] = {
    "ragged": lambda i: (torch.arange(i % 5), i),
    "ragged arrays": lambda i: {"boxes": np.ones((i % 3, 4), np.float32), "label": i},
    "none": lambda i: (image(i), None),
    "huge int": lambda i: (2**63 + i, i),
    "structure differs": lambda i: (i,) if i % 4 else {"i": i},
    "keys differ": lambda i: {"a": i, "b": i} if i % 4 else {"b": i, "a": i},
    "long list": lambda i: list(range(i + 40)),
    "strings in an array": lambda i: np.array([f"a{i}", "b"]),
    "times": lambda i: np.datetime64("2024-01-01") + i,
    "sparse": lambda i: torch.eye(3).mul(i).to_sparse(),
    "objects": lambda i: {"set": {i}, "range": range(i), "bytes": bytearray(b"x")},
    "late oddity": lambda i: image(i) if i != 7 else image(i)[:, :2],
}
MADE = {**COLLATED, **ONLY_SAMPLES}

needs_native = pytest.mark.skipif(native() is None, reason=f"native gather: {why_not_native()}")


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "twin"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "twin":
        monkeypatch.setattr(rows_module, "native", lambda: None)


def assert_same(mine: Any, theirs: Any) -> None:
    """Equal in value, and in type all the way down."""
    assert type(mine) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert (mine.dtype, mine.shape, mine.layout) == (theirs.dtype, theirs.shape, theirs.layout)
        dense = (mine.to_dense(), theirs.to_dense())
        assert torch.equal(*(each.float() if each.dtype.itemsize == 1 else each for each in dense))
    elif isinstance(theirs, np.ndarray):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    elif isinstance(theirs, dict):
        assert list(mine) == list(theirs)
        for key in theirs:
            assert_same(mine[key], theirs[key])
    elif isinstance(theirs, (tuple, list)):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert_same(one, other)
    else:
        assert mine == theirs


@pytest.mark.parametrize("fill", ["now", "lazy"])
@pytest.mark.parametrize("kind", MADE)
def test_a_sample_comes_back_as_it_was(kind: str, fill: Any) -> None:
    make = MADE[kind]
    cached = CachedDataset(Source(make), fill=fill)
    assert len(cached) == 12
    for _ in range(2):
        for index in (0, 7, 11, 3):
            assert_same(cached[index], make(index))
    assert_same(cached[-1], make(11))
    assert_same(cached[np.int32(2)], make(2))
    assert_same(cached[torch.tensor(2)], make(2))


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("kind", COLLATED)
def test_a_batch_is_what_default_collate_makes(kind: str) -> None:
    make = COLLATED[kind]
    cached = CachedDataset(Source(make))
    for indices in ([3, 0, 11, 3], [5], [-1, 2]):
        assert_same(
            default_collate(cached.__getitems__(indices)), default_collate([make(i % 12) for i in indices])
        )


@pytest.mark.parametrize("kind", MADE)
def test_a_collate_function_of_ones_own_sees_samples(kind: str) -> None:
    make = MADE[kind]
    batches = list(DataLoader(CachedDataset(Source(make)), batch_size=5, collate_fn=list))
    assert_same(batches, [[make(i) for i in chunk] for chunk in (range(5), range(5, 10), range(10, 12))])


@pytest.mark.parametrize("kind", ["tensor", "array", "pair", "list", "dict", "nested", "scalars"])
def test_batches_are_gathered_where_samples_are_alike(kind: str) -> None:
    batch = CachedDataset(Source(COLLATED[kind])).__getitems__([4, 2])
    assert isinstance(batch, Batched)
    assert default_collate(batch) is batch.whole


@pytest.mark.parametrize("kind", ["tensor", "pair", "dict", "ragged", "late oddity"])
@pytest.mark.parametrize("fill", ["now", "lazy"])
def test_each_sample_is_read_once(kind: str, fill: Any) -> None:
    source = Source(MADE[kind])
    cached = CachedDataset(source, fill=fill)
    if fill == "lazy":
        assert len(source.asked) == 3
    for _ in range(3):
        assert len(list(DataLoader(cached, shuffle=True, batch_size=None))) == 12
    assert sorted(source.asked) == list(range(12))


def test_lazily_filled_batches_become_rows_once_all_are_there() -> None:
    cached = CachedDataset(Source(COLLATED["pair"]), fill="lazy")
    assert cached.rows() is None
    for _ in range(2):
        for batch, plain in zip(
            DataLoader(cached, batch_size=4), DataLoader(Source(COLLATED["pair"]), batch_size=4), strict=True
        ):
            assert_same(batch, plain)
    images, labels = cached.rows()
    assert images.shape == (12, 3, 4, 4)
    assert torch.equal(labels, torch.arange(12))


def test_rows_are_the_contiguous_columns_in_the_structure_of_a_sample() -> None:
    rows = CachedDataset(Source(lambda i: {"x": (image(i), i), "y": np.float32(i)})).rows()
    assert list(rows) == ["x", "y"]
    assert type(rows["x"]) is tuple
    assert torch.equal(rows["x"][0], torch.stack([image(i) for i in range(12)]))
    assert rows["x"][0].is_contiguous()
    assert rows["y"].dtype == torch.float32


@pytest.mark.parametrize("kind", ["dict", "ragged", "late oddity", "none", "namedtuple", "bare text"])
def test_there_are_no_rows_where_a_sample_is_more_than_a_row(kind: str) -> None:
    assert CachedDataset(Source(MADE[kind])).rows() is None


def test_there_are_no_rows_behind_a_transform() -> None:
    assert CachedDataset(torch.randn(4, 2), transform=torch.neg).rows() is None


def test_a_transform_runs_at_each_access_and_not_in_the_cache() -> None:
    source = Source(COLLATED["pair"])
    calls: list[int] = []

    def brighter(sample: tuple[torch.Tensor, int]) -> tuple[torch.Tensor, int]:
        calls.append(sample[1])
        return sample[0].add_(len(calls)), sample[1]

    cached = CachedDataset(source, transform=brighter)
    assert calls == []
    assert torch.equal(cached[3][0], image(3) + 1)
    assert torch.equal(cached[3][0], image(3) + 2)
    images, labels = next(iter(DataLoader(cached, batch_size=2)))
    assert torch.equal(images, torch.stack([image(0) + 3, image(1) + 4]))
    assert labels.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["tensor", "array", "pair", "dict", "ragged arrays"])
def test_changing_a_sample_or_a_batch_does_not_change_the_cache(kind: str) -> None:
    make = MADE[kind]
    cached = CachedDataset(Source(make))

    def spoil(part: Any) -> None:
        if isinstance(part, (torch.Tensor, np.ndarray)):
            part *= 0
        elif isinstance(part, (tuple, list)):
            for each in part:
                spoil(each)
        elif isinstance(part, dict):
            spoil(list(part.values()))
            part.clear()

    for _ in range(2):
        spoil(cached[4])
        spoil(list(cached.__getitems__([4, 5])))
    assert_same(cached[4], make(4))


def test_a_dataset_may_return_the_same_memory_each_time() -> None:
    buffer, numbers = torch.empty(3), np.empty(2)

    def reuse(index: int) -> tuple[torch.Tensor, Any]:
        numbers[:] = index
        return buffer.fill_(index), numbers

    cached = CachedDataset(Source(reuse))
    assert torch.equal(cached.rows()[0], torch.arange(12.0)[:, None].expand(12, 3))
    assert [each[1][0] for each in cached] == list(range(12))


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("fill", ["now", "lazy"])
def test_small_datasets(count: int, fill: Any) -> None:
    cached = CachedDataset(Source(COLLATED["pair"], count), fill=fill)
    assert len(cached) == count
    assert_same(list(cached), [COLLATED["pair"](i) for i in range(count)])
    assert len(list(DataLoader(cached, batch_size=2))) == (count + 1) // 2
    with pytest.raises(IndexError, match="out of bounds"):
        cached[count]


def test_indices_out_of_bounds_are_refused() -> None:
    cached = CachedDataset(torch.zeros(3, 2))
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of bounds"):
            cached[index]
        with pytest.raises(IndexError, match="out of bounds"):
            cached.__getitems__([0, index])


# Tensors and arrays


X, Y = torch.linspace(-1, 1, 18).reshape(6, 3), torch.arange(6)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize(
    ("data", "sample"),
    [
        (X, X[2]),
        ((X, Y), (X[2], Y[2])),
        ([X, Y], [X[2], Y[2]]),
        ({"x": X, "y": (Y, Y.double())}, {"x": X[2], "y": (Y[2], Y[2].double())}),
        (X.numpy(), X.numpy()[2]),
        ((X.numpy(), Y.numpy()), (X.numpy()[2], Y.numpy()[2])),
        ({"x": X.numpy(), "y": Y}, {"x": X.numpy()[2], "y": Y[2]}),
        (TensorDataset(X, Y), (X[2], Y[2])),
        (TensorDataset(X), (X[2],)),
        (Point(X, Y), Point(X[2], Y[2])),
        (X.bfloat16(), X.bfloat16()[2]),
    ],
)
def test_tensors_and_arrays_are_datasets(data: Any, sample: Any) -> None:
    cached = CachedDataset(data)
    assert len(cached) == 6
    assert_same(cached[2], sample)
    batch = default_collate(cached.__getitems__([2, 2]))
    assert_same(batch, default_collate([sample, sample]))
    assert (cached.rows() is None) == isinstance(data, Point)


def test_tensors_and_arrays_are_used_where_they_lie() -> None:
    array = np.zeros((4, 2), np.float32)
    x, y = CachedDataset((X, array)).rows() if len(X) == 4 else CachedDataset((X[:4], array)).rows()
    assert x.data_ptr() == X.data_ptr()
    assert y.data_ptr() == array.ctypes.data


def test_what_is_not_contiguous_is_made_so_once() -> None:
    cached = CachedDataset((X.T.contiguous().T, np.asfortranarray(X.numpy())))
    assert all(column.is_contiguous() for column in cached.rows())
    assert_same(cached[1], (X[1], X.numpy()[1]))


def test_an_array_that_may_not_be_written_is_fine() -> None:
    array = np.arange(12.0).reshape(6, 2)
    array.flags.writeable = False
    cached = CachedDataset(array)
    assert cached[1].flags.writeable
    assert torch.equal(
        default_collate(cached.__getitems__([0, 1])), torch.tensor([[0.0, 1.0], [2.0, 3.0]]).double()
    )


def test_a_tensor_may_move_to_shared_memory_behind_our_back() -> None:
    tensor = torch.arange(200_000.0).reshape(-1, 2)
    cached = CachedDataset(tensor)
    tensor.share_memory_()
    junk = [torch.full((100_000, 2), -1.0) for _ in range(3)]
    assert cached[3].tolist() == [6.0, 7.0]
    assert default_collate(cached.__getitems__([3, 99_999])).tolist() == [[6.0, 7.0], [199_998.0, 199_999.0]]
    del junk


def test_lists_of_samples_are_datasets() -> None:
    samples = [(torch.tensor([i]), i) for i in range(5)]
    assert_same(list(CachedDataset(samples)), samples)
    assert_same(list(CachedDataset(np.array(["a", "b"]))), list(np.array(["a", "b"])))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:3]), "one length"),
        ((), "nothing to cache"),
        ((X, "text"), "not str"),
        ({"a": np.array(["x"])}, "array of <U1"),
        (torch.tensor(1.0), "without dimensions"),
        ([X[0]] * 20, "list of 20 tensors"),
        (3, "int cannot be cached"),
        (iter([1]), "cannot be cached"),
    ],
)
def test_what_cannot_be_cached_is_refused(data: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CachedDataset(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X.to_sparse(), "to_dense"),
        (X.clone().requires_grad_(), "detach"),
        (torch.empty(3, 2, device="meta"), "on meta"),
        (Source(lambda i: torch.ones(2, requires_grad=True)), "sample 0: .*detach"),
        (Source(lambda i: lambda: i), "sample 0 cannot be cached: .*pickle"),
    ],
)
def test_tensors_that_are_no_plain_memory_are_refused(data: Any, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        CachedDataset(data)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class NoLength(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


def test_streams_and_datasets_without_length_are_refused() -> None:
    with pytest.raises(UsageError, match="Stream is a stream"):
        CachedDataset(Stream())
    with pytest.raises(UsageError, match="NoLength cannot be cached without a length"):
        CachedDataset(NoLength())


@pytest.mark.parametrize(
    "arguments",
    [{"fill": "soon"}, {"over_budget": "maybe"}, {"budget": "8 parsecs"}, {"budget": -1}, {"budget": 1.5}],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(arguments))):
        CachedDataset(X, **arguments)


# With what torch has around datasets


@pytest.mark.parametrize(
    "make", [lambda d: Subset(d, [5, 1, 3]), lambda d: ConcatDataset([d, d]), lambda d: d[2:9:3]]
)
def test_it_may_stand_in_other_datasets(make: Callable[[Dataset[Any]], Any]) -> None:
    plain = Source(COLLATED["pair"])
    around = make(CachedDataset(plain))
    expected = (
        Subset(plain, range(2, 9, 3)) if isinstance(getattr(around, "indices", 0), range) else make(plain)
    )
    for batch, other in zip(
        DataLoader(around, batch_size=2), DataLoader(expected, batch_size=2), strict=True
    ):
        assert_same(batch, other)


def test_a_slice_is_a_subset() -> None:
    cached = CachedDataset(torch.arange(20))
    assert isinstance(cached[10:20], Subset)
    assert [int(each) for each in cached[10:20]] == list(range(10, 20))
    assert len(cached[-3:]) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        {"shuffle": True, "batch_size": 5},
        {"sampler": WeightedRandomSampler(torch.ones(12), 9), "batch_size": 4},
        {"batch_sampler": BatchSampler(range(11, -1, -1), 5, drop_last=True)},
        {"batch_size": None},
    ],
)
def test_any_sampler_gives_what_it_gives_without_the_cache(arguments: dict[str, Any]) -> None:
    def epoch(dataset: Dataset[Any]) -> list[Any]:
        torch.manual_seed(3)
        return list(DataLoader(dataset, **arguments))

    assert_same(epoch(CachedDataset(Source(COLLATED["dict"]))), epoch(Source(COLLATED["dict"])))


def ends(index: int) -> dict[str, Any]:
    return {"x": image(index), "name": f"n{index}", "r": torch.arange(index)}


@pytest.mark.parametrize("data", [X, (X, X.numpy()), Source(COLLATED["pair"]), Source(ends)])
def test_it_can_be_pickled_and_copied(data: Any) -> None:
    make = data.make if isinstance(data, Source) else None
    if make is not None and make is not ends:
        data = Source(image)
    cached = CachedDataset(data)
    for other in (pickle.loads(pickle.dumps(cached)), copy.deepcopy(cached), copy.copy(cached)):
        assert_same(list(other), list(cached))
        assert_same(default_collate(other.__getitems__([1])), default_collate([cached[1]]))
    assert cached.source is not None


def test_an_incomplete_cache_can_be_pickled_and_goes_on_filling() -> None:
    cached = CachedDataset(Source(ends), fill="lazy")
    other = pickle.loads(pickle.dumps(cached))
    assert_same(list(other), [ends(i) for i in range(12)])


def test_it_says_what_it_holds() -> None:
    text = repr(CachedDataset(Source(COLLATED["pair"])))
    assert text.startswith("CachedDataset(12 samples of tensor of uint8 3×4×4, int; in memory")
    assert "0 of them" not in text
    assert "3 of them" in repr(CachedDataset(Source(COLLATED["pair"]), fill="lazy"))
    assert "where the data lies" in repr(CachedDataset(X))


# When something goes wrong


@pytest.mark.parametrize("bad", [0, 5, 11])
def test_a_sample_that_cannot_be_read_is_named(bad: int) -> None:
    def fail(index: int) -> int:
        if index == bad:
            raise OSError("no such image")
        return index

    with pytest.raises(CacheError, match=f"sample {bad} could not be read: OSError: no such image") as caught:
        CachedDataset(Source(fail))
    assert isinstance(caught.value.__cause__, OSError)


def test_a_lazily_read_sample_that_fails_raises_what_the_dataset_raises() -> None:
    def fail(index: int) -> int:
        if index == 5:
            raise FileNotFoundError("5.png")
        return index

    cached = CachedDataset(Source(fail), fill="lazy")
    with pytest.raises(FileNotFoundError, match=r"5\.png"):
        cached[5]
    assert cached[4] == 4


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr("unstarve.fixes.cached.progress._REPAINT_S", 0)
        CachedDataset(Source(image))
        assert ("caching samples: 12 of 12 (100%)" in stream.getvalue()) is shown
        assert stream.getvalue().endswith("\x1b[K") is shown


def test_pinning_without_a_gpu_warns() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.warns(UserWarning, match="no accelerator"):
        cached = CachedDataset(X, pin=True)
    assert_same(cached[1], X[1])


# Memory


def test_what_does_not_fit_is_an_error_before_anything_is_filled() -> None:
    source = Source(COLLATED["pair"], 10_000)
    with pytest.raises(
        CacheTooLargeError, match=r"10,000 samples takes about 58\d KB, but only 100 KB .*partial.*disk"
    ):
        CachedDataset(source, budget="100KB")
    assert len(source.asked) == 3


def test_what_turns_out_not_to_fit_is_an_error() -> None:
    with pytest.raises(CacheTooLargeError, match=r"200 samples takes about .*, but only 100 KB"):
        CachedDataset(Source(lambda i: "x" * (10 if i in (0, 100, 199) else 2000), 200), budget="100KB")


@pytest.mark.parametrize("kind", ["pair", "dict", "ragged"])
@pytest.mark.parametrize("fill", ["now", "lazy"])
def test_a_part_may_be_kept(kind: str, fill: Any) -> None:
    source = Source(MADE[kind], 2000)
    cached = CachedDataset(source, budget="60KB", over_budget="partial", fill=fill)
    for _ in range(2):
        assert_same(
            list(DataLoader(cached, batch_size=7, collate_fn=list)),
            list(DataLoader(Source(MADE[kind], 2000), batch_size=7, collate_fn=list)),
        )
    again = len(source.asked) - 2000
    assert 500 < again < 1950
    assert cached.rows() is None
    assert_same(cached[-1], MADE[kind](1999))
    assert_same(list(cached.__getitems__([-1, 3, -2000, 1999])), [MADE[kind](i) for i in (1999, 3, 0, 1999)])


def test_nothing_may_be_kept() -> None:
    cached = CachedDataset(Source(COLLATED["pair"]), budget=0, over_budget="partial")
    assert_same(
        list(DataLoader(cached, batch_size=5)), list(DataLoader(Source(COLLATED["pair"]), batch_size=5))
    )


def test_a_lazy_cache_that_fills_up_goes_on_from_the_source() -> None:
    def text(index: int) -> str:
        return "x" * (10 if index in (0, 100, 199) else 2000)

    cached = CachedDataset(Source(text, 200), budget="100KB", fill="lazy")
    with pytest.warns(UserWarning, match="cache is full"):
        assert list(cached) == [text(i) for i in range(200)]
    assert list(cached) == [text(i) for i in range(200)]
