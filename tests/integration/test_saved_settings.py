"""`unstarve run --with`: an unmodified script, its loaders as saved."""

from __future__ import annotations

import pytest

TRAIN = """
from data import *

def main():
    # Moved by a line since it was saved.
    train_loader = DataLoader(Numbers(32), batch_size=4)
    val_loader = DataLoader(Numbers(8), batch_size=4)
    for _ in range(2):
        seen = [y.tolist() for x, y in train_loader] + [y.tolist() for x, y in val_loader]
    print(seen)
    print(train_loader.num_workers, val_loader.num_workers)

if __name__ == "__main__":
    main()
"""
SAVED = """
[[loader]]
file = "train.py"
line = 5
function = "main"
name = "train_loader"
call = "CALL"
[loader.settings]
num_workers = 1
prefetch_factor = 3

[[loader]]
file = "train.py"
line = 70
[loader.settings]
num_workers = 1
"""


def test_loaders_get_what_was_saved_for_them_and_the_report_says_so(project) -> None:
    from unstarve.steer.saved_settings import digest

    project.write("train.py", TRAIN)
    project.write("tuned.toml", SAVED.replace("CALL", digest("DataLoader(Numbers(32), batch_size=4)")))
    alone = project.python("train.py")
    done = project.unstarve("run", "--with", "tuned.toml", "-o", "run.unstarve", "train.py")
    assert done.returncode == 0, done.stderr
    assert alone.stdout.splitlines()[1] == "0 0"
    assert done.stdout == alone.stdout.replace("0 0", "1 0")
    report = project.report()
    configs = {loader["name"]: loader["config"] for loader in report["loaders"]}
    assert configs["train_loader"]["applied"] == "num_workers 0 → 1, prefetch_factor None → 3"
    assert "applied" not in configs["val_loader"]
    shown = " ".join(done.stderr.split())
    assert "settings applied to train_loader (train.py:6): num_workers 0 → 1" in shown
    assert "tuned.toml: no loader of the command matches train.py:70" in report["lost"]


@pytest.mark.parametrize(("verb", "settings"), [("run", "workers = 2"), ("ideal", "num_workers = ")])
def test_settings_that_make_no_sense_start_nothing(project, verb: str, settings: str) -> None:
    project.write("train.py", "print('started')")
    project.write("bad.toml", f'[[loader]]\nfile = "train.py"\nline = 1\n[loader.settings]\n{settings}\n')
    done = project.unstarve(verb, "--with", "bad.toml", "train.py")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "bad.toml" in done.stderr
    assert list(project.folder.glob("*.unstarve*")) == []
