"""A command that fails: the report says so and why, and the command's own output stays as it is."""

from __future__ import annotations

import sys

import pytest

BEFORE = {
    "import albumentations_of_nobody": (
        "failed before its first batch (exit code 1): "
        "ModuleNotFoundError: No module named 'albumentations_of_nobody'"
    ),
    "from data import *\nraise ValueError('no such model: resnet51.')": (
        "failed before its first batch (exit code 1): ValueError: no such model: resnet51"
    ),
    "import sys; sys.exit('set DATA_ROOT first')": (
        "failed before its first batch (exit code 1): set DATA_ROOT first"
    ),
    "from argparse import *; p = ArgumentParser(); p.add_argument('--data', required=True); p.parse_args()": (
        "failed before its first batch (exit code 2): train.py: error: "
        "the following arguments are required: --data"
    ),
    "import sys; sys.exit(3)": "failed before its first batch (exit code 3)",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "was killed by SIGKILL before its first batch",
    "import os; os.abort()": "was killed by SIGABRT before its first batch",
    "raise KeyboardInterrupt": "was interrupted before its first batch",
}


@pytest.mark.parametrize("code", BEFORE)
def test_a_command_that_fails_early_is_told_with_its_reason(project, code: str) -> None:
    project.write("train.py", code)
    alone = project.python("train.py")
    recorded = project.unstarve("run", "-q", "-o", "run.unstarve", "train.py")
    assert (recorded.returncode, recorded.stdout) == (alone.returncode, alone.stdout)
    assert recorded.stderr == alone.stderr
    report = project.report()
    assert report["verdict"]["state"] == "inconclusive"
    assert BEFORE[code] in report["verdict"]["headline"]
    assert report["verdict"]["headline"].endswith(".")
    assert "DataLoader" not in report["verdict"]["headline"]
    assert report["run"]["exit_code"] == alone.returncode


def test_a_failure_in_the_middle_is_one_line_of_the_report(project) -> None:
    project.write(
        "train.py",
        """
        from data import *
        for step, batch in enumerate(DataLoader(Numbers(400), batch_size=4)):
            time.sleep(0.001)
            if step == 59:
                raise ArithmeticError("loss is nan")
        """,
    )
    done = project.unstarve("run", "-o", "run.unstarve", "train.py")
    assert done.returncode == 1
    report = project.report()
    assert report["run"]["steps"] == 60
    assert report["run"]["failure"] == "ArithmeticError: loss is nan"
    assert report["verdict"]["state"] != "inconclusive"
    failed = "the command failed after 60 steps (exit code 1): ArithmeticError: loss is nan"
    assert report["verdict"]["evidence"][-1] == failed
    page = project.unstarve("report", "run.unstarve", "--markdown")
    assert "failed after 60 steps" in page.stdout


def test_a_failure_after_a_few_steps_is_the_headline(project) -> None:
    project.write(
        "train.py",
        """
        from data import *
        class Broken(Numbers):
            def __getitem__(self, index):
                if index == 17:
                    raise LookupError("sample 17 is rotten")
                return super().__getitem__(index)
        if __name__ == "__main__":
            for batch in DataLoader(Broken(40), batch_size=4, num_workers=2):
                pass
        """,
    )
    project.unstarve("run", "-q", "-o", "run.unstarve", "train.py")
    headline = project.report()["verdict"]["headline"]
    assert "failed after 4 steps (exit code 1): LookupError: sample 17 is rotten." in headline


def test_the_rank_that_failed_is_quoted(project) -> None:
    project.write(
        "train.py",
        """
        import os, time
        if os.environ["RANK"] == "1":
            raise ValueError("bad shard 7")
        time.sleep(120)
        """,
    )
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    done = project.unstarve("run", "-q", "-o", "run.unstarve", *words, "train.py")
    assert done.returncode == 1
    assert "(exit code 1): rank 1: ValueError: bad shard 7." in project.report()["verdict"]["headline"]


def test_a_limit_that_had_nothing_to_count_is_told(project) -> None:
    project.write("train.py", "import torch\n")
    for option in ("--steps", "--stop-after"):
        report = project.record(option, "100", "train.py")
        assert f"{option} 100 had no effect: no batch was delivered" in report["verdict"]["evidence"]


def test_a_block_that_fails_tells_why(project) -> None:
    project.write(
        "train.py",
        """
        import unstarve
        from data import *
        try:
            with unstarve.recording() as recorded:
                raise ValueError("no such model")
        except ValueError:
            print(recorded.diagnosis.verdict.headline)
        """,
    )
    done = project.call(sys.executable, "train.py")
    assert done.stdout.endswith("(exit code 1): ValueError: no such model.\n"), done.stderr
