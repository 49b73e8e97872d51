"""Training and validation are told apart in the loops that people write; a report's numbers agree."""

from __future__ import annotations

from typing import Any

import pytest

LOOPS = """
import sys
import unstarve
from data import *

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

def loaders():
    train_loader = DataLoader(Numbers(30))
    val_loader = DataLoader(Numbers(25, load_s=0.05))
    return train_loader, val_loader

def step(x):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    time.sleep(0.01)

def adder(train_loader, val_loader):
    '''One long training, then evaluation on several splits by one helper, as in minGPT's adder.'''
    def eval_split(count):
        loader = DataLoader(Numbers(count, load_s=0.05))
        for x, y in loader:
            model(x)
    for x, y in train_loader:
        step(x)
    with torch.no_grad():
        eval_split(25)
        eval_split(22)

def trainer(train_loader, val_loader):
    '''Gradients are off only in the body, and a batch is asked for ahead of its turn, as in HF's Trainer.'''
    def ahead(loader):
        batches = iter(loader)
        current = next(batches)
        while True:
            try:
                following = next(batches)
            except StopIteration:
                yield current
                return
            yield current
            current = following
    for number, (x, y) in enumerate(ahead(train_loader)):
        step(x)
        if number == 20:
            for x, y in ahead(val_loader):
                with torch.no_grad():
                    model(x)

def lightning(train_loader, val_loader):
    '''A sanity check before training, validation after every epoch.'''
    def validate(most):
        with torch.inference_mode():
            for number, (x, y) in enumerate(val_loader):
                model(x)
                if number + 1 == most:
                    break
    validate(2)
    for epoch in range(2):
        for x, y in train_loader:
            step(x)
        validate(25)

def examples(train_loader, val_loader):
    '''``train()`` and ``test()`` in turns, as in pytorch/examples.'''
    for epoch in range(2):
        for x, y in train_loader:
            step(x)
        with torch.no_grad():
            for x, y in val_loader:
                model(x)

def watched(train_loader, val_loader):
    '''Iterables that are no DataLoader; validation forgets to switch gradients off.'''
    for epoch in range(2):
        for x, y in unstarve.watch([(torch.ones(1, 4), 0)] * 30, "train_loader"):
            step(x)
        for x, y in unstarve.watch(val_loader, "val_loader"):
            model(x)

def nested(train_loader, val_loader):
    '''Validation in the middle of an epoch, left early, before the step's own backward pass.'''
    for number, (x, y) in enumerate(train_loader):
        if number % 15 == 10:
            for count, (seen, y) in enumerate(val_loader):
                with torch.no_grad():
                    model(seen)
                if count == 20:
                    break
        step(x)

globals()[sys.argv[1]](*loaders())
"""
EPOCHS = {"adder": 1, "trainer": 1, "lightning": 2, "examples": 2, "watched": 2, "nested": 1}


@pytest.fixture(scope="module", params=EPOCHS)
def recorded(shared_project: Any, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    shared_project.write("train.py", LOOPS)
    return request.param, shared_project.record("train.py", request.param)


def test_training_is_the_subject_and_validation_has_its_own_section(recorded) -> None:
    loop, report = recorded
    roles = {loader["name"]: loader["role"] for loader in report["loaders"] if not loader["nested"]}
    train = roles.pop("train_loader")
    assert train == "train"
    assert set(roles.values()) == {"validation"}
    assert report["run"]["steps"] == 30 * EPOCHS[loop]


def test_the_numbers_agree(recorded) -> None:
    _, report = recorded
    budget_s = sum(line["seconds"] for line in report["budget"])
    outside = {part["what"]: part["seconds"] for part in report["outside"]}
    assert budget_s + sum(outside.values()) == pytest.approx(report["run"]["wall_s"], rel=0.01)
    steps = report["run"]["steps"] - report["run"]["warmup_steps"]
    assert report["throughput"]["steps_per_s"] == pytest.approx(steps / budget_s)
    assert report["wait_share"] == pytest.approx(sum(report["waits"].values()) / budget_s)
    # The slow samples are validation's: 20 of 50 ms at least.
    assert outside["validation"] > 20 * 0.05
    assert outside["before training"] > 0


def test_validation_is_judged_where_it_takes_a_good_part_of_the_run(recorded) -> None:
    _, report = recorded
    told = [loader for loader in report["loaders"] if loader["verdict"] is not None]
    share = (
        sum(p["seconds"] for p in report["outside"] if p["what"] == "validation") / report["run"]["wall_s"]
    )
    assert len(told) >= (share >= 0.1)  # that of one loader, if two validate
    for loader in told:
        assert (loader["role"], loader["verdict"]["state"]) == ("validation", "starved")
        assert loader["verdict"]["headline"].startswith(f"Validation ({loader['name']}) takes ")
    assert ("Validation (" in report["verdict"]["headline"]) == bool(told)


COMPILED = """
import sys, warnings
import torch._dynamo
from torch.utils.checkpoint import checkpoint
from data import *

class Tagged(torch.Tensor):
    called = []
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.called.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})

def losses(kind):
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    parameters, hooked = list(model.parameters()), []
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(lambda p: hooked.append(tuple(p.shape)))
    forward = torch.compile(model, backend="eager") if kind == "model" else model
    def step(x):
        loss = forward(x).square().mean()
        loss.backward() if kind != "function" else torch.autograd.backward(loss)
        with torch.no_grad():
            for parameter in parameters:
                parameter -= 1e-3 * parameter.grad
                parameter.grad = None
        return loss.detach()
    run = torch.compile(step, backend="eager") if kind in ("method", "function") else step
    found = [run(x).item() for x, y in DataLoader(Numbers(24), batch_size=2)]
    broken = sum(torch._dynamo.utils.counters["graph_break"].values())
    return kind, found, len(hooked), dict(torch._dynamo.utils.counters["stats"]), broken

for kind in ("eager", "model", "method", "function"):
    print(losses(kind))
for x, y in DataLoader(Numbers(4)):
    try:
        x.sum().backward()
    except RuntimeError as error:
        print(error)
    weight = torch.ones(4, requires_grad=True)
    (weight * x).sum().as_subclass(Tagged).backward()
    layer = torch.nn.Linear(4, 4)
    checkpoint(layer, x.requires_grad_(), use_reentrant=True).sum().backward()
    print(Tagged.called, weight.grad, x.grad.shape)
"""


def test_noting_backward_passes_changes_nothing(project) -> None:
    project.write("train.py", COMPILED)
    alone, watched = project.python("train.py"), project.unstarve("run", "--json", "report.json", "train.py")
    assert alone.returncode == 0, alone.stderr
    assert watched.stdout == alone.stdout
    assert "recompile" not in watched.stderr
