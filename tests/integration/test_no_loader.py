"""Scripts without a DataLoader: small equivalents of nanoGPT and word_language_model."""

from __future__ import annotations

import sys

import pytest

NANO = """
import sys, time
import numpy as np
import torch

np.arange(4096, dtype=np.uint16).tofile("train.bin")
WATCH = "watch" in sys.argv

def get_batch(split):
    time.sleep(0.01)
    data = np.memmap("train.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - 8, (12,))
    x = torch.stack([torch.from_numpy(data[i : i + 8].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 9].astype(np.int64)) for i in ix])
    return x, y

if WATCH:
    import unstarve
    get_batch = unstarve.watch(get_batch)

model = torch.nn.Embedding(4096, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(7)
until = time.time() + (0 if WATCH else 8)

@torch.no_grad()
def estimate_loss():
    for split in ["train", "val"]:
        for k in range(2):
            X, Y = get_batch(split)
            model(X)

def get_lr(it):
    return 0.1

X, Y = get_batch("train")
it = total = 0
while it < 60 or time.time() < until:
    lr = get_lr(it)
    if it % 30 == 0 and it < 60:
        estimate_loss()
    loss = model(X).sum()
    X, Y = get_batch("train")
    if it < 60:
        total += int(X.sum())
    loss.backward()
    optimizer.step()
    it += 1
print(total)
"""

LANGUAGE_MODEL = """
import time
import torch

def batchify(data, bsz):
    return data.view(bsz, -1).t().contiguous()

train_data = batchify(torch.arange(20_000) % 50, 20)
model = torch.nn.Embedding(50, 8)

def get_batch(source, i):
    seq_len = min(35, len(source) - 1 - i)
    data = source[i : i + seq_len]
    target = source[i + 1 : i + 1 + seq_len].view(-1)
    return data, target

def train():
    for batch, i in enumerate(range(0, train_data.size(0) - 1, 35)):
        data, targets = get_batch(train_data, i)
        output = model(data)
        loss = output.sum()
        loss.backward()
        time.sleep(0.002)

until = time.time() + 8
while time.time() < until:
    train()
"""


def line_of(source: str, text: str) -> int:
    return next(n for n, line in enumerate(source.splitlines(), 1) if text in line)


@pytest.mark.parametrize("source", [NANO, LANGUAGE_MODEL], ids=["nanoGPT", "word_language_model"])
def test_the_answer_names_the_function_that_returns_the_batches(project, source: str) -> None:
    project.write("train.py", source)
    report = project.record("--stop-after", "100", "train.py")
    verdict = report["verdict"]
    assert verdict["state"] == "inconclusive"
    assert verdict["headline"].startswith("No DataLoader was iterated")
    spent, limit = verdict["evidence"]
    assert spent.startswith("where the training loop spent its time: ")
    assert limit == "--stop-after 100 had no effect: no batch was delivered"
    (advice,) = report["advice"]
    assert advice["id"] == "watch-batches"
    place = f"train.py:{line_of(source, 'def get_batch')}"
    assert advice["code"] == f"import unstarve\nget_batch = unstarve.watch(get_batch)   # {place}"
    assert report["functions"]
    assert project.report()["advice"] == report["advice"]


def test_the_line_that_was_advised_makes_the_batches_visible(project) -> None:
    project.write("train.py", NANO)
    alone = project.call(sys.executable, "train.py", "watch")
    done = project.unstarve("run", "-q", "-o", "run.unstarve", "train.py", "watch")
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout) == (0, alone.stdout)
    report = project.report()
    by_name = {loader["name"]: loader for loader in report["loaders"]}
    assert set(by_name) == {"get_batch", "get_batch, no_grad"}
    assert by_name["get_batch"]["steps"] == 61
    assert by_name["get_batch"]["samples"] == 61 * 12
    assert by_name["get_batch"]["bytes"] == 61 * 2 * 12 * 8 * 8
    assert by_name["get_batch, no_grad"]["steps"] == 8
    assert report["demand"]["loader"] == "get_batch"
    assert report["demand"]["remote_s"] >= 0.005  # it sleeps
    assert report["lost"] == []


def test_a_limit_counts_the_calls(project) -> None:
    project.write("train.py", NANO)
    report = project.record("--stop-after", "25", "train.py", "watch")
    assert report["run"]["steps"] == 25


def test_a_script_with_a_loader_leaves_no_trace_of_the_other_sampler(project) -> None:
    project.write(
        "train.py",
        """
        from data import *
        model = torch.nn.Linear(4, 1)
        def get_batch():
            return torch.zeros(4)
        time.sleep(2)
        for x, _ in DataLoader(Numbers(200), batch_size=4):
            y = get_batch()
            model(x).sum().backward()
        """,
    )
    report = project.record("train.py")
    assert report["unseen_batches"] is None
    assert all(advice["id"] != "watch-batches" for advice in report["advice"])
    assert report["run"]["steps"] == 50
