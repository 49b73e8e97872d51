"""From a real run to the line that a person should write."""

from __future__ import annotations

import ast

TRAIN = """
from data import *

def make(batch):
    return DataLoader(
        Numbers(80, load_s=0.05),
        batch_size=batch,  # as the caller wants it
        num_workers=1,
    )

for batch in make(2):
    pass
"""


def test_the_users_own_call_comes_back_with_the_change_applied(project) -> None:
    project.write("train.py", TRAIN)
    report = project.record("train.py")
    assert report["loaders"][0]["source"].startswith("DataLoader(\n")
    first = report["advice"][0]
    assert first["id"] == "more-workers"
    call = ast.parse(first["code"], mode="eval").body
    assert isinstance(call, ast.Call)
    written = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    assert written == {"batch_size": "batch", "num_workers": str(first["change"]["num_workers"])}
    gain, room = first["speedup"], report["headroom"]
    assert 1 <= gain["low"] <= gain["predicted"] <= gain["high"] <= room["high"]
    shown = project.unstarve("report", "run.unstarve").stdout
    assert "What to change?" in shown
    assert first["title"] in shown
    assert project.report() == report
