"""A source with the arguments of some calls changed, and not one other character.

Calls are found by parsing; the change is made in the text, so that comments, formatting and line endings stay
as they are.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from unstarve.advise.patch.source_calls import Argument, Call, Calls, SourceRange, line_offset, read_calls
from unstarve.advise.patch.user_files import CallChange
from unstarve.errors import NotPatchableError
from unstarve.model.parts import CACHED, ENGINE_PARTS, GPU_IMAGES, IMAGES, PARTS
from unstarve.model.saved import NEED_WORKERS, POSITIONS, Setting

_DEFAULTS: Mapping[str, Setting] = {
    "num_workers": 0,
    "prefetch_factor": 2,
    "persistent_workers": False,
    "pin_memory": False,
    "in_order": True,
}
_IMAGE_NOTE = (
    "unstarve then reads the images: same files, order and targets; random crops come from other generators,"
    " and pixels differ slightly, as between two JPEG decoders"
)
_GPU_NOTE = (
    "images arrive on the GPU: what your loop does with them before the model must work there; make the"
    " dataset before the model"
)
_CACHE_NOTE = "the first epoch fills the cache; data that changes while training runs is not seen"
_ENGINE_BY_HAND = "use `--save` and `run --with`, or `run --engine {}`, without a change to the source"
_IMAGES_BY_HAND = (
    "edit it by hand to unstarve.DataLoader(unstarve.ImageFolderDataset.like(dataset), …), or use --save"
    " and run --with"
)
_CACHE_BY_HAND = 'wrap it by hand in unstarve.CachedDataset(…, fill="lazy"), or use --save and run --with'


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes of a source to replace; an insertion where `begin` equals `end`."""

    begin: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A changed source."""

    source: str
    notes: tuple[str, ...]
    """What a reader of the diff should know."""


def rewrite(source: str, changes: Sequence[CallChange]) -> Rewritten:
    """The source with all changes made. Raises `NotPatchableError` when one cannot be made."""
    text = source.encode()
    calls = read_calls(source)
    edits: list[Edit] = []
    notes: list[str] = []
    for change in changes:
        call = _made_by(text, calls, change)
        settings = dict(change.settings)
        parts = [part for part in PARTS if settings.pop(part, False)]
        found, said = _edits(text, call, settings)
        for part in parts:
            if part in (IMAGES, GPU_IMAGES):
                options = ', decode="cuda"' if part == GPU_IMAGES else ""
                wrapped = f"unstarve.ImageFolderDataset.like({{}}{options})"
                found.append(_with_our_loader(text, call, change.kind, _IMAGES_BY_HAND))
                found.append(_wrapped(text, call, wrapped, _IMAGES_BY_HAND))
                said += [_IMAGE_NOTE, *([_GPU_NOTE] if part == GPU_IMAGES else [])]
            elif part == CACHED:
                found.append(_wrapped(text, call, 'unstarve.CachedDataset({}, fill="lazy")', _CACHE_BY_HAND))
                said.append(_CACHE_NOTE)
            elif part in ENGINE_PARTS:
                found.append(_with_our_loader(text, call, change.kind, _ENGINE_BY_HAND.format(part)))
        edits += found
        notes += [f"line {change.place.line}: {note}" for note in said]
    if any(change.settings.get(part) for change in changes for part in PARTS):
        edits += _imported(source)
    for edit in sorted(edits, key=lambda edit: (edit.begin, edit.end), reverse=True):
        text = text[: edit.begin] + edit.text.encode() + text[edit.end :]
    changed = text.decode()
    try:
        ast.parse(changed)
    except SyntaxError as error:
        raise NotPatchableError(f"the changed file would not be valid Python: {error.msg}") from error
    return Rewritten(changed, tuple(notes))


def _made_by(text: bytes, calls: Calls, change: CallChange) -> Call:
    """The call that created the loader, found by its end, which no two calls share, or by its line."""
    span = change.place.span
    if span is not None:
        end = line_offset(text, span.end_line) + span.end_column
        for node, written in calls.found:
            if written.end == end:
                return calls.call(node, change.kind)
        raise NotPatchableError("there is no call where the loader was created")
    found = []
    for node, written in calls.found:
        if len((text[: written.begin] + b"x").splitlines()) == change.place.line:
            try:
                found.append(calls.call(node, change.kind))
            except NotPatchableError:
                continue
    if len(found) != 1:
        raise NotPatchableError(f"line {change.place.line} has {len(found)} calls that create loaders")
    return found[0]


def _edits(text: bytes, call: Call, settings: Mapping[str, Setting]) -> tuple[list[Edit], list[str]]:
    wanted: dict[str, Setting | None] = dict(settings)
    without_workers = wanted.get("num_workers") == 0
    if without_workers:
        wanted = {name: value for name, value in wanted.items() if name not in NEED_WORKERS}
    edits: list[Edit] = []
    notes: list[str] = []
    missing: dict[str, Setting | None] = {}
    for name, value in wanted.items():
        given = _given(call, name)
        if given is None:
            missing[name] = value
        elif _text(text, given) != repr(value):
            edits.append(Edit(given.begin, given.end, repr(value)))
            notes += _replaced(name, _text(text, given))
    kept = call
    if without_workers:
        gone = [one for one in call.arguments if one.keyword in NEED_WORKERS]
        kept = dataclasses.replace(call, arguments=tuple(one for one in call.arguments if one not in gone))
        edits += _removed(text, call, gone) + _unset(kept)
    return edits + _add(text, kept, missing, without_workers), notes


def _given(call: Call, name: str) -> SourceRange | None:
    """Where the value of an argument is written; None if it is not."""
    for argument in call.arguments:
        if argument.keyword == name:
            return argument.value
        if argument.entries is not None and name in argument.entries:
            return argument.entries[name]
    at = POSITIONS.index(name) if name in POSITIONS else len(call.arguments)
    before = call.arguments[: at + 1]
    if at < len(call.arguments) and not any(one.star or one.keyword for one in before):
        if not call.direct:
            raise NotPatchableError(f"{name} may be among the positional arguments of {call.function}(…)")
        return call.arguments[at].value
    return None


def _unset(call: Call) -> list[Edit]:
    """Reset arguments that torch refuses without workers and that are not keywords."""
    found = [(_given(call, name), value) for name, value in NEED_WORKERS.items()]
    return [Edit(given.begin, given.end, repr(value)) for given, value in found if given is not None]


def _add(text: bytes, call: Call, missing: dict[str, Setting | None], without_workers: bool) -> list[Edit]:
    """Edits that add the arguments that are not written yet."""
    hidden = [one for one in call.arguments if one.star == "**" and one.entries is None]
    listed = any(one.star == "*" for one in call.arguments)
    if missing and listed:
        raise NotPatchableError(
            f"{' and '.join(missing)} may be hidden in the *args of {call.function}(…);"
            " set it where those are built"
        )
    if hidden:
        if without_workers:
            missing |= {name: NEED_WORKERS[name] for name in ("prefetch_factor", "persistent_workers")}
        if missing and len(hidden) > 1:
            raise NotPatchableError(
                f"any ** argument of {call.function}(…) may contain {' and '.join(missing)}"
            )
        return [_overriding(text, hidden[0], missing)] if missing else []
    new = {name: value for name, value in missing.items() if value != _DEFAULTS.get(name)}
    return _added(text, call, new) if new else []


def _overriding(text: bytes, options: Argument, values: Mapping[str, Setting | None]) -> Edit:
    """``**{**options, "num_workers": 8}``: correct whether or not the options contain the name."""
    items = "".join(f', "{name}": {value!r}' for name, value in values.items())
    return Edit(options.value.begin, options.value.end, f"{{**{_text(text, options.value)}{items}}}")


def _replaced(name: str, before: str) -> list[str]:
    """A note when an expression, not a literal, is replaced."""
    try:
        ast.literal_eval(before)
    except (ValueError, SyntaxError):
        return [f"{name} was {' '.join(before.split())}, which no longer has any effect"]
    return []


def _text(text: bytes, written: SourceRange) -> str:
    return text[written.begin : written.end].decode()


# Arguments added to and removed from a call, laid out as the call is.


def _added(text: bytes, call: Call, values: Mapping[str, Any]) -> list[Edit]:
    """Add arguments after the last one, each on its own line if the last one is.

    `call` is without those that are removed in the same change.
    """
    written = [f"{name}={value!r}" for name, value in values.items()]
    close = call.whole.end - 1
    if not call.arguments:
        return [Edit(close, close, ", ".join(written))]
    last = call.arguments[-1].whole
    indent = _indent(text, last.begin)
    if indent is None:
        return [Edit(last.end, last.end, "".join(f", {one}" for one in written))]
    newline = "\r\n" if b"\r\n" in text else "\n"
    closing_line = text.rfind(b"\n", last.end, close) + 1
    if not closing_line:  # the parenthesis follows the last argument
        return [Edit(last.end, last.end, "".join(f",{newline}{indent}{one}" for one in written))]
    lines = "".join(f"{indent}{one},{newline}" for one in written)
    comma = [] if _comma_after(text, last.end, close) else [Edit(last.end, last.end, ",")]
    return [*comma, Edit(closing_line, closing_line, lines)]


def _removed(text: bytes, call: Call, gone: Sequence[Argument]) -> list[Edit]:
    """Remove arguments and their commas; lines with nothing else are removed with their comments."""
    edits: list[Edit] = []
    at = 0
    for leaves, run in groupby(call.arguments, lambda argument: argument in gone):
        members = list(run)
        if leaves:
            edits += _without(text, call.arguments, at, at + len(members))
        at += len(members)
    return edits


def _without(text: bytes, arguments: Sequence[Argument], begin: int, end: int) -> list[Edit]:
    """Remove the arguments from `begin` up to `end`, between others that stay."""
    lines = [_own_line(text, argument) for argument in arguments[begin:end]]
    if all(line is not None for line in lines):
        return [line for line in lines if line is not None]
    first, last = arguments[begin].whole, arguments[end - 1].whole
    if end < len(arguments):
        return [Edit(first.begin, arguments[end].whole.begin, "")]
    return [Edit(arguments[begin - 1].whole.end if begin else first.begin, last.end, "")]


def _own_line(text: bytes, argument: Argument) -> Edit | None:
    """Remove the whole lines of an argument, if only a comment shares them."""
    rest = re.compile(rb"[ \t]*,?[ \t]*(?:#[^\n]*)?\r?\n").match(text, argument.whole.end)
    if rest is None or _indent(text, argument.whole.begin) is None:
        return None
    return Edit(text.rfind(b"\n", 0, argument.whole.begin) + 1, rest.end(), "")


def _indent(text: bytes, at: int) -> str | None:
    """The white space before an offset, if nothing else precedes it on its line."""
    before = text[text.rfind(b"\n", 0, at) + 1 : at]
    return None if before.strip() else before.decode()


def _comma_after(text: bytes, begin: int, end: int) -> bool:
    """Whether a comma follows, comments aside."""
    return b"," in re.sub(rb"#[^\n]*", b"", text[begin:end])


# Parts of unstarve, put into the source.


def _wrapped(text: bytes, call: Call, pattern: str, by_hand: str) -> Edit:
    """Wrap the loader's dataset. Raises `NotPatchableError` if the call does not show it."""
    dataset = _given(call, "dataset")
    if dataset is None:
        raise NotPatchableError(f"the dataset of {call.function}(…) cannot be seen in the call; {by_hand}")
    return Edit(dataset.begin, dataset.end, pattern.format(_text(text, dataset)))


def _with_our_loader(text: bytes, call: Call, kind: str, by_hand: str) -> Edit:
    """Replace the loader's class by unstarve's. Raises `NotPatchableError` if that would change more."""
    begin, end = call.whole.begin, call.whole.begin + len(call.function.encode())
    if kind != "DataLoader" or not call.direct or text[begin:end] != call.function.encode():
        raise NotPatchableError(f"unstarve.DataLoader cannot replace {call.function}; {by_hand}")
    return Edit(begin, end, "unstarve.DataLoader")


def _imported(source: str) -> list[Edit]:
    """``import unstarve`` after the file's first imports, unless it is there."""
    body = ast.parse(source).body
    if any(_is_import_of_ours(node) for node in body):
        return []
    line = (
        _first_line(body[0]) if body else 1
    )  # after comments: the first two lines may be a shebang and an encoding
    for node in body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        begins_it = is_text or isinstance(node, ast.Import | ast.ImportFrom)
        if not begins_it and _first_line(node) >= line:
            break
        line = (node.end_lineno or node.lineno) + 1
    at = line_offset(source.encode(), line)
    newline = "\r\n" if "\r\n" in source else "\n"
    ended = newline if line > 1 and not source.encode()[:at].endswith((b"\n", b"\r")) else ""
    return [Edit(at, at, f"{ended}import unstarve{newline}")]


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _is_import_of_ours(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) and any(
        alias.name.split(".")[0] == "unstarve" and alias.asname is None for alias in node.names
    )
