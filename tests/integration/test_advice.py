"""From a real run to code that a person can paste: the batches stay the same, and the cause is gone."""

from __future__ import annotations

from pasted import advice_in, pasted

BATCHES = """
import hashlib

def digest(batch):
    fields = [batch] if torch.is_tensor(batch) else batch.values() if isinstance(batch, dict) else batch
    return hashlib.sha1(b"".join(torch.as_tensor(f).numpy().tobytes() for f in fields)).hexdigest()
"""
"""What a script prints of its batches, so that two runs can be compared."""

REMOTE = f"""
from data import *
{BATCHES}
def make(batch):
    return DataLoader(
        Numbers(80, load_s=0.05),
        batch_size=batch,  # as the caller wants it
        num_workers=1,
    )

for batch in make(2):
    print(digest(batch))
"""


def test_more_workers_for_samples_that_wait(project) -> None:
    project.write("train.py", REMOTE)
    before = project.record("train.py")
    one = advice_in(before, "more-workers")
    project.write("changed.py", pasted(REMOTE, before, one["code"]))
    assert project.python("changed.py").stdout == project.python("train.py").stdout
    after = project.record("changed.py")
    assert after["loaders"][0]["config"]["num_workers"] == one["change"]["num_workers"]
    assert after["wait_share"] < before["wait_share"]
    assert after["waits"].get("remote", 0.0) < before["waits"]["remote"] / 2
