"""Name a look at a stack in the user's words: no function of unstarve is ever named.

Time in the recording belongs to the dataset or the collate function that it wraps. Time in a fix that the
user has chosen has the fix's public name: ``unstarve.CachedDataset``. Everything else is named by its
innermost frame.
"""

from __future__ import annotations

import functools
import inspect
import sys
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset, Subset

from unstarve.collect.sampling.line_expression import values_in

FETCHING = "unstarve.collect.fetching"
FETCH, CALL, COLLATE = "FetchProbe.fetch", "FetchProbe.call", "FetchProbe._collate"
"""Functions of that module: they call the dataset, a watched function and the collate function."""

PACKAGE = "unstarve"
"""The `file` of a public name."""

OURS, RECORDING, INSIDE_FETCH, STANDARD, TORCH, HOST = 1, 2, 4, 8, 16, 32
"""Kinds of module: unstarve's; of those, the ones on the stack of a training that waits for a batch, and the
ones that a fetch runs through; the standard library's; torch's; of those, the ones that compute nothing."""
_RECORDING = tuple(f"unstarve.{stage}." for stage in ("collect", "record", "launch", "steer", "tune"))
_TRANSPARENT = {f"unstarve.collect.{name}" for name in ("file_opens", "own_cost", "transforms")}
"""Of those, the ones that call the user's code or are called by it, anywhere."""
_TORCH_FETCH = "torch.utils.data._utils.fetch"
_NOT_COMPUTING = {"torch.serialization", "torch.utils.tensorboard.writer"}
_LIKE_USERS = ("unstarve.demo", "unstarve.labs.step")
"""A training like any other."""
_PUBLIC = (
    ("unstarve.fixes.datasets.cached.", "unstarve.CachedDataset"),
    ("unstarve.fixes.datasets.files.", "unstarve.TensorFileDataset"),
    ("unstarve.fixes.datasets.images.decode_crop", "unstarve.DecodeCrop"),
    ("unstarve.fixes.datasets.images.image_folder_dataset", "unstarve.ImageFolderDataset"),
    ("unstarve.fixes.datasets.packed.", "unstarve.PackedDataset"),
    ("unstarve.fixes.datasets.prefetch.", "unstarve.AsyncPrefetchDataset"),
    ("unstarve.fixes.loader.", "unstarve.DataLoader"),
)
"""Beginnings of the modules of one fix, and its name. What several fixes share has none: see `Naming`."""


class Name(NamedTuple):
    """What a look is called."""

    function: str
    file: str
    """Without a source file: the module."""
    line: int
    """First line of the function; 0 without a source file."""


class Naming:
    """The name of one stack, found by going through its frames from the innermost one outwards."""

    __slots__ = ("frame", "is_final", "name")

    def __init__(self) -> None:
        self.name: Name | None = None
        self.frame: FrameType | None = None
        """The user's or a library's innermost frame, if `name` is its name."""
        self.is_final = False
        """Until then all frames were unstarve's, or the standard library's: unstarve may have called it."""

    def pass_through(self, frame: FrameType, module: str, kind: int) -> None:
        """The next frame outwards."""
        if self.is_final or module == _TORCH_FETCH:
            return
        if kind & OURS:
            public = public_name(module)
            self.name = None if public is None else Name(public, PACKAGE, 0)
            self.frame, self.is_final = None, public is not None
        else:
            if self.name is None:
                self.name, self.frame = _of_code(frame.f_code), frame
            self.is_final = not kind & STANDARD


def kind_of(module: str) -> int:
    """What a frame of this module means for a stack."""
    top = module.partition(".")[0]
    if top == PACKAGE and not module.startswith(_LIKE_USERS):
        if module == FETCHING:
            return OURS | INSIDE_FETCH
        if module in _TRANSPARENT or not module.startswith(_RECORDING):
            return OURS
        return OURS | RECORDING
    return (
        (STANDARD if top in sys.stdlib_module_names and top != "__main__" else 0)
        | (TORCH if top == "torch" else 0)
        | (HOST if module in _NOT_COMPUTING else 0)
        | (INSIDE_FETCH if module == _TORCH_FETCH else 0)
    )


@functools.cache
def public_name(module: str) -> str | None:
    """The name by which a user knows the code of this module of ours."""
    return next((name for beginning, name in _PUBLIC if module.startswith(beginning)), None)


def fetched_by(frame: FrameType) -> Name | None:
    """The method of the user's dataset that `FetchProbe.fetch` calls, from its frame."""
    found = values_in(frame, ("dataset",))
    return name_of_dataset(found[0]) if found else None


def called_by(frame: FrameType) -> Name | None:
    """The function that `FetchProbe.call` calls, from its frame."""
    found = values_in(frame, ("function",))
    return name_of_callable(found[0]) if found else None


def collated_by(frame: FrameType) -> Name | None:
    """The collate function that `FetchProbe._collate` calls, from its frame."""
    found = values_in(frame, ("collate",))
    return name_of_callable(found[0]) if found else None


def name_of_dataset(dataset: Any) -> Name:
    """The method that gives a dataset's samples; that of the whole dataset for a part of it."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    cls = type(dataset)
    if isinstance(dataset, IterableDataset):
        method = "__iter__"
    else:
        method = "__getitem__" if _defined(cls, "__getitems__") is None else "__getitems__"
    return _of_function(_defined(cls, method), f"{cls.__qualname__}.{method}", cls.__module__)


def name_of_callable(called: Any) -> Name:
    """A function, a method, a partial or any other object that can be called."""
    while isinstance(called, functools.partial):
        called = called.func
    if isinstance(called, MethodType):
        called = called.__func__
    if isinstance(called, type):
        return _of_function(None, called.__qualname__, called.__module__)
    if isinstance(called, FunctionType) or inspect.isbuiltin(called):
        return _of_function(called, called.__name__, called.__module__ or "builtins")
    cls = type(called)
    return _of_function(_defined(cls, "__call__"), cls.__qualname__, cls.__module__)


def _defined(cls: type, method: str) -> Any:
    """A method as its class has it, found without running code of the user."""
    return inspect.getattr_static(cls, method, None)


def _of_function(function: Any, qualname: str, module: str) -> Name:
    public = public_name(module)
    if public is not None:
        return Name(public, PACKAGE, 0)
    return _of_code(function.__code__) if isinstance(function, FunctionType) else Name(qualname, module, 0)


def _of_code(code: CodeType) -> Name:
    return Name(code.co_qualname, code.co_filename, code.co_firstlineno)
