"""A pickle as torch.save writes it, read in Python without executing anything.

The standard unpickler would call what the pickle names, and sizes its memo as the pickle says.
"""

from __future__ import annotations

import io
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unstarve.fixes.io.twins.source import Unsupported, is_text

_MAX_OPCODES = 1 << 19


@dataclass(frozen=True, slots=True)
class Global:
    """A name in a module, "module name"; never looked up."""

    name: str


@dataclass(frozen=True, slots=True)
class Storage:
    """What torch.save said of a storage."""

    about: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a tensor would be rebuilt from: six arguments, or seven for newer types."""

    arguments: tuple[Any, ...]


def read_pickle(data: bytes) -> Any:
    """Return the value; raises Unsupported for all but plain containers, numbers, strings and tensors."""
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(io.BytesIO(data))):
            if count == _MAX_OPCODES:
                raise Unsupported("its pickle is very long")
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, EOFError) as error:
        raise Unsupported("its pickle breaks off") from error
    if len(machine.stack) != 1 or machine.marks:
        raise Unsupported("its pickle does not end as it should")
    return machine.stack[0]


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_MADE: dict[str, Callable[[], Any]] = {"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NOT_THERE = "its pickle takes what is not there"


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        if opcode in ("STOP", "PROTO"):
            if opcode == "PROTO" and argument > 5:
                raise Unsupported("its pickle is of an unknown protocol")
        elif opcode == "MARK":
            self.marks.append(len(self.stack))
        elif opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode])
        elif opcode in _MADE:
            self.stack.append(_MADE[opcode]())
        elif opcode in ("BININT", "BININT1", "BININT2", "LONG1"):
            self._push_integer(argument)
        elif opcode == "BINFLOAT":
            self.stack.append(argument)
        elif opcode in ("BINUNICODE", "GLOBAL"):
            if not is_text(argument):
                raise Unsupported("a string in its pickle is not UTF-8")
            self.stack.append(argument if opcode == "BINUNICODE" else Global(argument))
        elif opcode in _TUPLES or opcode == "TUPLE":
            self.stack.append(tuple(self._take(_TUPLES.get(opcode))))
        elif opcode in ("APPEND", "APPENDS"):
            self._append(self._take(1 if opcode == "APPEND" else None))
        elif opcode in ("SETITEM", "SETITEMS"):
            self._set_items(self._take(2 if opcode == "SETITEM" else None))
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._top()
        elif opcode in ("BINGET", "LONG_BINGET"):
            if argument not in self._memo:
                raise Unsupported(_NOT_THERE)
            self.stack.append(self._memo[argument])
        elif opcode == "BINPERSID":
            (about,) = self._take(1)
            if type(about) is not tuple:
                raise Unsupported("its pickle refers to something outside that is no storage")
            self.stack.append(Storage(about))
        elif opcode == "REDUCE":
            self.stack.append(_called(*self._take(2)))
        else:
            raise Unsupported("its pickle does something that torch.save does for no tensor")

    def _push_integer(self, value: int) -> None:
        if not -(1 << 63) <= value < 1 << 63:
            raise Unsupported("it holds an integer of more than 64 bits")
        self.stack.append(value)

    def _top(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise Unsupported(_NOT_THERE)
        return self.stack[-1]

    def _take(self, count: int | None) -> list[Any]:
        """Take the last `count` values, or all since the last mark."""
        floor = self.marks[-1] if self.marks else 0
        if count is None:
            if not self.marks:
                raise Unsupported(_NOT_THERE)
            start = self.marks.pop()
        else:
            start = len(self.stack) - count
            if start < floor:
                raise Unsupported(_NOT_THERE)
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def _append(self, items: list[Any]) -> None:
        into = self._top()
        if type(into) is not list:
            raise Unsupported("its pickle appends to what is no list")
        into.extend(items)

    def _set_items(self, items: list[Any]) -> None:
        into = self._top()
        if not isinstance(into, dict) or len(items) % 2:
            raise Unsupported("its pickle sets items of what is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                raise Unsupported("it holds a dict whose keys are not strings")
            into[key] = value


def _called(function: Any, arguments: Any) -> Any:
    if not isinstance(function, Global) or type(arguments) is not tuple:
        raise Unsupported("its pickle calls what is no function")
    if function.name == "collections OrderedDict" and not arguments:
        return OrderedDict()
    if function.name == "torch._utils _rebuild_tensor_v2" and len(arguments) == 6:
        return Rebuilt(arguments)
    if function.name == "torch._utils _rebuild_tensor_v3" and len(arguments) == 7:
        return Rebuilt(arguments)
    raise Unsupported("it holds more than tensors, numbers and plain containers")
