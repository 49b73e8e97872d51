"""Validate JSON against a schema of draft 4, as far as SARIF's needs it: an unknown keyword is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
_SAYS_NOTHING = {"$schema", "id", "definitions", "format"}


def violations(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> Iterator[str]:
    """What is wrong with a value, one sentence each."""
    for keyword, given in schema.items():
        match keyword:
            case "$ref":
                name = given.removeprefix("#/definitions/")
                yield from violations(value, root["definitions"][name], root, at)
            case "type":
                kinds = [given] if isinstance(given, str) else given
                if not any(_is(value, kind) for kind in kinds):
                    yield f"{at} is no {given}"
                    return
            case "enum":
                if value not in given:
                    yield f"{at} is none of {given}"
            case "anyOf" | "oneOf":
                fits = sum(not list(violations(value, one, root, at)) for one in given)
                if fits == 0 or (keyword == "oneOf" and fits > 1):
                    yield f"{at} fits {fits} of {keyword}"
            case "required":
                yield from (f"{at} has no {name}" for name in given if name not in value)
            case "properties":
                known = {name: given[name] for name in value if name in given}
                for name, one in known.items():
                    yield from violations(value[name], one, root, f"{at}.{name}")
            case "additionalProperties":
                for name in [] if given is True else value.keys() - schema.get("properties", {}).keys():
                    unknown = [f"{at} may have no {name}"]
                    inner = (
                        unknown if given is False else violations(value[name], given, root, f"{at}.{name}")
                    )
                    yield from inner
            case "items":
                for place, one in enumerate(value):
                    yield from violations(one, given, root, f"{at}[{place}]")
            case "minItems":
                if len(value) < given:
                    yield f"{at} has fewer than {given} items"
            case "uniqueItems":
                if given and any(one in value[:place] for place, one in enumerate(value)):
                    yield f"{at} has an item twice"
            case "minimum":
                if value < given:
                    yield f"{at} is less than {given}"
            case "maximum":
                if value > given:
                    yield f"{at} is more than {given}"
            case "pattern":
                if not re.search(given, value):
                    yield f"{at} does not match {given}"
            case _:
                if keyword not in _SAYS_NOTHING:
                    raise NotImplementedError(f"{keyword} of {at}")


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
