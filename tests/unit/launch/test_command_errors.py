"""Which line of which process says why a command failed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from unstarve.launch.command_errors import command_error, error_line

CHILD_FAILED = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=====
train.py FAILED
-----
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 16)  (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 16
-----
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 17)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 17
=====
"""
"""What torchrun prints."""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ModuleNotFoundError: No module named 'a'\n", "ModuleNotFoundError: No module named 'a'"),
        ("KeyError\n", "KeyError"),
        ("mine.Trouble: no good\n", "mine.Trouble: no good"),
        ('  File "a.py", line 1\n    x = = 1\n        ^\nSyntaxError: invalid\n', "SyntaxError: invalid"),
        (
            "RuntimeError: Caught LookupError in DataLoader worker process 0.\nOriginal Traceback (most "
            "recent call last):\n  File …\nLookupError: sample 17\n",
            "LookupError: sample 17",
        ),
        (
            "torch.AcceleratorError: CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable "
            "device-side assertions.\n",
            "torch.AcceleratorError: CUDA error: out of memory",
        ),
        (
            CHILD_FAILED,
            "rank 1 was killed by SIGKILL",
        ),
        (
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 16 got signal: 2\n",
            "KeyboardInterrupt",
        ),
        ("", None),
    ],
)  # fmt: skip
def test_the_line_that_names_the_error_is_found(text: str, line: str | None) -> None:
    assert error_line(text) == line


def test_an_endless_message_is_cut() -> None:
    line = error_line(f"ValueError: {'x' * 5000}\n")
    assert line is not None
    assert len(line) < 400


def ended(parts: Path, at_ns: int, **said: Any) -> None:
    words = {"parent": 1, "rank": None, "at_ns": at_ns, "exception": None, "stderr": "", **said}
    (parts / f"{at_ns}.ended").write_text(json.dumps(words))


def test_no_words_are_no_error(tmp_path: Path) -> None:
    assert command_error(tmp_path) is None
    (tmp_path / "1.ended").write_text('{"parent": 1, "ra')  # it died while it wrote
    assert command_error(tmp_path) is None


def test_the_first_rank_that_failed_comes_before_the_launcher_of_the_ranks(tmp_path: Path) -> None:
    ended(tmp_path, 3, rank="0", exception="RuntimeError: connection closed by peer\n")
    ended(tmp_path, 2, rank="1", exception="ValueError: bad shard\n")
    ended(tmp_path, 4, parent=os.getpid(), exception="ChildFailedError: \n====\n")
    assert command_error(tmp_path) == "rank 1: ValueError: bad shard"


def test_a_killed_rank_comes_before_those_that_lost_it(tmp_path: Path) -> None:
    ended(tmp_path, 2, rank="0", exception="RuntimeError: connection closed by peer\n")
    ended(tmp_path, 4, parent=os.getpid(), exception=CHILD_FAILED)
    assert command_error(tmp_path) == "rank 1 was killed by SIGKILL"


def test_the_command_itself_comes_before_what_it_started(tmp_path: Path) -> None:
    ended(tmp_path, 1, parent=os.getpid(), stderr="usage: train.py\ntrain.py: error: no --data\n")
    ended(tmp_path, 2, exception="ImportError: tried and handled\n")
    assert command_error(tmp_path) == "train.py: error: no --data"


def test_of_several_others_the_last_one_counts(tmp_path: Path) -> None:
    ended(tmp_path, 1, exception="ValueError: first\n")
    ended(tmp_path, 2, exception="ValueError: second\n")
    ended(tmp_path, 3, stderr="a warning\n")
    assert command_error(tmp_path) == "ValueError: second"


def test_of_standard_error_the_last_line_with_words_counts(tmp_path: Path) -> None:
    ended(tmp_path, 1, stderr="\x1b[31mError: no such folder\x1b[0m\n╰─────╯\n 50%|█████     |\r\n\n")
    assert command_error(tmp_path) == "Error: no such folder"
