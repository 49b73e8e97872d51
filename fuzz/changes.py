"""Changes to bytes and to JSON values, drawn from a `Random`: the same ones for the same seed."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

NUMBERS = (
    0, 1, -1, 2, 7, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
    2**53 + 1, 10**18, 2**62, 2**63 - 1, -(2**63), 2**64 - 1, 10**30, 10**400,
)  # fmt: skip
"""Where widths, signs and sums of sizes end."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0.5, -0.0, 1e308, -1e308, float("nan"), float("inf"), "", "0", "x" * 5000, "\ud800",
    "\0", "\x1b]0;title\x07\x1b[2J", "</script><img src=x onerror=alert(1)>", "../../etc/passwd", [], [[]],
    {}, {"": None}, [0] * 1000, {"meta": "launch"},
)  # fmt: skip


def bytes_changed(data: bytes, other: bytes, random: Random) -> bytes:
    """The bytes with one to four changes; some of them come from `other`."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        _change_once(changed, other, random)
    return bytes(changed)


def _change_once(data: bytearray, other: bytes, random: Random) -> None:
    # Half of the changes are near the front, where headers are.
    at = random.randrange(len(data) + 1)
    if random.random() < 0.5:
        at = min(at, random.randrange(600))
    match random.randrange(7):
        case 0:
            data[at : at + 1] = bytes([random.randrange(256)])
        case 1 if at < len(data):
            data[at] ^= 1 << random.randrange(8)
        case 2:
            width = random.choice((1, 2, 4, 8))
            value = random.choice(NUMBERS) % (1 << 8 * width)
            data[at : at + width] = value.to_bytes(width, random.choice(("little", "big")))
        case 3:
            del data[at : at + random.randint(1, 40)]
        case 4:
            data[at:at] = data[at : at + random.randint(1, 200)]
        case 5:
            start = random.randrange(len(other) + 1)
            data[at:at] = other[start : start + random.randint(1, 100)]
        case _:
            del data[random.randrange(len(data) + 1) :]


def json_changed(value: Any, random: Random) -> Any:
    """A copy of a JSON value with one or two of its parts replaced, removed, renamed or repeated."""
    changed = [copy.deepcopy(value)]
    for _ in range(random.randint(1, 2)):
        places = list(_places(changed))
        holder, key = random.choice(places)
        match random.randrange(5):
            case 0 if holder is not changed:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[random.choice(["", "meta", f"{key}2"])] = holder.pop(key)
            case 2:
                holder[key] = [holder[key]] * random.choice((1, 2, 300))
            case _:
                holder[key] = random.choice((random.choice(NUMBERS), random.choice(VALUES)))
    return changed[0] if changed else None


def _places(holder: Any) -> list[tuple[Any, Any]]:
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    found = []
    for key in keys:
        found.append((holder, key))
        if isinstance(holder[key], (dict, list)):
            found += _places(holder[key])
    return found


def json_text(value: Any) -> bytes:
    """The value as JSON; lone surrogates are escaped, numbers are as long as they are."""
    return json.dumps(value, separators=(",", ":")).encode()


def deep_json(depth: int) -> bytes:
    """Lists inside of lists."""
    return b"[" * depth + b"]" * depth
