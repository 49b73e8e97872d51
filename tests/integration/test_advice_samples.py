"""Advice about samples, followed as printed: the batches stay the same, and the cause is gone."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from pasted import advice_in, pasted, shell_commands
from sample_images import image
from torchvision_here import torchvision_here

BATCHES = """
import hashlib, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

def show(batch):
    fields = [batch] if torch.is_tensor(batch) else batch
    print(hashlib.sha1(b"".join(field.numpy().tobytes() for field in fields)).hexdigest())
"""
"""What every script prints of its batches, so that two runs can be compared."""


def follow(project, script: str, id: str) -> tuple[dict[str, Any], int | None, int | None]:
    """Record a script and follow the advice: the report, and what both scripts count on standard error.

    Their batches must be the same.
    """
    project.write("train.py", script)
    before = project.record("train.py")
    one = advice_in(before, id)
    for command in shell_commands(one["code"]):
        done = project.call(*shlex.split(command))
        assert done.returncode == 0, done.stderr
    project.write("changed.py", pasted(script, before, one["code"]))
    stock, changed = project.python("train.py"), project.python("changed.py")
    assert changed.returncode == 0, changed.stderr
    assert changed.stdout == stock.stdout != ""
    return before, _counted(stock.stderr), _counted(changed.stderr)


def _counted(printed: str) -> int | None:
    return int(printed.split()[-1]) if printed else None


def engine_of(project, script: str) -> str:
    """The engine that runs the script's loader."""
    return project.record(script)["loaders"][0]["config"]["engine"]


COMPUTED = f"""{BATCHES}
class Sums(Dataset):
    calls = 0

    def __len__(self):
        return 40

    def __getitem__(self, index):
        Sums.calls += 1
        return torch.full((4,), float(sum(number * index % 7 for number in range(60_000)))), index

torch.manual_seed(0)
train_set = Sums()
train_loader = DataLoader(train_set, batch_size=4, shuffle=True)
for epoch in range(4):
    for batch in train_loader:
        show(batch)
print(Sums.calls, file=sys.stderr)
"""


def test_samples_that_cost_cpu_time_are_computed_once(project) -> None:
    _, stock, changed = follow(project, COMPUTED, "keep-in-memory")
    assert (stock, changed) == (160, 40)
    assert engine_of(project, "changed.py") == "gather"


FROM_DISK = f"""{BATCHES}
import mmap, os

BLOCK, BLOCKS = 1 << 20, 4
memory = mmap.mmap(-1, BLOCK)  # aligned, as O_DIRECT requires
with open("data.bin", "wb") as file:
    file.write(os.urandom(BLOCK) * BLOCKS)

class Blocks(Dataset):
    calls = 0

    def __len__(self):
        return 32

    def __getitem__(self, index):
        Blocks.calls += 1
        opened = os.open("data.bin", os.O_RDONLY | os.O_DIRECT)
        for number in range(8):
            os.preadv(opened, [memory], (index + number) % BLOCKS * BLOCK)
        os.close(opened)
        return torch.full((4,), float(index)), index

train_loader = DataLoader(Blocks(), batch_size=4)
for epoch in range(5):
    for batch in train_loader:
        show(batch)
print(Blocks.calls, file=sys.stderr)
"""


def test_samples_from_a_disk_are_read_once(project) -> None:
    project.write("train.py", FROM_DISK)
    if project.python("train.py").returncode != 0:
        pytest.skip("files in the temporary folder cannot be read past the page cache")
    _, stock, changed = follow(project, FROM_DISK, "keep-in-memory")
    assert (stock, changed) == (160, 32)


RANDOM = f"""{BATCHES}
class Noisy(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return sum(number * index % 7 for number in range(60_000)) + torch.rand(4)

loader = DataLoader(Noisy(), batch_size=4, num_workers=WORKERS)
for epoch in range(3):
    for batch in loader:
        pass
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_random_samples_are_not_frozen_by_a_cache(project, workers: int) -> None:
    project.write("train.py", RANDOM.replace("WORKERS", str(workers)))
    report = project.record("train.py")
    assert "keep-in-memory" not in {one["id"] for one in report["advice"]}
    (rejected,) = [one for one in report["rejected"] if one["id"] == "keep-in-memory"]
    assert "random" in rejected["why"]


IN_MEMORY = f"""{BATCHES}
def main():
    torch.manual_seed(0)
    train_set = TensorDataset(torch.randn(4000, 50), torch.arange(4000))
    train_loader = DataLoader(train_set, shuffle=True, batch_size=16)
    for epoch in range(2):
        for batch in train_loader:
            show(batch)

main()
"""


def test_rows_in_memory_are_gathered(project) -> None:
    follow(project, IN_MEMORY, "rows-in-memory")
    assert engine_of(project, "changed.py") == "gather"


REMOTE = f"""{BATCHES}
import threading

class Remote(Dataset):
    inside, most, lock = 0, 0, threading.Lock()

    def __len__(self):
        return 64

    def __getitem__(self, index):
        with Remote.lock:
            Remote.inside += 1
            Remote.most = max(Remote.most, Remote.inside)
        time.sleep(0.05)
        with Remote.lock:
            Remote.inside -= 1
        return torch.full((4,), float(index)), index

torch.manual_seed(0)
train_set = Remote()
train_loader = DataLoader(train_set, batch_size=2, shuffle=True)
for batch in train_loader:
    show(batch)
print(Remote.most, file=sys.stderr)
"""


def test_remote_samples_are_fetched_together(project) -> None:
    before, stock, changed = follow(project, REMOTE, "fetch-ahead")
    assert "thread-safe" in advice_in(before, "fetch-ahead")["note"]
    assert stock == 1
    assert changed is not None
    assert changed >= 2


STREAM = f"""{BATCHES}
import threading
from torch.utils.data import IterableDataset

class Stream(IterableDataset):
    threads = set()

    def __iter__(self):
        for number in range(60):
            Stream.threads.add(threading.current_thread())
            time.sleep(0.02)
            yield torch.full((4,), float(number))

train_loader = DataLoader(Stream(), batch_size=2)
for batch in train_loader:
    time.sleep(0.04)
    show(batch)
print(int(threading.main_thread() in Stream.threads), file=sys.stderr)
"""


def test_a_remote_stream_is_read_by_another_thread(project) -> None:
    _, stock, changed = follow(project, STREAM, "read-ahead")
    assert (stock, changed) == (1, 0)


FILES = f"""{BATCHES}
from pathlib import Path

def slow_load(*args, load=torch.load, **kwargs):
    time.sleep(0.02)  # a file system that takes its time
    slow_load.calls += 1
    return load(*args, **kwargs)

slow_load.calls = 0
torch.load = slow_load

class Files(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.pt"))
        self.labels = [path.stem == "007" for path in self.paths]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        tensor = torch.load(self.paths[index])
        return SAMPLE

torch.manual_seed(0)
train_set = Files("samples")
train_loader = DataLoader(train_set, batch_size=4, shuffle=True)
for epoch in range(3):
    for batch in train_loader:
        show(batch)
print(slow_load.calls, file=sys.stderr)
"""


def make_files(folder: Path, count: int = 40) -> None:
    folder.mkdir()
    for number in range(count):
        torch.save(torch.full((3, 5), float(number)), folder / f"{number:03}.pt")


@pytest.mark.parametrize("sample", ["tensor", "tensor, self.labels[index]"])
def test_files_of_tensors_are_read_straight_into_the_batch(project, sample: str) -> None:
    make_files(project.folder / "samples")
    _, stock, changed = follow(project, FILES.replace("SAMPLE", sample), "tensor-files")
    assert (stock, changed) == (120, 0)
    assert engine_of(project, "changed.py") == "threads"


def test_small_files_are_packed_into_one(project) -> None:
    make_files(project.folder / "samples")
    _, stock, changed = follow(project, FILES.replace("SAMPLE", "tensor"), "pack-files")
    assert (stock, changed) == (120, 0)
    assert (project.folder / "samples.packed").is_file()


IMAGES = """
from unstarve.benchmark.optional_packages import torchvision

import sys
import torch
from pathlib import Path
from PIL import Image
from torch.utils.data import DataLoader, Dataset

T = torchvision().transforms
NORMALIZE = T.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
STEPS = [T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.ToTensor(), NORMALIZE]

class Photos(Dataset):
    def __init__(self, folder, transform):
        self.paths = sorted(Path(folder).rglob("*.jpg"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = Image.open(self.paths[index]).convert("RGB")
        return self.transform(image), index

if __name__ == "__main__":
    torch.manual_seed(0)
    train_set = DATASET
    train_loader = DataLoader(train_set, batch_size=3, shuffle=True)
    kept = [batch for epoch in range(5) for batch in train_loader]
    torch.save(kept, sys.argv[1])
"""
"""Half of the pixel values lie within one standard deviation, so that a grey level is 4/255."""
FOLDER = IMAGES.replace("DATASET", 'torchvision().datasets.ImageFolder("images", T.Compose(STEPS))')
OWN = IMAGES.replace("DATASET", 'Photos("images", T.Compose(STEPS))')


def make_images(folder: Path) -> None:
    for number in range(24):
        path = folder / str(number % 2) / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(900, 1200, seed=number))


def same_images(project, first: str, second: str) -> None:
    a, b = (torch.load(project.folder / name) for name in (first, second))
    assert len(a) == len(b) == 40
    for (images, labels), (others, other_labels) in zip(a, b, strict=True):
        assert torch.equal(labels, other_labels)
        assert (images - others).abs().mean() < 4 / 255


def pillow_share(report: dict[str, Any]) -> float:
    return sum(one["share"] for one in report["functions"] if "/PIL/" in one["file"])


@pytest.mark.parametrize("id", ["decode-crop", "keep-decoded"])
def test_a_folder_of_images_is_decoded_where_the_crop_is(project, id: str) -> None:
    torchvision_here()
    make_images(project.folder / "images")
    project.write("train.py", FOLDER)
    before = project.record("train.py", "before.pt")
    one = advice_in(before, id)
    assert "same crops and flips" in one["note"]
    project.write("changed.py", pasted(FOLDER, before, one["code"]))
    after = project.record("changed.py", "after.pt")
    same_images(project, "before.pt", "after.pt")
    assert pillow_share(before) > 3 * pillow_share(after)


def test_own_image_datasets_get_the_transform_with_their_own_arguments(project) -> None:
    torchvision_here()
    make_images(project.folder / "images")
    project.write("train.py", OWN)
    before = project.record("train.py", "before.pt")
    code = advice_in(before, "decode-crop")["code"]
    assert "size=40," in code
    assert code.endswith("# decode_crop(self.paths[index])")
    changed = OWN.replace('image = Image.open(self.paths[index]).convert("RGB")\n', "")
    changed = changed.replace("self.transform(image)", "decode_crop(self.paths[index])")
    project.write("changed.py", code + changed)
    after = project.record("changed.py", "after.pt")
    same_images(project, "before.pt", "after.pt")
    assert pillow_share(before) > 3 * pillow_share(after)
