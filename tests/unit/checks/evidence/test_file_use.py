"""Files that cost more than they should, and work that every epoch repeats."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_health import epochs_run, found, ids, spent
from fake_work import work_of
from unstarve.model import Cause, Diagnosis, FunctionCost
from unstarve.model.file_reads import ProcessReads, ReadPattern, ReadSummary

RUN = epochs_run(epochs=1, start_s=0)


def reading(seconds: float, pattern: str = "unused_bytes") -> ReadSummary:
    patterns = (ReadPattern(pattern, "Loading reads 14× the bytes.", "Store smaller chunks."),)
    process = ProcessReads(100, 1, 1, 0.0, 500, 10**9, seconds, 0, 0.0, 0, "training")
    return ReadSummary(None, 1, 500, 10**9, 10**8, 10.0, None, patterns, (), (), (process,))


def test_bytes_that_are_read_and_thrown_away() -> None:
    works = tuple(work_of(n, n * 100, cpu_ms=50, loader=0) for n in range(20))
    run = dataclasses.replace(RUN, processes=(dataclasses.replace(RUN.processes[0], works=works),))
    d = spent(Cause.CPU, 0.5)
    (one,) = found(run, dataclasses.replace(d, io=reading(0.4)))
    assert one.id == "reads-too-much"
    assert one.message == "Loading reads 14× the bytes. Reading takes 40% of the fetching time."
    assert one.fix == "Store smaller chunks."
    assert ids(run, dataclasses.replace(d, io=reading(0.01))) == []
    assert ids(run, dataclasses.replace(d, io=reading(0.4, "cold_reads"))) == []


def far_away(kind: str = "nfs4", file_bytes: int = 20_000, opens: float = 8.0) -> Diagnosis:
    return spent(
        Cause.REMOTE,
        0.5,
        system={"filesystems": {kind: 900, "ext4": 100}},
        dataset={"file_bytes": file_bytes},
        remote_s=0.2,
        opens=opens,
    )


def test_small_files_on_another_machine() -> None:
    (one,) = found(RUN, far_away())
    assert one.id == "network-small-files"
    assert "A batch opens 8 files of about 20 KB, on nfs4, and waits 200 ms" in one.message
    assert "local disk" in one.fix


@pytest.mark.parametrize(
    "facts",
    [{"kind": "xfs"}, {"file_bytes": 80_000_000}, {"opens": 0.1}],
    ids=["a local disk", "large files", "files kept open"],
)
def test_other_files_are_healthy(facts: dict[str, Any]) -> None:
    assert ids(RUN, far_away(**facts)) == []


def computing(share: float, file: str, name: str = "resample") -> Diagnosis:
    cost = FunctionCost(name, file, 12, Cause.CPU, 3.0, share)
    return dataclasses.replace(spent(Cause.CPU, 0.5), functions=(cost,))


def test_audio_that_is_resampled_in_every_epoch() -> None:
    (one,) = found(RUN, computing(0.6, "/venv/site-packages/torchaudio/functional/functional.py"))
    assert one.id == "resampling-in-getitem"
    assert "with torchaudio takes 60% of the fetching time" in one.message
    assert ids(RUN, computing(0.05, "/venv/site-packages/torchaudio/functional/functional.py")) == []
    assert ids(RUN, computing(0.6, "data.py")) == [], "a function of the user's own may do anything"
    assert ids(RUN, computing(0.6, "/venv/site-packages/torchaudio/functional/functional.py", "gain")) == []
