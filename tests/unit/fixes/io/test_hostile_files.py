"""No file makes its reader take more memory than the file is worth, natively or with the libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostile_files import HOSTILE_NPY, HOSTILE_PT, HOSTILE_SAFETENSORS, archive, laughs
from unstarve.errors import DataFileError
from unstarve.fixes.datasets.files.tensor_file_dataset import TensorFileDataset
from unstarve.fixes.io.formats import DAMAGED, LAYOUT, UNSUPPORTED
from unstarve.native import native, why_not_native

needs_native = pytest.mark.skipif(native() is None, reason=f"native formats: {why_not_native()}")
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="asks /proc how much memory is in use"
)

HOSTILE = {
    f"{name}{suffix}": make
    for suffix, made in ((".pt", HOSTILE_PT), (".safetensors", HOSTILE_SAFETENSORS), (".npy", HOSTILE_NPY))
    for name, make in made.items()
}

# Allows this process so much more memory than it uses now, and reads the paths.
LIMIT_MEMORY = """
import json, resource, sys
import numpy as np

more_bytes, *paths = json.loads(sys.argv[1])

def limit_memory():
    with open("/proc/self/statm") as file:
        used_bytes = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + more_bytes,) * 2)
"""

FIND_LAYOUTS = """
from unstarve.fixes.io import formats
from unstarve.fixes.io.reading import Names

limit_memory()
answers = []
for path in paths:
    names = Names([path])
    code = np.array([formats.format_of(path)], np.uint8)
    (answer,) = formats.find_layouts(names, names.starts, code, threads=1)
    answers.append((answer.found, answer.error))
print(json.dumps(answers))
"""

READ_SAMPLES = """
import safetensors.torch, unstarve
from unstarve.errors import DataFileError

limit_memory()
answers = []
for path in paths:
    try:
        unstarve.TensorFileDataset([path])[0]
        answers.append("read")
    except DataFileError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""


def in_little_memory(
    program: str, more_bytes: int, folder: Path, environment: dict[str, str]
) -> dict[str, Any]:
    """Run the program on every hostile file; return what it says of each."""
    paths = [folder / name for name in HOSTILE]
    for path in paths:
        path.write_bytes(HOSTILE[path.name]())
    question = json.dumps([more_bytes, *map(str, paths)])
    done = subprocess.run(
        [sys.executable, "-c", LIMIT_MEMORY + program, question],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(HOSTILE, json.loads(done.stdout), strict=True))


@needs_native
@needs_proc
def test_layouts_of_hostile_files_are_looked_for_in_little_memory(tmp_path: Path) -> None:
    found = in_little_memory(FIND_LAYOUTS, 128 << 20, tmp_path, {})
    kinds = {name: tuple(answer) for name, answer in found.items()}
    assert kinds.pop("one key again.pt") == (LAYOUT, 0)
    assert set(kinds.values()) <= {(UNSUPPORTED, 0), (DAMAGED, 0)}, kinds


@needs_proc
@pytest.mark.parametrize("native_part", [pytest.param("1", marks=needs_native), "0"])
def test_hostile_files_are_read_or_refused_in_proportionate_memory(native_part: str, tmp_path: Path) -> None:
    said = in_little_memory(READ_SAMPLES, 400 << 20, tmp_path, {"UNSTARVE_NATIVE": native_part})
    assert said.pop("one key again.pt") == "read"
    for name, answer in said.items():
        assert answer == "read" or name in answer
        assert "memory" not in answer.lower(), answer


@pytest.mark.usefixtures("readers")
def test_a_batch_of_what_torch_loads_is_no_larger_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "laughs.pt"
    path.write_bytes(laughs())
    with pytest.raises(DataFileError, match=r"laughs\.pt .* it repeats itself very often"):
        TensorFileDataset([path]).read_batch([0])
    path.write_bytes(archive(b"\x80\x02]q\x00(K\x01h\x00e."))
    with pytest.raises(DataFileError, match="it repeats itself very often"):
        TensorFileDataset([path]).read_batch([0])
