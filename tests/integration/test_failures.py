"""What fails in the user's code reaches the user; what fails in unstarve does not."""

from __future__ import annotations

import pytest

BROKEN = """
import sys
from data import *

class Broken(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        if index == 17:
            raise LookupError("sample 17 is rotten")
        return torch.zeros(2)

class Dying(Broken):
    def __getitem__(self, index):
        if index == 17:
            time.sleep(0.5)  # until the batches before are through
            import os; os._exit(3)
        return torch.zeros(2)

if __name__ == "__main__":
    kind, workers, caught = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    try:
        for batch in DataLoader(globals()[kind](), batch_size=4, num_workers=workers):
            pass
    except (LookupError, RuntimeError) as error:
        if not caught:
            raise
        print(type(error).__name__, "rotten" in str(error), "exited unexpectedly" in str(error))
"""


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_exception_of_the_dataset_is_the_users_to_see(project, workers: str) -> None:
    project.write("train.py", BROKEN)
    alone = project.python("train.py", "Broken", workers)
    recorded = project.unstarve("run", "-q", "-o", "run.unstarve", "train.py", "Broken", workers)
    assert recorded.returncode == alone.returncode == 1
    assert last_line(recorded.stderr) == last_line(alone.stderr)
    assert "LookupError: sample 17 is rotten" in recorded.stderr
    report = project.report()
    assert report["run"]["steps"] == 4
    assert report["run"]["exit_code"] == 1
    assert not report["run"]["cut_short"]


@pytest.mark.parametrize(("kind", "workers"), [("Broken", "0"), ("Broken", "2"), ("Dying", "2")])
def test_an_exception_that_the_script_handles_is_the_same_exception(project, kind: str, workers: str) -> None:
    project.write("train.py", BROKEN)
    alone = project.python("train.py", kind, workers, "catch")
    recorded = project.unstarve("run", "-q", "train.py", kind, workers, "catch")
    assert (recorded.returncode, recorded.stdout) == (alone.returncode, alone.stdout) != (0, "")


TRAIN = """
import os, shutil, sys, json
parts = json.loads(os.environ["UNSTARVE_LAUNCH"])["parts"] if "UNSTARVE_LAUNCH" in os.environ else None
from data import *
MISHAP
total = 0
for epoch in range(3):
    for x, y in DataLoader(Numbers(40), batch_size=4):
        total += float(x.sum())
        MID_RUN
print(total)
"""
TOTAL = f"{3 * 4 * sum(range(40)):.1f}\n"


@pytest.mark.parametrize(
    ("mishap", "mid_run", "told"),
    [
        ("shutil.rmtree(parts)", "pass", "not recording"),
        ("pass", "shutil.rmtree(parts, ignore_errors=True)", "could not be joined"),
        ("os.remove(parts.removesuffix('.parts'))", "pass", "could not be joined"),
        ("os.environ['UNSTARVE_LAUNCH'] = 'nonsense'", "pass", "INCONCLUSIVE"),
        ("import unstarve.collect; sys.modules['unstarve.collect.tap'] = None", "pass", "INCONCLUSIVE"),
        ("import unstarve.collect.describe as d; d.Scale.weigh = None", "pass", "batch 0 of epoch 0"),
        ("import unstarve.record.writer as w; w.Writer.flush = None", "pass", "INCONCLUSIVE"),
        (
            "import unstarve.collect.recorder as r; r.Recorder.loader_number = None",
            "pass",
            "could not be followed",
        ),
    ],
)
def test_a_failure_of_unstarve_is_told_and_leaves_training_unharmed(
    project, mishap: str, mid_run: str, told: str
) -> None:
    project.write("train.py", TRAIN.replace("MISHAP", mishap).replace("MID_RUN", mid_run))
    done = project.unstarve("run", "train.py")
    assert (done.returncode, done.stdout) == (0, TOTAL)
    assert told in done.stderr
    assert len(done.stderr) < 5000


def test_batches_that_cannot_be_weighed_are_counted_all_the_same(project) -> None:
    project.write(
        "train.py",
        """
        from data import *
        def sparse(samples):
            return torch.stack([x for x, _ in samples]).to_sparse()
        def images(samples):
            return tuple(zip(*[(torch.zeros(3, 2, 2 + i % 2), i) for _, i in samples]))
        def as_they_are(samples):
            return samples
        class Strange:
            def __getattr__(self, name):
                raise RuntimeError("do not look at me")
        def strange(samples):
            return Strange()
        a = DataLoader(Numbers(42), batch_size=8, collate_fn=sparse)
        b = DataLoader(Numbers(42), batch_size=8, collate_fn=images)
        c = DataLoader(Numbers(42), batch_size=8, collate_fn=as_they_are)
        d = DataLoader(Numbers(42), batch_size=8, collate_fn=strange)
        for loader in (a, b, c, d):
            for batch in loader: pass
        """,
    )
    report = project.record("train.py")
    rows = {row["name"]: (row["steps"], row["samples"]) for row in report["loaders"]}
    assert rows == {"a": (6, None), "b": (6, 42), "c": (6, 42), "d": (6, None)}
    assert report["lost"] == []
