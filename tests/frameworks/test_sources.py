"""Libraries that data come from: seen, left as they are, and the specific fix for what is planted."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from tests.frameworks.test_packing import write_shards
from torch.utils.data import DataLoader, Dataset

import unstarve
from torchvision_here import torchvision_here
from unstarve.collect.watched_source import source_facts
from unstarve.launch.hooks import attach

STEPS = 30
LATE_S = 0.04
"""Of a sample: few long waits, which a busy machine does not outweigh."""


@pytest.fixture(autouse=True)
def _attached() -> None:
    """As under `unstarve run`: before loaders are created."""
    attach()


def recorded(batches: Iterable[Any], most: int = STEPS) -> tuple[unstarve.Diagnosis, list[Any]]:
    """Train on some batches; the diagnosis, and the batches."""
    seen = []
    with unstarve.recording() as recording:
        for batch in islice(batches, most):
            time.sleep(0.001)
            seen.append(batch)
    assert recording.diagnosis.lost == ()
    return recording.diagnosis, seen


def codes(diagnosis: unstarve.Diagnosis) -> dict[str, str]:
    return {one.id: one.code for one in diagnosis.advice}


def found(loader: Any) -> dict[str, unstarve.Finding]:
    return {one.id: one for one in unstarve.check(loader)}


BY = [pytest.param(lambda source: source, id="run"), pytest.param(unstarve.watch, id="watch")]
"""How a source that is no ``DataLoader`` is seen."""


class Opened:
    """A source, and its iterator once it is iterated."""

    def __init__(self, source: Any) -> None:
        self.source, self.iterator = source, None

    def __iter__(self) -> Any:
        self.iterator = iter(self.source)
        return self.iterator


class Rows(Dataset[torch.Tensor]):
    """As the recipe has it: the file is opened on first use, in the worker."""

    def __init__(self, path: Path) -> None:
        import h5py

        self.path, self._file = path, None
        with h5py.File(path) as file:
            self.length = len(file["x"])

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        import h5py

        if self._file is None:
            self._file = h5py.File(self.path)
        return torch.from_numpy(self._file["x"][index])


@pytest.mark.needs("h5py")
def test_hdf5_chunks_much_larger_than_a_sample(tmp_path: Path) -> None:
    import h5py

    data = np.random.default_rng(0).integers(0, 9, (512, 64, 64), dtype=np.int32)
    for name, rows in (("large.h5", 256), ("small.h5", 1)):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("x", data=data, chunks=(rows, 64, 64), compression="gzip")
    loader = DataLoader(Rows(tmp_path / "large.h5"), batch_size=2, shuffle=True)
    finding = found(loader)["chunk-larger-than-sample"]
    assert "holds 256 samples (4 MB)" in finding.message
    assert "chunks=(1, 64, 64)" in finding.fix
    assert "chunk-larger-than-sample" not in found(DataLoader(Rows(tmp_path / "small.h5"), shuffle=True))
    diagnosis, _ = recorded(loader)
    assert diagnosis.verdict.state == "starved"
    assert f"h5repack -l x:CHUNK=1x64x64 {tmp_path}/large.h5" in codes(diagnosis)["smaller-chunks"]
    gain = next(one.speedup for one in diagnosis.advice if one.id == "smaller-chunks")
    assert gain is not None
    before, after = (seconds_of(tmp_path / name) for name in ("large.h5", "small.h5"))
    assert before > 3 * after  # the advice holds


def seconds_of(path: Path) -> float:
    rows, begun = Rows(path), time.perf_counter()
    for index in (7, 300, 8, 301, 9, 302):
        rows[index]
    return time.perf_counter() - begun


@pytest.mark.needs("webdataset")
def test_webdataset_with_fewer_shards_than_workers(tmp_path: Path) -> None:
    import webdataset as wds

    shards = [str(path) for path in write_shards(tmp_path, 2, 100)]

    def late(sample: Any) -> Any:
        time.sleep(LATE_S)
        return sample

    def stream() -> Any:
        return wds.WebDataset(shards, shardshuffle=False).decode().to_tuple("npy", "cls").map(late)

    plain = [numbers.tolist() for numbers, _ in DataLoader(stream(), batch_size=4)]
    finding = found(DataLoader(stream(), batch_size=4, num_workers=4))["fewer-shards-than-workers"]
    assert "2 shards for 4 workers" in finding.message
    diagnosis, seen = recorded(DataLoader(stream(), batch_size=4), most=50)
    assert [numbers.tolist() for numbers, _ in seen] == plain
    assert diagnosis.verdict.state == "starved"
    (advice,) = (one for one in diagnosis.advice if one.id == "more-shards")
    assert "multiple of" in advice.code
    assert advice.note == "Until then, use 2 workers."


@pytest.mark.needs("datasets")
def test_hugging_face_streams_share_out_shards() -> None:
    import datasets

    def late(row: Any) -> Any:
        time.sleep(LATE_S)
        return row

    rows = datasets.Dataset.from_dict({"x": list(range(200))}).with_format("torch")
    stream = rows.to_iterable_dataset(num_shards=2).map(late)
    finding = found(DataLoader(stream, batch_size=4, num_workers=4))["fewer-shards-than-workers"]
    assert "2 shards for 4 workers" in finding.message
    diagnosis, seen = recorded(DataLoader(stream, batch_size=4))
    assert torch.cat([batch["x"] for batch in seen]).tolist() == list(range(4 * STEPS))
    assert "more-shards" in codes(diagnosis)


@pytest.mark.needs("datasets")
def test_hugging_face_rows_are_not_read_column_first(tmp_path: Path) -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"x": list(range(400))}).with_format("torch")
    if int(datasets.__version__.partition(".")[0]) >= 4:  # the check is silent there, and may be
        assert type(rows["x"]).__name__ == "Column"

    def tokenize(batch: Any) -> Any:
        time.sleep(0.002 * len(batch["x"]))
        return {"x": torch.tensor(batch["x"])}

    rows.set_transform(tokenize)
    loader = DataLoader(rows, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
    diagnosis, _ = recorded(loader)
    assert diagnosis.verdict.state == "starved"
    assert {"more-workers", "keep-in-memory"} & codes(diagnosis).keys()


class AllRows(Dataset[Any]):
    """Reads every row for each sample."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return self.rows[:]["x"][index]


@pytest.mark.needs("datasets")
def test_all_rows_of_a_hugging_face_dataset_are_not_read_for_one() -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"x": list(range(2000))}).with_format("torch")
    loader = DataLoader(AllRows(rows), batch_size=4, shuffle=True)
    assert found(loader)["column-first"].fix == "self.rows[index]['x']"
    diagnosis, _ = recorded(loader)
    assert diagnosis.verdict.state == "starved"
    assert "# self.rows[index]['x']" in codes(diagnosis)["read-less"]


class Reopened(Dataset[Any]):
    """Opens its tar for each sample, which reads the headers up to the sample's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        with tarfile.open(self.path) as tar:
            member = tar.extractfile(f"{index:05}.npy")
            assert member is not None
            time.sleep(0.002)
            return torch.from_numpy(np.load(io.BytesIO(member.read())))


def test_a_tar_is_not_opened_for_each_sample(tmp_path: Path) -> None:
    (shard,) = write_shards(tmp_path, 1, 200)
    loader = DataLoader(Reopened(shard), batch_size=4, shuffle=True)
    assert found(loader)["file-read-again"].fix.startswith("Open self.path on first use")
    diagnosis, seen = recorded(loader)
    assert seen[0].shape == (4, 4)
    assert diagnosis.verdict.state == "starved"
    assert "# open self.path on first use and keep it" in codes(diagnosis)["read-less"]


class Objects(Dataset[torch.Tensor]):
    """Small objects of a store, one request each."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        with urlopen(f"{self.url}/{index}") as answer:
            return torch.tensor(list(answer.read()))


class Store(BaseHTTPRequestHandler):
    """Answers each request late."""

    def do_GET(self) -> None:
        time.sleep(LATE_S)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(bytes(8))

    def log_message(self, *words: Any) -> None:
        return


def test_small_objects_behind_latency_are_fetched_ahead() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        loader = DataLoader(Objects(f"http://127.0.0.1:{server.server_port}"), batch_size=4, shuffle=True)
        diagnosis, _ = recorded(loader)
        server.shutdown()
    assert diagnosis.verdict.state == "starved"
    assert diagnosis.verdict.cause == "remote"
    assert "unstarve.AsyncPrefetchDataset(" in codes(diagnosis)["fetch-ahead"]
    assert "num_workers=" in codes(diagnosis)["more-workers"]


class Late(Dataset[int]):
    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> int:
        time.sleep(LATE_S)
        return index


@pytest.mark.needs("torchdata")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
def test_a_stateful_loader_resumes_where_it_stopped() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader() -> Any:
        torch.manual_seed(5)
        return StatefulDataLoader(Late(), batch_size=4, shuffle=True, num_workers=2)

    torch.manual_seed(5)
    plain = [
        batch.tolist() for batch in StatefulDataLoader(range(240), batch_size=4, shuffle=True, num_workers=1)
    ]
    first = loader()
    diagnosis, seen = recorded(first)
    state = first.state_dict()
    (shown,) = diagnosis.loaders
    assert shown.source == "StatefulDataLoader(Late(), batch_size=4, shuffle=True, num_workers=2)"
    assert (diagnosis.verdict.state, diagnosis.verdict.cause) == ("starved", "remote")
    more = codes(diagnosis)["more-workers"]
    assert more.startswith("return StatefulDataLoader(\n    Late(),\n")
    assert "num_workers=" in more
    second = loader()
    second.load_state_dict(state)
    _, rest = recorded(second, most=100)
    assert [batch.tolist() for batch in seen + rest] == plain


@pytest.mark.needs("torchdata")
@pytest.mark.parametrize("by", BY)
def test_torchdata_nodes_are_seen_and_their_state_kept(by: Any) -> None:
    from torchdata import nodes

    def late(number: int) -> int:
        time.sleep(LATE_S)
        return number

    source = nodes.Batcher(nodes.Mapper(nodes.IterableWrapper(range(240)), late), 4)
    loader = nodes.Loader(source)
    diagnosis, seen = recorded(by(loader))
    assert seen == [list(range(at, at + 4)) for at in range(0, 4 * STEPS, 4)]
    assert (diagnosis.verdict.state, diagnosis.verdict.cause) == ("starved", "remote")
    plain = nodes.Loader(nodes.Batcher(nodes.Mapper(nodes.IterableWrapper(range(240)), abs), 4))
    list(islice(plain, STEPS))
    assert loader.state_dict() == plain.state_dict()
    code = codes(diagnosis)["parallel-source"]
    assert "# nodes.ParallelMapper(source, fn, num_workers=16, method='thread')" in code
    assert "# nodes.Prefetcher(node, prefetch_factor=2)" in code
    mapper = nodes.ParallelMapper(nodes.IterableWrapper(range(8)), late, num_workers=16, method="thread")
    ahead = nodes.Prefetcher(nodes.Batcher(mapper, 4), prefetch_factor=2)
    assert list(nodes.Loader(ahead)) == [[0, 1, 2, 3], [4, 5, 6, 7]]  # as the advice has it
    assert source_facts(loader) == {"module": "torchdata.nodes.loader", "parallel": False}
    assert source_facts(nodes.Loader(ahead))["parallel"]


def says_that_workers_share_out_shards(diagnosis: unstarve.Diagnosis) -> None:
    assert "read-ahead" not in codes(diagnosis)  # the place in the stream would be lost
    (advice,) = (one for one in diagnosis.advice if one.id == "more-workers")
    assert "each worker reads its own shards" in advice.why
    assert "StreamingDataLoader(" in advice.code


@pytest.mark.needs("streaming")
def test_mosaicml_streaming_is_seen_and_its_state_kept(tmp_path: Path) -> None:
    torchvision_here()  # which the package imports
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    with MDSWriter(out=str(tmp_path / "mds"), columns={"x": "int"}, size_limit=1 << 10) as writer:
        for number in range(200):
            writer.write({"x": number})

    class Late(StreamingDataset):
        def __getitem__(self, at: Any) -> Any:
            time.sleep(LATE_S)
            return super().__getitem__(at)

    loader = StreamingDataLoader(Late(local=str(tmp_path / "mds"), batch_size=4, shuffle=False), batch_size=4)
    diagnosis, seen = recorded(loader)
    assert torch.cat([batch["x"] for batch in seen]).tolist() == list(range(4 * STEPS))
    assert diagnosis.verdict.state == "starved"
    assert loader.state_dict()["sample_in_epoch"] == 4 * STEPS
    says_that_workers_share_out_shards(diagnosis)


@pytest.mark.needs("litdata")
def test_litdata_is_seen_and_its_state_kept(tmp_path: Path) -> None:
    import litdata
    from litdata.streaming.cache import Cache

    cache = Cache(str(tmp_path / "lit"), chunk_size=32)
    for number in range(200):
        cache[number] = {"x": torch.tensor(number)}
    cache.done()
    cache.merge()

    class Late(litdata.StreamingDataset):
        def __getitem__(self, at: Any) -> Any:
            time.sleep(LATE_S)
            return super().__getitem__(at)

    loader = litdata.StreamingDataLoader(Late(str(tmp_path / "lit"), shuffle=False), batch_size=4)
    diagnosis, seen = recorded(loader)
    assert torch.cat([batch["x"] for batch in seen]).tolist() == list(range(4 * STEPS))
    assert diagnosis.verdict.state == "starved"
    assert loader.state_dict()["num_samples_yielded"]
    says_that_workers_share_out_shards(diagnosis)


@pytest.mark.needs("grain")
@pytest.mark.parametrize("by", ["run", "watch"])
def test_grain_is_seen_and_its_state_kept(by: str) -> None:
    import grain

    def late(number: int) -> Any:
        time.sleep(LATE_S)
        return np.int64(number)

    def source(function: Any) -> Any:
        alone = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        return grain.MapDataset.range(240).map(function).batch(4).to_iter_dataset(alone)

    opened, plain = Opened(source(late)), iter(source(np.int64))
    diagnosis, seen = recorded(opened if by == "run" else unstarve.watch(iter(opened)))
    assert np.concatenate(seen).tolist() == list(range(4 * STEPS))
    assert (diagnosis.verdict.state, diagnosis.verdict.cause) == ("starved", "remote")
    for _ in range(len(seen)):
        next(plain)
    assert opened.iterator.get_state() == plain.get_state()
    options = "grain.ReadOptions(num_threads=16, prefetch_buffer_size=500)"
    (advice,) = (one for one in diagnosis.advice if one.id == "parallel-source")
    assert advice.code == f"# dataset.to_iter_dataset({options})"
    assert advice.speedup is not None
    dataset = grain.MapDataset.range(8).map(late).batch(4)
    given = grain.ReadOptions(num_threads=16, prefetch_buffer_size=500)
    assert np.concatenate(list(dataset.to_iter_dataset(given))).tolist() == list(range(8))  # as it has it
    assert source_facts(opened.iterator)["parallel"] is False
    assert source_facts(iter(dataset.to_iter_dataset(given).map(late)))["parallel"]


@pytest.mark.needs("grain")
def test_grains_own_threads_and_epochs_are_no_loaders_of_their_own() -> None:
    import grain
    from grain.experimental import ThreadPrefetchIterDataset

    train_set = ThreadPrefetchIterDataset(
        grain.MapDataset.range(240).batch(4).to_iter_dataset(), prefetch_buffer_size=2
    )
    with unstarve.recording() as recording:
        for _ in range(3):
            for _batch in train_set:
                pass
    (loader,) = recording.diagnosis.loaders
    assert (loader.name, loader.epochs, loader.steps) == ("train_set", 3, 180)
    assert recording.diagnosis.lost == ()


@pytest.mark.needs("grain")
def test_a_loader_of_grain_is_known_by_the_line_that_creates_it() -> None:
    import grain

    class Late(grain.transforms.Map):
        def map(self, number: int) -> Any:
            time.sleep(LATE_S)
            return np.int64(number)

    train_loader = grain.DataLoader(
        data_source=range(120),
        sampler=grain.samplers.SequentialSampler(120, grain.sharding.NoSharding()),
        operations=[Late(), grain.transforms.Batch(4)],
        read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
    )
    with unstarve.recording() as recording:
        for _batch in train_loader:
            pass
    (loader,) = recording.diagnosis.loaders
    assert loader.steps == 30
    assert codes(recording.diagnosis)["parallel-source"].startswith("# grain.DataLoader(…, read_options=")
