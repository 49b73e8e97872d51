"""A source with the arguments of some of its calls changed, and not one other character.

Calls are found by parsing; the change itself is made in the text, so that comments, formatting and line ends
stay as they are by construction.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unstarve.advise.patch.adding import Edit, added, removed
from unstarve.advise.patch.calls import Argument, Call, Calls, Written, line_offset, read_calls
from unstarve.advise.patch.images import NOTE, imported, wrapped
from unstarve.advise.patch.wish import Wish
from unstarve.errors import NotPatchableError
from unstarve.model.saved import IMAGES, NEED_WORKERS, POSITIONS, Setting

_DEFAULTS: Mapping[str, Setting] = {
    "num_workers": 0,
    "prefetch_factor": 2,
    "persistent_workers": False,
    "pin_memory": False,
    "in_order": True,
}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A source after the change."""

    source: str
    notes: tuple[str, ...]
    """What the reader of the change should know, in sentences."""


def rewrite(source: str, wishes: Sequence[Wish]) -> Rewritten:
    """The source with all wishes fulfilled. Raises `NotPatchableError`, saying why, when one cannot be."""
    text = source.encode()
    calls = read_calls(source)
    edits: list[Edit] = []
    notes: list[str] = []
    for wish in wishes:
        call = _made_by(text, calls, wish)
        settings = dict(wish.settings)
        images = settings.pop(IMAGES, False)
        found, said = _edits(text, call, settings)
        if images:
            found += wrapped(text, call, wish.kind, _given(call, "dataset"))
            said.append(NOTE)
        edits += found
        notes += [f"line {wish.place.line}: {note}" for note in said]
    if any(wish.settings.get(IMAGES) for wish in wishes):
        edits += imported(source)
    for edit in sorted(edits, key=lambda edit: (edit.begin, edit.end), reverse=True):
        text = text[: edit.begin] + edit.text.encode() + text[edit.end :]
    changed = text.decode()
    try:
        ast.parse(changed)
    except SyntaxError as error:
        raise NotPatchableError(f"with the change it would no longer be Python: {error.msg}") from error
    return Rewritten(changed, tuple(notes))


def _made_by(text: bytes, calls: Calls, wish: Wish) -> Call:
    """The call that made the loader: by where it ends, which no two calls share, else by its line."""
    span = wish.place.span
    if span is not None:
        end = line_offset(text, span.end_line) + span.end_column
        for node, written in calls.found:
            if written.end == end:
                return calls.call(node, wish.kind)
        raise NotPatchableError("there is no call where the loader was made")
    found = []
    for node, written in calls.found:
        if len((text[: written.begin] + b"x").splitlines()) == wish.place.line:
            try:
                found.append(calls.call(node, wish.kind))
            except NotPatchableError:
                continue
    if len(found) != 1:
        raise NotPatchableError(f"line {wish.place.line} has {len(found)} calls that make loaders")
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
        edits += removed(text, call, gone) + _unset(kept)
    return edits + _add(text, kept, missing, without_workers), notes


def _given(call: Call, name: str) -> Written | None:
    """Where the value of an argument is written, if it is."""
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
    """What torch refuses without workers and is not a keyword: as if it had not been given."""
    found = [(_given(call, name), value) for name, value in NEED_WORKERS.items()]
    return [Edit(given.begin, given.end, repr(value)) for given, value in found if given is not None]


def _add(text: bytes, call: Call, missing: dict[str, Setting | None], without_workers: bool) -> list[Edit]:
    """Arguments that are not written yet."""
    hidden = [one for one in call.arguments if one.star == "**" and one.entries is None]
    listed = any(one.star == "*" for one in call.arguments)
    if missing and listed:
        raise NotPatchableError(
            f"{' and '.join(missing)} may be hidden in the * of {call.function}(…); set it where that is made"
        )
    if hidden:
        if without_workers:
            missing |= {name: NEED_WORKERS[name] for name in ("prefetch_factor", "persistent_workers")}
        if missing and len(hidden) > 1:
            raise NotPatchableError(f"any ** of {call.function}(…) may hold {' and '.join(missing)}")
        return [_overriding(text, hidden[0], missing)] if missing else []
    new = {name: value for name, value in missing.items() if value != _DEFAULTS.get(name)}
    return added(text, call, new) if new else []


def _overriding(text: bytes, options: Argument, values: Mapping[str, Setting | None]) -> Edit:
    """``**{**options, "num_workers": 8}``: right whether or not the options have the name already."""
    items = "".join(f', "{name}": {value!r}' for name, value in values.items())
    return Edit(options.value.begin, options.value.end, f"{{**{_text(text, options.value)}{items}}}")


def _replaced(name: str, before: str) -> list[str]:
    """Say so when what goes away was more than a number."""
    try:
        ast.literal_eval(before)
    except (ValueError, SyntaxError):
        return [f"{name} was {' '.join(before.split())}, which no longer decides it"]
    return []


def _text(text: bytes, written: Written) -> str:
    return text[written.begin : written.end].decode()
