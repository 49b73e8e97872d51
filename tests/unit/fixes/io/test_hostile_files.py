"""No file makes its reader take more memory than the file is worth, in C++ or in Python."""

from __future__ import annotations

import json
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

HOSTILE = {
    f"{name}{suffix}": make
    for suffix, made in ((".pt", HOSTILE_PT), (".safetensors", HOSTILE_SAFETENSORS), (".npy", HOSTILE_NPY))
    for name, make in made.items()
}

# Looks into each file with so much more memory than it had before, and says what was found.
LOOK = """
import json, resource, sys
import numpy as np
from unstarve.fixes.io import formats
from unstarve.fixes.io.reading import Names

room_bytes, is_twin, *paths = json.loads(sys.argv[1])
if is_twin:
    formats.native = lambda: None
with open("/proc/self/statm") as file:
    used_bytes = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used_bytes + room_bytes,) * 2)
answers = []
for path in paths:
    names = Names([path])
    code = np.array([formats.format_of(path)], np.uint8)
    (answer,) = formats.find_layouts(names, names.starts, code, threads=1)
    answers.append((answer.found, answer.error, answer.text, answer.columns))
print(json.dumps(answers))
"""


def look_in_little_memory(room_bytes: int, paths: list[Path], *, is_twin: bool) -> list[Any]:
    question = json.dumps([room_bytes, is_twin, *map(str, paths)])
    done = subprocess.run(
        [sys.executable, "-c", LOOK, question], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


@needs_native
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks /proc how much memory is in use")
def test_both_finders_say_the_same_of_a_hostile_file_in_little_memory(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in HOSTILE]
    for path in paths:
        path.write_bytes(HOSTILE[path.name]())
    compiled, twin = (
        dict(zip(HOSTILE, look_in_little_memory(128 << 20, paths, is_twin=is_twin), strict=True))
        for is_twin in (False, True)
    )
    assert compiled == twin
    kinds = {name: (found, error) for name, (found, error, *_) in compiled.items()}
    assert kinds.pop("one key again.pt") == (LAYOUT, 0)
    assert set(kinds.values()) <= {(UNSUPPORTED, 0), (DAMAGED, 0)}, kinds


@pytest.mark.usefixtures("readers")
def test_a_batch_of_what_torch_loads_is_no_larger_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "laughs.pt"
    path.write_bytes(laughs())
    with pytest.raises(DataFileError, match=r"laughs\.pt .* it repeats itself very often"):
        TensorFileDataset([path]).read_batch([0])
    path.write_bytes(archive(b"\x80\x02]q\x00(K\x01h\x00e."))
    with pytest.raises(DataFileError, match="it repeats itself very often"):
        TensorFileDataset([path]).read_batch([0])
