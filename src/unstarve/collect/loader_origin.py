"""Who created a loader: the user's own line, and the framework between that line and torch.

Standard library only: it runs while torch is imported. Nothing here keeps a frame or a loader alive.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path, PurePath
from types import FrameType
from typing import Any, NamedTuple

from unstarve.collect.call_site import (
    call_source,
    call_statement,
    iterated_name,
    variable_name,
    workers_option,
)
from unstarve.marks import SITE
from unstarve.model.loaders import Maker

_OURS = {"grain", "torch", "torchdata", "unstarve"}
_LIGHTNING = {"lightning", "lightning_fabric", "pytorch_lightning"}
_FRAMEWORKS = {"accelerate", "fastai", "timm", "transformers"} | _LIGHTNING
"""Not the user's own code, wherever they are installed."""
_HOOKS = {"train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"}
_TRAINER = re.compile(r"get_(train|eval|test)_dataloader")
_LEARNER = {"_do_epoch_train": "train", "_do_epoch_validate": "validation"}
_ROLE = re.compile(r"(train|val|eval|test)[a-z]*_?(?:data_?)?loader", re.IGNORECASE)
_INSTALLED = {"site-packages", "dist-packages"}

_serial = count(1)


class Origin(NamedTuple):
    """Where a loader comes from; kept on the loader as a plain tuple, which unpickles without unstarve."""

    file: str
    line: int
    framework: str | None = None
    """Package that created it: ``transformers``; None if the user's own line did."""
    function: str | None = None
    """What returned it: ``Trainer.get_train_dataloader``, or the user's method that Lightning called."""
    option: str | None = None
    """Option of the command line that gives its number of workers: ``--workers``."""
    words: str | None = None
    """What it is, in the framework's words: ``Trainer's train dataloader``."""
    created: int = 0
    """Its place among the loaders of this process in the order of their creation; 0 if unknown."""
    remade_by: str | None = None
    """Framework that created the loader again from the one that this line created: ``accelerate``."""

    @property
    def maker(self) -> Maker | None:
        """The framework that created it."""
        return None if self.framework is None else Maker(self.framework, self.function, self.option)

    @property
    def name(self) -> str | None:
        """What it is, else the variable that it was assigned to, else the one that a loop goes through."""
        line = (self.file, self.line)
        return self.words or variable_name(*line) or iterated_name(*line)

    def source(self, kind: str) -> str | None:
        """The user's call that returned this loader of class `kind`, as written; None if not certain."""
        if self.framework is None or self.framework == "lightning":
            return call_source(self.file, self.line, kind)
        function = self.function or ""
        return call_source(self.file, self.line, function) if function.endswith("loader") else None

    def told(self, kind: str, *, applied: bool) -> dict[str, Any]:
        """What a run file says of it; `applied` if the call got other arguments than its source says."""
        source = None if applied else self.source(kind)
        return {
            "source": source,
            "maker": self.maker and asdict(self.maker),
            "created": self.created,
            "statement": call_statement(self.file, self.line, source) if source else "",
        }


@dataclass(frozen=True, slots=True)
class Creation:
    """A loader is being created. Holds frames: do not keep it."""

    frame: FrameType | None
    """The user's own frame."""
    innermost: FrameType | None
    """The first frame outside of torch and unstarve: the user's or a library's."""
    replaces: Any
    """The loader that a framework creates again with other arguments; None if this is a new one."""
    _between: tuple[FrameType, ...]
    """Frames of frameworks between the user and torch, the innermost first."""

    def origin(self) -> Origin:
        """Where it comes from: a loader that was created again comes from where the first one came from."""
        before = None if self.replaces is None else vars(self.replaces).get(SITE)
        if before is not None:
            return Origin(*before)._replace(remade_by=_package(self._between[0]))
        if self.frame is None:
            return Origin("?", 0, created=next(_serial))
        file, line = self.frame.f_code.co_filename, self.frame.f_lineno
        return Origin(file, line, *_made_by(self.frame, self._between), created=next(_serial))


def creation(loader: Any = None, dataset: Any = None) -> Creation:
    """Look at the stack of a call that creates `loader` for `dataset`, or that iterates it first."""
    user, innermost, between = None, None, []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = _package(frame)
        if package not in _OURS and not _is_stdlib(frame.f_code.co_filename):
            innermost = innermost or frame
            if _is_users(frame, package):
                user = frame
                break
            between.append(frame)
        frame = frame.f_back
    if user is None:  # a program that is installed as a whole
        return Creation(innermost, innermost, None, ())
    # The constructor of a subclass is the user's call; Lightning wraps constructors to note arguments.
    makers = tuple(one for one in between if not (_constructs(one, loader) or _is_wrapper(one)))
    return Creation(user, innermost, _replaced(makers, loader, dataset), makers)


# --- whose code a frame runs ---


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_users(frame: FrameType, package: str) -> bool:
    if package == "__main__":
        return not _is_launcher(frame.f_code.co_filename)
    if package in _FRAMEWORKS:
        return False
    return not _is_installed(frame.f_code.co_filename) or package == _main_package()


def _main_package() -> str | None:
    """The package that the user runs with ``python -m``: an installed one is the user's own then."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return None if spec is None else str(spec.name).partition(".")[0]


@functools.lru_cache(maxsize=1024)
def _is_installed(filename: str) -> bool:
    return not _INSTALLED.isdisjoint(PurePath(filename).parts)


_STDLIB = (str(Path(os.__file__).parent) + os.sep, sysconfig.get_path("stdlib") + os.sep, "<frozen ")
_UNSTARVE = str(Path(__file__).parents[1]) + os.sep


@functools.lru_cache(maxsize=1024)
def is_of_user(filename: str) -> bool:
    """Whether a file belongs to neither Python, nor an installed package, nor unstarve."""
    ours = filename.startswith(_UNSTARVE)
    return not (ours or filename.startswith("<") or _is_installed(filename) or _is_stdlib(filename))


@functools.lru_cache(maxsize=1024)
def _is_stdlib(filename: str) -> bool:
    return filename.startswith(_STDLIB) and not _is_installed(filename)


@functools.lru_cache(maxsize=64)
def _is_launcher(filename: str) -> bool:
    """Whether it is a script that pip has installed: three lines which call the program."""
    folder = Path(filename).absolute().parent
    return folder in (Path(sys.executable).absolute().parent, Path(sysconfig.get_path("scripts")))


def _constructs(frame: FrameType, loader: Any) -> bool:
    """Whether it is a method of this loader, or the constructor of webdataset's WebLoader around it."""
    instance = _arguments(frame).get("self")
    if instance is None or instance is loader:
        return instance is not None
    return frame.f_code.co_name == "__init__" and type(instance).__name__ == "WebLoader"


def _is_wrapper(frame: FrameType) -> bool:
    return frame.f_code.co_name == "wrapper" and _package(frame) in _LIGHTNING


# --- loaders that a framework creates again ---


def _replaced(between: tuple[FrameType, ...], loader: Any, dataset: Any) -> Any:
    """The loader that a function on the way was given and now creates again, for the same dataset.

    ``accelerator.prepare`` does so to put in its own sampler, and Lightning for several ranks.
    """
    for frame in between:
        for value in _arguments(frame).values():
            for one in (value, _fields(value).get("base_dataloader")):
                fields = _fields(one)
                if one is not loader and SITE in fields and _holds(dataset, fields.get("dataset")):
                    return one
    return None


def _holds(dataset: Any, before: Any) -> bool:
    """Whether this is the dataset of the loader before, or a shard of it."""
    return before is not None and (dataset is before or _fields(dataset).get("dataset") is before)


def _arguments(frame: FrameType) -> dict[str, Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: frame.f_locals[name] for name in names if name in frame.f_locals}


def _fields(value: Any) -> Mapping[str, Any]:
    try:
        fields = getattr(value, "__dict__", None)
    except Exception:  # a proxy for something that is not there
        return {}
    return fields if isinstance(fields, dict) else {}


# --- what it is ---

_Made = tuple[str | None, str | None, str | None, str | None]
"""Fields of an `Origin`: framework, function, option and words."""


def _made_by(user: FrameType, between: tuple[FrameType, ...]) -> _Made:
    if not between:
        return _hook(user)
    for frame in between:
        package, function = _package(frame), frame.f_code.co_name
        arguments = _arguments(frame)
        owner = type(arguments.get("self")).__name__
        if package == "transformers" and (asked := _TRAINER.fullmatch(function)):
            return package, f"{owner}.{function}", None, f"{owner}'s {asked[1]} dataloader"
        if package == "timm" and function.startswith("create_") and function.endswith("loader"):
            role = "train" if arguments.get("is_training") else "eval"
            option = workers_option(user.f_code.co_filename, user.f_lineno)
            return package, function, option, _assigned(user) or f"timm's {role} loader"
        if package == "fastai" and function in _LEARNER:
            return package, None, None, f"{owner}'s {_LEARNER[function]} dataloader"
    called = between[-1]
    package, function = _package(called), called.f_code.co_name
    returns_loader = "loader" in called.f_code.co_qualname.lower()
    roles = [f"{found[1].lower()} " for one in between if (found := _ROLE.search(one.f_code.co_name))]
    words = _assigned(user) if returns_loader else None
    return package, function, None, words or f"{package}'s {roles[0] if roles else ''}loader"


def _hook(user: FrameType) -> _Made:
    """The user's own method that Lightning calls for a loader."""
    for frame, caller in _with_callers(user):
        if _package(caller) in _LIGHTNING and frame.f_code.co_name in _HOOKS:
            owner, function = type(_arguments(frame).get("self")).__name__, frame.f_code.co_name
            return "lightning", f"{owner}.{function}", None, f"{owner}'s {function.replace('_', ' ')}"
        if not _is_users(caller, _package(caller)):
            break
    return None, None, None, None


def _with_callers(frame: FrameType) -> Iterator[tuple[FrameType, FrameType]]:
    while frame.f_back is not None:
        yield frame, frame.f_back
        frame = frame.f_back


def _assigned(user: FrameType) -> str | None:
    return variable_name(user.f_code.co_filename, user.f_lineno)
