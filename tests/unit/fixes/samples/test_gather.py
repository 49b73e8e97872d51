"""Each claim holds for the compiled gather and for its Python twin."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch

from unstarve.fixes.samples import gather as gather_module
from unstarve.fixes.samples.gather import gather, gather_at
from unstarve.native import native, why_not_native

needs_native = pytest.mark.skipif(native() is None, reason=f"native gather: {why_not_native()}")


@pytest.fixture(autouse=True, params=[pytest.param("native", marks=needs_native), "twin"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "twin":
        monkeypatch.setattr(gather_module, "native", lambda: None)
    return str(request.param)


def table(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


NUMPY_TYPES = [
    "bool", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64", "longdouble",
    "complex64", "complex128", ">f4", "M8[s]", "S3", "U2",
]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_numpy_rows_are_copied_whatever_their_type(dtype: str) -> None:
    source = (np.arange(24).reshape(8, 3) % 10).astype(dtype)
    batch = gather(source, np.array([7, 0, 0, 3]))
    assert batch.dtype == source.dtype
    np.testing.assert_array_equal(batch, source[[7, 0, 0, 3]])


def test_records_are_copied() -> None:
    source = np.array([(1, 2.5), (3, 4.5), (5, 6.5)], dtype=[("label", "u1"), ("weight", "f8")])
    np.testing.assert_array_equal(gather(source, [2, 0]), source[[2, 0]])


TORCH_TYPES = [
    torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float8_e4m3fn, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TORCH_TYPES, ids=str)
def test_tensor_rows_are_copied_whatever_their_type(dtype: torch.dtype) -> None:
    source = torch.arange(24).reshape(8, 3).to(dtype)
    batch = gather(source, torch.tensor([7, 0, 0, 3]))
    assert batch.dtype == dtype
    expected = torch.stack([source[7], source[0], source[0], source[3]])
    assert torch.equal(batch.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("row_shape", [(), (1,), (2,), (3,), (4,), (5,), (3, 4, 5), (1, 1, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_a_row_is_everything_behind_the_first_dimension(row_shape: tuple[int, ...], dtype: type) -> None:
    source = table(10, *row_shape, dtype=dtype)
    batch = gather(source, [9, -10, 4])
    assert batch.shape == (3, *row_shape)
    np.testing.assert_array_equal(batch, source[[9, 0, 4]])


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, np.int32, np.uint8, np.int16])
def test_index_may_be_any_integers_in_one_dimension(kind: Any) -> None:
    index = (
        np.array([3, 1, 2], kind)
        if isinstance(kind, type) and issubclass(kind, np.generic)
        else kind([3, 1, 2])
    )
    source = table(4, 2)
    np.testing.assert_array_equal(gather(source, index), source[[3, 1, 2]])
    assert torch.equal(gather(torch.from_numpy(source), index), torch.from_numpy(source)[[3, 1, 2]])


def test_index_may_be_strided_or_read_only() -> None:
    source = table(10, 2)
    backwards = np.arange(10)[::-2]
    backwards.flags.writeable = False
    np.testing.assert_array_equal(gather(source, backwards), source[::-1][::2])


def test_negative_indices_count_from_the_end() -> None:
    source = table(5, 2)
    np.testing.assert_array_equal(gather(source, [-1, -5, 4, 0]), source[[4, 0, 4, 0]])


@pytest.mark.parametrize("index", [[], np.empty(0, np.int64), torch.empty(0, dtype=torch.int64)])
@pytest.mark.parametrize("rows", [0, 3])
def test_no_index_gives_no_rows(index: Any, rows: int) -> None:
    assert gather(np.empty((rows, 4)), index).shape == (0, 4)
    assert gather(torch.empty(rows, 4), index).shape == (0, 4)


@pytest.mark.parametrize("dtype", ["float32", "M8[s]"])
def test_rows_without_columns_are_gathered_and_checked(dtype: str) -> None:
    assert gather(np.empty((5, 0), dtype), [1, 2, -1]).shape == (3, 0)
    with pytest.raises(IndexError, match="index 5 at position 1"):
        gather(np.empty((5, 0), dtype), [1, 5])


@pytest.mark.parametrize("bad", [5, -6, 2**62, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_index_out_of_range_is_named_and_nothing_is_written(bad: int, as_tensor: bool) -> None:
    source: Any = table(5, 2)
    out: Any = np.full((4, 2), -1, np.float32)
    if as_tensor:
        source, out = torch.from_numpy(source), torch.from_numpy(out)
    with pytest.raises(IndexError, match=rf"^index {bad} at position 2 is out of bounds for 5 rows$"):
        gather(source, np.array([0, 1, bad, 99]), out)
    assert (out == -1).all()


def test_nothing_can_be_gathered_from_no_rows() -> None:
    with pytest.raises(IndexError, match="index 0 at position 0 is out of bounds for 0 rows"):
        gather(np.empty((0, 3)), [0])


@pytest.mark.parametrize(
    "index", [[0.5], [True, False], ["0"], np.array([1], np.uint64), torch.tensor([1.0])]
)
def test_index_that_is_not_integers_is_refused(index: Any) -> None:
    with pytest.raises(TypeError, match="index must hold integers"):
        gather(table(3, 2), index)


@pytest.mark.parametrize("index", [1, [[0, 1]], torch.tensor([[0]])])
def test_index_must_have_one_dimension(index: Any) -> None:
    with pytest.raises(ValueError, match="index must have one dimension"):
        gather(table(3, 2), index)


@pytest.mark.parametrize("source", [table(4, 6).T, table(4, 6)[:, ::2], table(4, 6)[::-1]])
def test_source_that_is_not_contiguous_is_refused_with_a_remedy(source: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"must be C-contiguous.*ascontiguousarray"):
        gather(source, [0])
    if all(stride > 0 for stride in source.strides):
        with pytest.raises(ValueError, match=r"must be C-contiguous.*\.contiguous\(\)"):
            gather(torch.from_numpy(source), [0])


@pytest.mark.parametrize("source", [[1, 2, 3], 7, None, np.array([{}, None])])
def test_source_without_plain_memory_is_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="source"):
        gather(source, [0])


def test_tensors_without_plain_memory_are_refused() -> None:
    with pytest.raises(TypeError, match="source must be a plain dense tensor"):
        gather(torch.eye(3).to_sparse(), [0])
    with pytest.raises(TypeError, match="source must be a plain dense tensor"):
        gather(torch.ones(3, 2, dtype=torch.complex64).conj(), [0])
    with pytest.raises(ValueError, match="source must be on the CPU, got meta"):
        gather(torch.empty(3, 2, device="meta"), [0])


def test_a_single_value_has_no_rows() -> None:
    with pytest.raises(ValueError, match="at least one dimension"):
        gather(np.array(1.0), [0])
    with pytest.raises(ValueError, match="at least one dimension"):
        gather(torch.tensor(1.0), [0])


def test_out_is_filled_and_returned() -> None:
    source = table(6, 2)
    out = np.empty((2, 2), np.float32)
    assert gather(source, [5, 1], out) is out
    np.testing.assert_array_equal(out, source[[5, 1]])
    tensor_out = torch.empty(2, 2)
    assert gather(torch.from_numpy(source), [5, 1], out=tensor_out) is tensor_out
    assert torch.equal(tensor_out, torch.from_numpy(out))


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (2,), (4,), (2, 2, 1)])
def test_out_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"out must have the shape \(2, 2\)"):
        gather(table(6, 2), [0, 1], np.empty(shape, np.float32))
    with pytest.raises(ValueError, match=r"out must have the shape \(2, 2\)"):
        gather(torch.empty(6, 2), [0, 1], torch.empty(shape))


def test_out_of_another_type_is_refused_even_of_the_same_size() -> None:
    with pytest.raises(TypeError, match="out must have source's type float32, got int32"):
        gather(table(6, 2), [0, 1], np.empty((2, 2), np.int32))
    with pytest.raises(TypeError, match=r"out must have source's type torch.float16, got torch.bfloat16"):
        gather(torch.empty(6, 2).half(), [0, 1], torch.empty(2, 2).bfloat16())


def test_out_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="both be numpy arrays or both be torch tensors"):
        gather(table(6, 2), [0, 1], torch.empty(2, 2))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="both be numpy arrays or both be torch tensors"):
        gather(torch.empty(6, 2), [0, 1], np.empty((2, 2), np.float32))  # type: ignore[call-overload]


def test_out_that_cannot_take_the_batch_is_refused() -> None:
    read_only = np.empty((2, 2), np.float32)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="out must be writable"):
        gather(table(6, 2), [0, 1], read_only)
    with pytest.raises(ValueError, match="out must be C-contiguous"):
        gather(table(6, 2), [0, 1], np.empty((2, 2), np.float32).T[:, ::-1])
    with pytest.raises(ValueError, match="out must not require gradients"):
        gather(torch.empty(6, 2), [0, 1], torch.empty(2, 2, requires_grad=True))


def test_out_that_overlaps_source_or_index_is_refused() -> None:
    source = table(6, 2)
    with pytest.raises(ValueError, match="out must not overlap source"):
        gather(source, [0, 1], source[2:4])
    tensor = torch.from_numpy(source)
    with pytest.raises(ValueError, match="out must not overlap source"):
        gather(tensor, [0, 1], tensor[4:])
    index = np.array([0, 1])
    with pytest.raises(ValueError, match="out must not overlap index"):
        gather(table(6, dtype=np.int64), index, index)


def test_out_beside_source_in_one_buffer_is_fine() -> None:
    buffer = table(8, 2)
    gather(buffer[:6], [5, 0], buffer[6:])
    np.testing.assert_array_equal(buffer[6:], buffer[[5, 0]])


def test_read_only_source_is_read() -> None:
    source = table(6, 2)
    source.flags.writeable = False
    np.testing.assert_array_equal(gather(source, [5, 0]), source[[5, 0]])


def test_memory_mapped_source_is_read(tmp_path: Any) -> None:
    np.save(tmp_path / "data.npy", table(6, 2))
    batch = gather(np.load(tmp_path / "data.npy", mmap_mode="r"), [5, 0])
    assert type(batch) is np.ndarray
    np.testing.assert_array_equal(batch, table(6, 2)[[5, 0]])


def test_source_with_gradients_is_copied_without_them() -> None:
    source = torch.arange(6.0).reshape(3, 2).requires_grad_()
    batch = gather(source, [2, 0])
    assert not batch.requires_grad
    assert torch.equal(batch, source.detach()[[2, 0]])


@pytest.mark.parametrize("threads", [0, 1, 2, 8])
@pytest.mark.parametrize("row_bytes", [1, 8, 1000, 3 * 224 * 224, 5_000_000])
def test_large_batches_are_the_same_on_any_number_of_threads(threads: int, row_bytes: int) -> None:
    rng = np.random.default_rng(0)
    total_bytes = 9_000_000 if row_bytes < 10 else 40_000_000  # enough for two threads, or for several
    source = rng.integers(0, 256, (max(total_bytes // row_bytes // 8, 2), row_bytes), np.uint8)
    index = rng.integers(-len(source), len(source), total_bytes // row_bytes)
    out = np.zeros((len(index), row_bytes), np.uint8)
    gather(source, index, out, threads=threads)
    assert np.array_equal(out, np.take(source, index % len(source), axis=0))


def test_threads_must_be_a_count() -> None:
    with pytest.raises(ValueError, match="threads must be >= 0"):
        gather(table(3, 2), [0], threads=-1)
    with pytest.raises(TypeError):
        gather(table(3, 2), [0], threads=1.5)  # type: ignore[call-overload]


def test_several_python_threads_may_gather_at_once() -> None:
    source = np.random.default_rng(0).integers(0, 256, (64, 100_000), np.uint8)
    orders = [np.random.default_rng(seed).permutation(64) for seed in range(4)]
    batches: dict[int, np.ndarray] = {}
    workers = [
        threading.Thread(target=lambda i=i: batches.update({i: gather(source, orders[i], threads=2)}))
        for i in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(np.array_equal(batches[i], source[orders[i]]) for i in range(4))


def test_loader_workers_gather_on_one_thread_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert gather_module._thread_limit(0) == 1
    assert gather_module._thread_limit(3) == 3
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert gather_module._thread_limit(0) == 0


def test_numpy_users_do_not_pay_for_torch(implementation: str) -> None:
    script = (
        "import sys, numpy as np; from unstarve.fixes.samples.gather import gather;"
        "assert gather(np.arange(3), [2]) == [2];"
        "assert 'torch' not in sys.modules"
    )
    environment = dict(os.environ, UNSTARVE_NATIVE="1" if implementation == "native" else "0")
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


@pytest.mark.parametrize("row_bytes", [0, 1, 3, 4, 8, 100, 5000])
def test_rows_may_start_anywhere_in_memory(row_bytes: int) -> None:
    memory = np.random.default_rng(0).integers(0, 256, 9000, np.uint8)
    starts = np.array([17, 0, 9000 - row_bytes, 17, 1])
    out = np.empty((5, row_bytes), np.uint8)
    gather_at(memory, starts, out)
    assert [row.tobytes() for row in out] == [memory[at : at + row_bytes].tobytes() for at in starts]


@pytest.mark.parametrize("start", [9000 - 99, 2**62])
def test_a_row_that_would_leave_memory_is_refused(start: int) -> None:
    out = np.zeros((1, 100), np.uint8)
    with pytest.raises(IndexError, match="out of bounds"):
        gather_at(np.ones(9000, np.uint8), np.array([start]), out)
    assert not out.any()
