"""A packed file that somebody cuts short during training is an error that names it, and no signal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from packed_samples import images
from unstarve import PackedDataset, PackedWriter
from unstarve.errors import DataFileError
from unstarve.fixes.io.page_cache import residency

CUT_SHORT = """
import os, sys
import unstarve
from unstarve.errors import DataFileError

for path, read, order in (argument.split(":") for argument in sys.argv[1:]):
    dataset = unstarve.PackedDataset(path, read=read)
    loader = unstarve.DataLoader(dataset, batch_size=8, shuffle=order == "shuffled")
    print(loader.engine)
    batches = iter(loader)
    held = next(batches)
    expected = held[0].clone()
    os.truncate(path, 0)
    assert (held[0] == expected).all()
    try:
        for batch in batches:
            batch[0].sum()
        dataset.read_batch([1, 2])
    except DataFileError as error:
        print(error)
"""


def test_a_file_that_is_cut_short_is_an_error_and_no_signal(tmp_path: Path) -> None:
    cases = {"a:auto:sequential": "views", "b:auto:shuffled": "gather", "c:pread:shuffled": "threads"}
    for case in cases:
        path = tmp_path / case[0]
        with PackedWriter(path) as writer:
            for sample in images(40):
                writer.append(sample)
        path.read_bytes()
        if residency(path) is None:
            pytest.skip("the kernel does not say what is in the page cache")
    done = subprocess.run(
        [sys.executable, "-c", CUT_SHORT, *(f"{tmp_path}/{case}" for case in cases)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr)
    lines = iter(done.stdout.splitlines())
    for case, engine in cases.items():
        assert next(lines) == engine
        assert f"{tmp_path}/{case[0]} was truncated since it was opened" in next(lines)


def test_tables_survive_a_file_that_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with PackedWriter(path) as writer:
        for size in range(9):
            writer.append(torch.arange(size))
    dataset = PackedDataset(path)
    os.truncate(path, 0)
    assert dataset._file.records["size"].sum() > 0
    with pytest.raises(DataFileError, match="was truncated"):
        dataset[3]
    with pytest.raises(DataFileError, match="was truncated"):
        dataset._file.checksums  # noqa: B018  # reads them
