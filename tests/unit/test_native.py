"""Whether native code or its fallback runs is decided once, and explained in words."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from unstarve.native import native, why_not_native

needs_native = pytest.mark.skipif(native() is None, reason=f"native: {why_not_native()}")


def test_there_is_a_reason_exactly_when_there_is_no_module() -> None:
    assert (native() is None) == (why_not_native() is not None)


def test_the_environment_switches_native_code_off() -> None:
    script = "from unstarve.native import native, why_not_native; print(native(), why_not_native())"
    environment = dict(os.environ, UNSTARVE_NATIVE="0")
    shown = subprocess.run(
        [sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True
    )
    assert shown.stdout.strip() == "None switched off by UNSTARVE_NATIVE=0"


@needs_native
@pytest.mark.parametrize("name", ["source", "index", "out"])
def test_compiled_gather_refuses_arrays_it_would_have_to_copy(name: str) -> None:
    module = native()
    assert module is not None
    arrays = {"source": np.zeros((4, 2)), "index": np.zeros(4, np.int64), "out": np.zeros((4, 2))}
    module.gather(**arrays)
    strided = np.zeros((8, *arrays[name].shape[1:]), arrays[name].dtype)[::2]
    with pytest.raises(TypeError):
        module.gather(**{**arrays, name: strided})


@needs_native
def test_compiled_gather_guards_memory_on_its_own() -> None:
    module = native()
    assert module is not None
    source, index = np.zeros((4, 2)), np.zeros(3, np.int64)
    for bad_out in (np.zeros((2, 2)), np.zeros((3, 3)), np.zeros((3, 2), np.float32)):
        with pytest.raises(ValueError, match="one row of source's size"):
            module.gather(source, index, bad_out)
    with pytest.raises(ValueError, match="out overlaps source"):
        module.gather(source, index, source[:3])
    with pytest.raises(ValueError, match="out overlaps index"):
        module.gather(np.zeros(4, np.int64), index, index)
    with pytest.raises(ValueError, match="at least one dimension"):
        module.gather(np.array(1.0), index, np.zeros(3))
    with pytest.raises(TypeError):
        module.gather(source, index.astype(np.int32), np.zeros((3, 2)))
    read_only = np.zeros((3, 2))
    read_only.flags.writeable = False
    with pytest.raises(TypeError):
        module.gather(source, index, read_only)


@needs_native
def test_compiled_gather_takes_tensors_directly() -> None:
    module = native()
    assert module is not None
    source, out = torch.arange(8).reshape(4, 2).bfloat16(), torch.zeros(2, 2).bfloat16()
    module.gather(source, torch.tensor([3, -4]), out)
    assert torch.equal(out, source[[3, 0]])
