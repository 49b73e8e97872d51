"""Each check of source finds its planted trouble, and is silent on source that looks alike and is right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from unstarve.checks.source.all_checks import SOURCE_CHECKS, check_paths, check_sources
from unstarve.checks.source.syntax import Source
from unstarve.errors import UsageError
from unstarve.model import Finding

HEAD = """
import itertools, random
import cv2, h5py, librosa, numpy as np, torch, torchaudio
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.distributed import DistributedSampler
from torchvision.io import read_video
from datasets import load_dataset
"""


@dataclass(frozen=True)
class Case:
    id: str
    planted: str
    message: str
    healthy: str


def findings(text: str, head: str = HEAD) -> list[Finding]:
    source = Source.parse((head + dedent(text)).encode(), "train.py")
    assert source is not None
    return check_sources([source])


CASES = [
    Case(
        "generator-before-fork",
        """
        class Images(Dataset):
            def __init__(self):
                self.rng = np.random.default_rng(0)
            def __getitem__(self, i):
                return self.rng.random()
        loader = DataLoader(Images(), num_workers=4)
        """,
        "Images.rng is made once, in __init__: each of the 4 workers of loader draws the same numbers",
        """
        class Images(Dataset):
            def __init__(self):
                self.rng = None
            def __getitem__(self, i):
                if self.rng is None:
                    self.rng = np.random.default_rng(torch.initial_seed() % 2**32)
                return self.rng.random()
        loader = DataLoader(Images(), num_workers=4)
        """,
    ),
    Case(
        "worker-seeds-equal",
        """
        def start(worker_id):
            np.random.seed(SEED)
        loader = DataLoader(data, num_workers=args.workers, worker_init_fn=start)
        """,
        "worker_init_fn of loader seeds all of its args.workers workers with SEED",
        """
        def start(worker_id):
            seed = torch.initial_seed() % 2**32
            np.random.seed(seed)
            random.seed(SEED + worker_id)
        loader = DataLoader(data, num_workers=args.workers, worker_init_fn=start)
        """,
    ),
    Case(
        "iterable-not-split",
        """
        class Lines(IterableDataset):
            def __iter__(self):
                yield from open("lines.txt")
        loader = DataLoader(Lines(), num_workers=2)
        """,
        "each of the 2 workers of loader delivers all samples",
        """
        class Lines(IterableDataset):
            def __iter__(self):
                worker = torch.utils.data.get_worker_info()
                yield from itertools.islice(open("lines.txt"), worker.id, None, worker.num_workers)
        loader = DataLoader(Lines(), num_workers=2)
        """,
    ),
    Case(
        "set-epoch-missed",
        """
        def main():
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(10):
                for batch in tqdm(loader):
                    pass
        """,
        "loader is iterated in the loop over epoch, and nothing calls sampler.set_epoch",
        """
        def main():
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(10):
                loader.sampler.set_epoch(epoch)
                for batch in tqdm(loader):
                    pass
        """,
    ),
    Case(
        "set-epoch-lost",
        """
        class Mix(Dataset):
            def __getitem__(self, i):
                return self.epoch
            def set_epoch(self, epoch):
                self.epoch = epoch
        data = Mix()
        loader = DataLoader(data, num_workers=2, persistent_workers=True)
        data.set_epoch(1)
        """,
        "data.set_epoch changes Mix in the training process only: the 2 workers of loader are persistent",
        """
        class Mix(Dataset):
            def __getitem__(self, i):
                return self.epoch
            def set_epoch(self, epoch):
                self.epoch = epoch
        data = Mix()
        loader = DataLoader(data, num_workers=2)
        data.set_epoch(1)
        """,
    ),
    Case(
        "handle-before-fork",
        """
        class Rows(Dataset):
            def __init__(self, path):
                self.file = h5py.File(path)
            def __getitem__(self, i):
                return self.read(i)
            def read(self, i):
                return self.file["x"][i]
        loader = DataLoader(Rows("a.h5"), num_workers=2)
        """,
        "Rows.file is opened in __init__, and all of the 2 workers of loader read from it",
        """
        class Rows(Dataset):
            def __init__(self, path):
                with h5py.File(path) as file:
                    self.length = len(file["x"])
                self.file = None
            def __getitem__(self, i):
                if self.file is None:
                    self.file = h5py.File(self.path)
                return self.file["x"][i]
        loader = DataLoader(Rows("a.h5"), num_workers=2)
        """,
    ),
    Case(
        "cuda-in-worker",
        """
        class Images(Dataset):
            def __getitem__(self, i):
                return self.load(i).to("cuda")
            def load(self, i):
                return torch.zeros(3)
        loader = DataLoader(Images(), num_workers=2)
        """,
        "__getitem__ calls self.load(i).to('cuda') inside the 2 workers of loader",
        """
        class Images(Dataset):
            def __getitem__(self, i):
                return torch.zeros(3).to(torch.float16)
        loader = DataLoader(Images(), num_workers=2)
        for batch in loader:
            batch.to("cuda")
        """,
    ),
    Case(
        "not-picklable",
        """
        def main():
            def stack(samples):
                return torch.stack(samples)
            loader = DataLoader(data, num_workers=2, collate_fn=stack, multiprocessing_context="spawn")
        """,
        "collate_fn of loader is stack, an inner function, and its workers are started with spawn",
        """
        def stack(samples):
            return torch.stack(samples)
        def main():
            loader = DataLoader(data, num_workers=2, collate_fn=stack, multiprocessing_context="spawn")
            other = DataLoader(data, num_workers=2, collate_fn=lambda samples: samples)
        """,
    ),
    Case(
        "missing-main-guard",
        """
        import torch.multiprocessing as mp
        mp.set_start_method("forkserver")
        loader = DataLoader(data, num_workers=2)
        for batch in loader:
            pass
        """,
        "loader is created when the module is imported, and its 2 workers, started with forkserver",
        """
        import torch.multiprocessing as mp
        if __name__ == "__main__":
            mp.set_start_method("forkserver")
            loader = DataLoader(data, num_workers=2)
            for batch in loader:
                pass
        """,
    ),
    Case(
        "threads-per-worker",
        """
        class Images(Dataset):
            def __getitem__(self, i):
                return cv2.imread(self.paths[i])
        loader = DataLoader(Images(), num_workers=8)
        """,
        "Images calls cv2.imread, and OpenCV starts a thread per core in each of the 8 workers of loader",
        """
        cv2.setNumThreads(0)
        class Images(Dataset):
            def __getitem__(self, i):
                return cv2.imread(self.paths[i])
        loader = DataLoader(Images(), num_workers=8)
        """,
    ),
    Case(
        "resampling-in-getitem",
        """
        class Speech(Dataset):
            def __getitem__(self, i):
                wave, rate = torchaudio.load(self.paths[i])
                return torchaudio.functional.resample(wave, rate, 16_000)
        """,
        "Speech.__getitem__ calls torchaudio.functional.resample for every sample",
        """
        def convert(path):
            wave, rate = torchaudio.load(path)
            torchaudio.save(path, torchaudio.functional.resample(wave, rate, 16_000), 16_000)
        class Speech(Dataset):
            def __getitem__(self, i):
                return torchaudio.load(self.paths[i])
        """,
    ),
    Case(
        "whole-video-for-a-frame",
        """
        class Clips(Dataset):
            def __getitem__(self, i):
                frames, _, _ = read_video(self.paths[i])
                return frames[self.at[i]]
        """,
        "Clips.__getitem__ decodes the whole video and keeps frames[self.at[i]]",
        """
        class Clips(Dataset):
            def __getitem__(self, i):
                frames, _, _ = read_video(self.paths[i], start_pts=1, end_pts=2, pts_unit="sec")
                return frames[0]
        class Whole(Dataset):
            def __getitem__(self, i):
                return read_video(self.paths[i])[0]
        """,
    ),
    Case(
        "column-first",
        """
        rows = load_dataset("squad", split="train")
        for i in range(10):
            print(rows["question"][i])
        """,
        "rows['question'][i] decodes the column 'question' of every row",
        """
        rows = load_dataset("squad", split="train")
        for i in range(10):
            print(rows[i]["question"])
        splits = load_dataset("squad")
        print(splits["train"][i])
        """,
    ),
    Case(
        "kept-batches",
        """
        loader = DataLoader(data, num_workers=2)
        seen = []
        for step, batch in enumerate(loader):
            seen.append(batch)
        """,
        "seen keeps every batch of loader",
        """
        loader = DataLoader(data, num_workers=2)
        seen = []
        for step, batch in enumerate(loader):
            seen.append(batch)
            if step == 3:
                break
        for batch in loader:
            seen.append(model(batch))
        """,
    ),
]


@pytest.fixture(autouse=True)
def _no_datasets_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unstarve.checks.source.repeated_work._installed", lambda package: 0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_planted_trouble_is_found_alone_and_by_its_line(case: Case) -> None:
    (found,) = findings(case.planted)
    assert found.id == case.id
    assert case.message in found.message
    assert found.file == "train.py"
    text = (HEAD + dedent(case.planted)).splitlines()
    assert found.line is not None
    assert text[found.line - 1].strip()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_source_that_looks_alike_and_is_right_is_left_alone(case: Case) -> None:
    assert findings(case.healthy) == []


def test_every_check_of_source_is_planted() -> None:
    assert len(CASES) == len(SOURCE_CHECKS)


@pytest.mark.parametrize("case", [c for c in CASES if "num_workers=" in c.planted], ids=lambda c: c.id)
def test_without_workers_nothing_goes_wrong(case: Case) -> None:
    text = case.planted
    for workers in ("2", "4", "8", "args.workers"):
        text = text.replace(f"num_workers={workers}", "num_workers=0")
    assert findings(text) == []


def test_datasets_that_read_columns_lazily_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unstarve.checks.source.repeated_work._installed", lambda package: 4)
    assert findings(next(c for c in CASES if c.id == "column-first").planted) == []


def test_a_dataset_in_one_file_and_its_loader_in_another_are_seen_together() -> None:
    dataset = """
        class Images(Dataset):
            def __init__(self):
                self.rng = random.Random(0)
            def __getitem__(self, i):
                return self.rng.random()
        """
    loader = """
        from images import Images
        data = Images()
        train_loader = DataLoader(data, num_workers=4)
        """
    sources = [
        Source.parse((HEAD + dedent(text)).encode(), name)
        for text, name in ((dataset, "images.py"), (loader, "train.py"))
    ]
    (found,) = check_sources([source for source in sources if source is not None])
    assert (found.id, found.file) == ("generator-before-fork", "images.py")
    assert "workers of train_loader" in found.message


def test_arguments_that_are_not_written_out_may_hold_anything() -> None:
    text = next(c for c in CASES if c.id == "generator-before-fork").planted
    assert findings(text.replace("num_workers=4", "num_workers=4, **options")) == []


def test_files_below_a_folder_are_checked_but_not_those_of_environments(tmp_path: Path) -> None:
    planted = HEAD + dedent(CASES[0].planted)
    for name in ("pkg/train.py", ".venv/lib/x.py", "env/lib/y.py", "node_modules/z.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(planted)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "broken.py").write_text("class Dataset(:\n")
    checked = check_paths([tmp_path])
    assert [one.file for one in checked.findings] == [str(tmp_path / "pkg/train.py")]
    assert checked.files == 2
    assert checked.not_python == (str(tmp_path / "broken.py"),)


def test_a_path_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no"):
        check_paths([tmp_path / "none.py"])


@pytest.mark.parametrize(
    "text", [b"\x00", b"x = (" * 10_000, b"\xff\xfe", b"Dataset = " + b"-" * 100_000 + b"1"]
)
def test_hostile_source_is_named_and_does_not_stop_the_check(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"# Dataset\n" + text)
    checked = check_paths([tmp_path])
    assert checked.findings == ()
    assert checked.not_python == (str(tmp_path / "a.py"),)
