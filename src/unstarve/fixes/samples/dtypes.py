"""Element types: torch's name, the size, and how numpy and safetensors spell the type in a file.

Imports torch only where a torch type is asked for, so that `gather` on numpy arrays does not need it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch


class ElementType(NamedTuple):
    """One element type. `numpy` (the spelling in a .npy header) is None if numpy has no such type."""

    name: str
    itemsize: int
    numpy: str | None
    safetensors: str | None


ELEMENT_TYPES = {
    row[0]: ElementType(*row)
    for row in (
        ("bool", 1, "|b1", "BOOL"),
        ("uint8", 1, "|u1", "U8"),
        ("int8", 1, "|i1", "I8"),
        ("uint16", 2, "<u2", "U16"),
        ("int16", 2, "<i2", "I16"),
        ("uint32", 4, "<u4", "U32"),
        ("int32", 4, "<i4", "I32"),
        ("uint64", 8, "<u8", "U64"),
        ("int64", 8, "<i8", "I64"),
        ("float16", 2, "<f2", "F16"),
        ("bfloat16", 2, None, "BF16"),
        ("float32", 4, "<f4", "F32"),
        ("float64", 8, "<f8", "F64"),
        ("complex32", 4, None, None),
        ("complex64", 8, "<c8", "C64"),
        ("complex128", 16, "<c16", None),
        ("float8_e4m3fn", 1, None, "F8_E4M3"),
        ("float8_e5m2", 1, None, "F8_E5M2"),
        ("float8_e4m3fnuz", 1, None, None),
        ("float8_e5m2fnuz", 1, None, None),
        ("float8_e8m0fnu", 1, None, "F8_E8M0"),
    )
}
"""By torch's name. A torch release may lack some of the float8 types."""

INTEGER_OF_SIZE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
"""As what numpy sees a tensor whose type it does not know."""


@functools.cache
def torch_type(name: str) -> torch.dtype | None:
    """Return the torch type of this name; None if it is not in the table or this torch lacks it."""
    import torch  # heavy, and not needed for numpy arrays

    found = getattr(torch, name, None) if name in ELEMENT_TYPES else None
    return found if isinstance(found, torch.dtype) else None


@functools.cache
def torch_types_by_numpy() -> dict[np.dtype[Any], torch.dtype]:
    """Return the torch type of each numpy type that torch has too, in this machine's byte order."""
    found = ((np.dtype(row.name), torch_type(row.name)) for row in ELEMENT_TYPES.values() if row.numpy)
    return {theirs: ours for theirs, ours in found if ours is not None}
