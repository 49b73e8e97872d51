"""Phases of `unstarve run --profile` against a script that times itself: the difference per phase.

python bench/phases.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_TRAIN = """
import time, json, sys, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 1200
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.randn(512), index % 10

model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loss_of = torch.nn.CrossEntropyLoss()
spent = []
loader = iter(DataLoader(Slow(), batch_size=60))
clock = time.perf_counter
for _ in range(20):
    t = [clock()]
    x, y = next(loader); t.append(clock())
    loss = loss_of(model(x), y); t.append(clock())
    loss.backward(); t.append(clock())
    optimizer.step(); optimizer.zero_grad(); t.append(clock())
    spent.append([b - a for a, b in zip(t, t[1:])])
print(json.dumps([sum(step[k] for step in spent[6:9]) for k in range(4)]))
"""
_NAMES = ("data", "forward", "backward", "optimizer")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    asked.add_argument("--rounds", type=int, default=3, help="runs (default: 3)")
    rounds = asked.parse_args().rounds
    errors: dict[str, list[float]] = {name: [] for name in _NAMES}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(_TRAIN)
        for _ in range(rounds):
            unstarve = str(Path(sys.executable).with_name("unstarve"))
            command = [
                unstarve,
                "run",
                "-q",
                "-f",
                "-o",
                "p.unstarve",
                "--json",
                "p.json",
                "--profile",
                "train.py",
            ]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
            own = dict(zip(_NAMES, json.loads(done.stdout.splitlines()[-1]), strict=True))
            report = json.loads(Path(folder, "p.json").read_text())
            found = {phase["name"]: phase["seconds"] for phase in report["profile"]["phases"]}
            step_s = sum(own.values())
            for name in _NAMES:
                errors[name].append((found[name] - own[name]) / step_s)
    for name, values in errors.items():
        print(f"{name:10} {statistics.median(values):+7.1%} of the step, worst {max(values, key=abs):+.1%}")


if __name__ == "__main__":
    main()
