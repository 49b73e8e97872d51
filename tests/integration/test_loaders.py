"""Every way to iterate a loader is seen, and counted as the script itself counts it."""

from __future__ import annotations

from typing import Any

import pytest

TRAIN = """
import unstarve
from torch.utils.data import TensorDataset
from data import *

class Generating(DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            yield batch

class Nesting(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return sum(float(x.sum()) for x, _ in inner)

class Handing(IterableDataset):
    def __iter__(self):
        return iter(handed)

def make(count, size):
    loader = DataLoader(Numbers(count), batch_size=size)
    return loader

def drain(loader, epochs=1):
    for epoch in range(epochs):
        for batch in loader:
            pass

def main():
    global inner, handed
    plain = DataLoader(Numbers(10), batch_size=4)
    drain(plain, 3)
    workers = DataLoader(Numbers(10), batch_size=4, num_workers=2)
    drain(workers, 2)
    kept = DataLoader(Numbers(10), batch_size=4, num_workers=2, persistent_workers=True)
    drain(kept, 3)
    streamed = DataLoader(Stream(10), batch_size=4)
    drain(streamed, 2)
    unbatched = DataLoader(Stream(10), batch_size=None)
    drain(unbatched)
    ready = DataLoader(TensorDataset(torch.zeros(5, 3, 2)), batch_size=None)
    drain(ready)
    empty = DataLoader(Stream(0), batch_size=4)
    drain(empty)
    images = DataLoader(Numbers(12), batch_size=4)
    labels = DataLoader(Numbers(9), batch_size=3)
    drain(zip(images, labels))
    inner = DataLoader(Numbers(4), batch_size=2)
    outer = DataLoader(Nesting(), batch_size=2)
    drain(outer)
    handed = DataLoader(Numbers(4), batch_size=2)
    taker = DataLoader(Handing(), batch_size=None)
    drain(taker)
    left = DataLoader(Numbers(40), batch_size=4, num_workers=2)
    for batch in left:
        break
    for number, batch in enumerate(left):
        if number == 2:
            break
    generating = Generating(Numbers(10), batch_size=4)
    drain(generating, 2)
    for epoch in range(3):
        again = DataLoader(Numbers(10), batch_size=4)
        drain(again)
    one, two = make(8, 2), make(8, 4)
    for epoch in range(2):
        drain(one)
        drain(two)
    drain(unstarve.watch((torch.zeros(3, 2) for _ in range(4)), name="generated"))
    drain(unstarve.watch([torch.zeros(2, 5)] * 3, name="listed"), 2)
    wrapped = DataLoader(Numbers(10), batch_size=4)
    drain(unstarve.watch(wrapped, name="watched"))
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ImportError:
        return
    for workers in (0, 2):
        drain(StatefulDataLoader(Numbers(10), batch_size=4, num_workers=workers), 2)

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def report(shared_project) -> dict[str, Any]:
    shared_project.write("train.py", TRAIN)
    return shared_project.record("train.py")


def counted(report: dict[str, Any], name: str) -> tuple[int, int, int | None, int | None]:
    (row,) = [row for row in report["loaders"] if row["name"] == name]
    return row["epochs"], row["steps"], row["samples"], row["bytes"]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("plain", (3, 9, 30, 720)),
        ("workers", (2, 6, 20, 480)),
        ("kept", (3, 9, 30, 720)),
        ("streamed", (2, 6, 20, 320)),
        ("unbatched", (1, 10, 40, 160)),  # a vector of four may be four samples: it is taken for a batch
        ("images", (1, 3, 12, 288)),
        ("labels", (1, 3, 9, 216)),
        ("outer", (1, 3, 6, 48)),
        ("inner", (6, 12, 24, 576)),
        ("taker", (1, 2, 4, 96)),
        ("handed", (1, 2, 4, 96)),
        ("generating", (2, 6, 20, 480)),
        ("again", (3, 9, 30, 720)),
        ("loader (1st of 2)", (2, 8, 16, 384)),
        ("loader (2nd of 2)", (2, 4, 16, 384)),
        ("generated", (1, 4, 12, 96)),
        ("listed", (2, 6, 12, 240)),
        ("watched", (1, 3, 10, 240)),
        ("wrapped", (1, 3, 10, 240)),
    ],
)
def test_epochs_steps_samples_and_bytes_are_right(report, name: str, counts: tuple[int, ...]) -> None:
    assert counted(report, name) == counts


def test_an_epoch_left_half_way_counts_what_was_taken(report) -> None:
    assert counted(report, "left")[:3] == (2, 4, 16)


def test_an_empty_loader_is_named_and_has_no_steps(report) -> None:
    assert counted(report, "empty") == (1, 0, None, None)


def test_loaders_inside_of_others_are_marked(report) -> None:
    assert {row["name"] for row in report["loaders"] if row["nested"]} == {"inner", "handed", "wrapped"}


def test_loaders_are_named_by_their_variable_and_place(report) -> None:
    lines = TRAIN.splitlines()
    for row in report["loaders"]:
        file, _, number = row["where"].partition(":")
        made = f"{row['name'].split()[0]} = ", f"drain({row['kind']}("
        assert file == "train.py"
        assert any(words in lines[int(number) - 1] for words in (*made, "for batch in loader"))
    (kept,) = [row for row in report["loaders"] if row["name"] == "kept"]
    assert (kept["kind"], kept["config"]["num_workers"], kept["config"]["batch_size"]) == ("DataLoader", 2, 4)


def test_stateful_loaders_are_seen(report) -> None:
    pytest.importorskip("torchdata")
    rows = [row for row in report["loaders"] if row["kind"] == "StatefulDataLoader"]
    assert sorted(row["config"]["num_workers"] for row in rows) == [0, 2]
    assert [(row["epochs"], row["steps"], row["samples"]) for row in rows] == [(2, 6, 20)] * 2


def test_the_budget_and_what_lies_outside_of_it_sum_to_the_wall_time(report) -> None:
    total = sum(line["seconds"] for line in [*report["budget"], *report["outside"]])
    assert total == pytest.approx(report["run"]["wall_s"], rel=0.01)
    assert sum(line["share"] for line in report["budget"]) == pytest.approx(1)
    assert report["lost"] == []


READY = """
from data import *

class Ready(Dataset):
    def __len__(self):
        return 30
    def __getitem__(self, index):
        return torch.zeros(50, 3), torch.zeros(50)

loader = DataLoader(Ready(), batch_size=None)
for epoch in range(2):
    for x, y in loader:
        pass
"""


def test_samples_of_ready_made_batches_are_counted_everywhere(project) -> None:
    project.write("ready.py", READY)
    report = project.record("ready.py")
    assert report["demand"]["samples"] == 50
    assert report["throughput"]["samples_per_s"] == pytest.approx(50 * report["throughput"]["steps_per_s"])
    assert report["loaders"][0]["samples"] == 60 * 50
