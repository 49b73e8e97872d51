"""The key of a dataset: a digest of its code, its parameters, its length and a few samples.

Datasets with the same key share a cache, between ranks and with the next run. A file that changes under the
same name changes the key only if it is one of the few samples; users who change data in place pass a `key`.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import pathlib
import re
import types
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch

from unstarve.errors import CacheError
from unstarve.fixes.memory.shared.shared_dict import SharedDict
from unstarve.fixes.memory.shared.shared_list import SharedList
from unstarve.fixes.samples.leaves import Array, as_array

_ATOMS = (type(None), bool, int, float, complex, str, bytes, range, pathlib.PurePath, np.dtype, torch.dtype)
_MAX_DEPTH = 100
_FLAT = frozenset({bool, int, float, str})


def key_of(dataset: Any, samples: int, probes: Sequence[Any]) -> str:
    """Return a name for the dataset: its class, and a digest of everything it is made of."""
    digest = _Digest()
    digest.add((samples, dataset, list(probes)))
    return f"{_as_name(type(dataset).__name__)}-{digest.hex()}"


def key_from(given: str, samples: int) -> str:
    """Return the name for a key that the user passed."""
    digest = _Digest()
    digest.add((samples, given))
    return f"{_as_name(given)}-{digest.hex()}"


def _as_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:40].strip(".-") or "dataset"


class _Digest:
    """Feeds values of any kind into a hash, the same way in every process."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, tuple[int, Any]] = {}
        self._depth = 0

    def hex(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        if isinstance(value, _ATOMS) and not isinstance(value, enum.Enum):
            self._say(type(value).__name__, repr(value))
            return
        if id(value) in self._seen:
            self._say("again", str(self._seen[id(value)][0]))
            return
        self._seen[id(value)] = (len(self._seen), value)  # kept alive, so that no other object gets its id
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise CacheError("the dataset is nested too deeply to derive a key from it: pass key=")
        self._add_parts(value)
        self._depth -= 1

    def _add_parts(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._add_tensor(value)
        elif isinstance(value, np.ndarray):
            self._add_array(value)
        elif isinstance(value, (SharedList, SharedDict)):  # the key is that of the plain one
            self._add_parts(value.copy())
        elif isinstance(value, (list, tuple)) and _FLAT.issuperset(map(type, value)):
            self._say(type(value).__name__, repr(list(value)))
        elif isinstance(value, (list, tuple)):
            self._add_all(type(value).__name__, value)
        elif isinstance(value, Mapping):
            self._add_all(type(value).__name__, [part for item in value.items() for part in item])
        elif isinstance(value, Set):
            self._add_all(type(value).__name__, sorted(map(repr, value)))
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
            self._add_function(value)
        elif isinstance(value, types.ModuleType):
            self._say("module", value.__name__)
        else:
            self._add_object(value)

    def _say(self, *words: str) -> None:
        for word in words:
            data = word.encode("utf-8", "surrogatepass")
            self._hash.update(len(data).to_bytes(8, "little"))
            self._hash.update(data)

    def _add_all(self, name: str, parts: Sequence[Any]) -> None:
        self._say(name, str(len(parts)))
        for part in parts:
            self.add(part)

    def _add_tensor(self, tensor: torch.Tensor) -> None:
        self._say("tensor", str(tensor.dtype), str(tuple(tensor.shape)))
        if tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested:
            self._add_bytes(as_array(tensor.detach().cpu().contiguous()))

    def _add_array(self, array: Array) -> None:
        self._say("array", str(array.dtype), str(array.shape))
        if array.dtype.hasobject:
            self._add_all("objects", array.ravel().tolist())
        else:
            self._add_bytes(array)

    def _add_bytes(self, array: Array) -> None:
        flat = np.ascontiguousarray(array).reshape(-1)
        self._hash.update(flat.view(np.uint8).data)

    def _add_class(self, kind: type[Any]) -> None:
        for each in kind.__mro__:
            self._say("class", each.__module__, each.__qualname__)
            if each.__module__.split(".")[0] not in ("builtins", "torch", "typing", "abc", "collections"):
                self._say(_source_of(each))

    def _add_function(self, function: Any) -> None:
        if isinstance(function, functools.partial):
            self._add_all("partial", [function.func, function.args, function.keywords])
        elif isinstance(function, types.MethodType):
            self._add_all("method", [function.__func__, function.__self__])
        else:
            self._say("function", function.__module__, function.__qualname__, _source_of(function))
            around = inspect.getclosurevars(function).nonlocals
            self._add_all("closure", [function.__defaults__, function.__kwdefaults__, around])

    def _add_object(self, value: Any) -> None:
        self.add(type(value))
        if isinstance(value, enum.Enum):
            self._say(value.name)
            return
        own = getattr(value, "_fingerprint", None)
        if isinstance(own, str):  # Hugging Face datasets: better than hashing their tables
            self._say(own)
        elif hasattr(value, "__dict__"):
            self.add(vars(value))
        else:
            self._add_reduced(value)

    def _add_reduced(self, value: Any) -> None:
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # a lock, a file, a socket: it does not determine samples
            return
        self.add(reduced)


def _source_of(code: Any) -> str:
    """Return the source of a class or function, or its bytecode if there is no source."""
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):  # typed at a prompt
        functions = vars(code).values() if isinstance(code, type) else [code]
        return " ".join(f.__code__.co_code.hex() for f in functions if isinstance(f, types.FunctionType))
