"""Batches, losses, random streams and surroundings are the same with and without unstarve."""

from __future__ import annotations

import json

import pytest

TRAIN = """
import copy, hashlib, inspect, json, pickle, random, signal, sys, threading, warnings
import numpy as np
from data import *

class Noisy(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        noise = torch.rand(3) + random.random() + np.random.rand()
        return torch.full((3,), float(index)) + noise, torch.randint(0, 2, ()).item()

def train(workers, start):
    random.seed(1); np.random.seed(2); torch.manual_seed(3)
    seen = hashlib.sha256()
    model = torch.nn.Linear(3, 1)
    step = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(
        Noisy(), batch_size=8, shuffle=True, num_workers=workers,
        multiprocessing_context=start, persistent_workers=workers > 0,
    )
    for epoch in range(2):
        for x, y in loader:
            loss = ((model(x).squeeze() - y) ** 2).mean()
            step.zero_grad(); loss.backward(); step.step()
            for part in (x, y, loss.detach()):
                seen.update(part.numpy().tobytes())
    states = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    return seen.hexdigest(), hashlib.sha256(repr(states).encode()).hexdigest()

def surroundings():
    loader = DataLoader(Numbers(8), batch_size=4)
    list(loader)
    again, twin = pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        streamed = len(list(DataLoader(Stream(10), batch_size=4)))
    return {
        "signature": str(inspect.signature(DataLoader)),
        "names": [DataLoader.__init__.__qualname__, DataLoader.__module__, DataLoader.__name__],
        "copies": [len(list(again)), len(list(twin))],
        "iterator": type(iter(loader)).__mro__[0].__qualname__,
        "warnings": [str(w.message) for w in caught],
        "streamed": streamed,
        "handlers": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        # A finished loader's own feeder thread ends when it comes to it.
        "threads": sum("QueueFeeder" not in thread.name for thread in threading.enumerate()),
        "hooks": [sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__],
    }

if __name__ == "__main__":
    result = {f"{w} {s}": train(w, s) for w, s in [(0, None), (2, "fork"), (1, "spawn"), (1, "forkserver")]}
    print(json.dumps({"trained": result, **surroundings()}))
"""


def test_batches_losses_random_states_and_all_a_script_can_look_at_are_the_same(project) -> None:
    project.write("train.py", TRAIN)
    alone = project.python("train.py")
    recorded = project.unstarve("run", "-q", "-o", "run.unstarve", "train.py")
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stderr == alone.stderr
    assert json.loads(recorded.stdout) == json.loads(alone.stdout)
    rows = project.report()["loaders"]
    line = 1 + [text.strip() for text in TRAIN.splitlines()].index("loader = DataLoader(")
    assert [row["steps"] for row in rows if row["where"] == f"train.py:{line}"] == [16, 16, 16, 16]


@pytest.mark.parametrize("verb", ["run", "ideal"])
def test_a_loader_goes_with_its_workers_as_soon_as_the_script_lets_go_of_it(project, verb: str) -> None:
    project.write(
        "train.py",
        """
        import gc, multiprocessing
        from data import *
        gc.disable()
        loader = DataLoader(Numbers(40), batch_size=4, num_workers=2, persistent_workers=True)
        for batch in loader: pass
        print(len(multiprocessing.active_children()))
        del loader
        print(len(multiprocessing.active_children()))
        """,
    )
    done = project.unstarve(verb, "-q", "train.py", env={"UNSTARVE_NATIVE": "0"})
    assert done.stdout == "2\n0\n" == project.python("train.py").stdout


def test_native_code_can_be_switched_off(project) -> None:
    assert "UNSTARVE_NATIVE=0" in project.unstarve("--version", env={"UNSTARVE_NATIVE": "0"}).stdout
