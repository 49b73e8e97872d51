"""The command line as data: what `--help`, the man page and the docs are made from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from unstarve.cli.examples import Example, examples_of

_DEFAULT = re.compile(r"\s*\[default: (.*)\]$")


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument, or an option with all its names."""

    names: tuple[str, ...]
    """An argument has one, as the usage line shows it; an option's begin with dashes, the short one first."""
    value: str
    """What an option takes, in capitals or as ``a|b``; empty for a flag and for an argument."""
    help: str
    default: str | None
    required: bool
    variable: str | None = None
    """The environment variable that also sets it."""


@dataclass(frozen=True, slots=True)
class VerbReference:
    """One verb. Texts are Markdown: code stands in backticks, paragraphs are divided by empty lines."""

    name: str
    """As it is typed after ``unstarve``: ``run``, ``lab start``; empty for the program itself."""
    usage: str
    summary: str
    description: tuple[str, ...]
    """Paragraphs."""
    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]
    examples: tuple[Example, ...]
    verbs: tuple[tuple[str, str], ...] = ()
    """Name and summary of each sub-verb."""


def verb_references() -> tuple[VerbReference, ...]:
    """Every verb in the order of `unstarve --help`; the sub-verbs of `lab` follow it."""
    import typer

    from unstarve.cli.app import app

    return tuple(_walk(typer.main.get_command(app), ""))[1:]


def _walk(command: Any, name: str) -> Iterator[VerbReference]:
    yield reference_of(command, name)
    for verb, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, f"{name} {verb}".strip())


def reference_of(command: Any, name: str) -> VerbReference:
    """Describe a command object of typer under the name by which it is typed."""
    summary, *description = (
        " ".join(part.split()) for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))
    )
    arguments = tuple(_parameter(one) for one in command.params if one.param_type_name == "argument")
    options = tuple(_parameter(one) for one in command.params if one.param_type_name == "option")
    inner = getattr(command, "commands", None)
    places = ["VERB …"] if inner else [_place(one) for one in arguments]
    return VerbReference(
        name,
        " ".join(["unstarve", *name.split(), "[OPTIONS]", *places]),
        summary,
        tuple(description),
        arguments,
        (*options, Parameter(("-h", "--help"), "", "Show this help.", None, False)),
        examples_of(command.callback),
        tuple((verb, reference_of(one, verb).summary) for verb, one in (inner or {}).items()),
    )


def _place(argument: Parameter) -> str:
    (name,) = argument.names
    return name if argument.required else f"[{name}]"


def _parameter(declared: Any) -> Parameter:
    text = " ".join((declared.help or "").split())
    stated = _DEFAULT.search(text)
    is_argument = declared.param_type_name == "argument"
    if is_argument:
        names = (str(declared.metavar or declared.name),)
    else:
        first = sorted(declared.opts, key=len)
        names = (*first, *declared.secondary_opts)
    return Parameter(
        names,
        "" if is_argument or declared.is_flag else _value(declared),
        _DEFAULT.sub("", text),
        stated.group(1) if stated else _default(declared),
        declared.required,
        declared.envvar,
    )


def _value(option: Any) -> str:
    if option.metavar:
        return str(option.metavar)
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(one.value) for one in kind)
    return "N"


def _default(declared: Any) -> str | None:
    value = declared.default
    if value is None or value == "" or declared.show_default is False or isinstance(value, list | tuple):
        return None
    if isinstance(value, bool):
        return declared.opts[0] if value and declared.secondary_opts else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value.value if isinstance(value, Enum) else value)
