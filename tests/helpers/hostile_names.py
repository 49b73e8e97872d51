"""Hostile names, and run files full of them."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

from run_files import slow_loading_run, write_run
from unstarve.record import format as f
from unstarve.record.chunks import Scan, chunk
from unstarve.record.writer import meta_chunk

STEERING = (
    "\x1b[2J\x1b[31m\x1b]0;owned\x07\x1b]8;;file:///etc/passwd\x1b\\",  # clears the screen, sets the title
    "\x9b31m\x90\x9d0;owned\x9c",  # the same in one byte each
    "\r\x08\x00\x7f\x0b\x0c\x1c\x85",  # goes back over what was written
    "\u202e\u2066\u200b\u200d\ufeff\u00ad\U000e0041",  # turns the line round, hides in it
    "\u2028\u2029\nsecond line\n| third |",
    "\ud800 \udc80",  # halves of a pair
)
"""Must never be printed unescaped."""
MARKUP = (
    "[red]x[/red]",
    "[/]",
    "[link=file:///etc/passwd]x[/link]",
    ":smile:",
    "</script><img src=x onerror=window.broken=1>",
    "<!--",
    "](javascript:alert(1))",
    "```\n# heading",
    "| a | b |",
    '"} 1\nfake_metric 2',
    "\\",
    "=cmd()",
    "{title}",
    "%s%n",
)
"""Markup of one output format or another."""
EVERYTHING = "".join(STEERING + MARKUP)

_WORDS = {"launch": ("kind", "host"), "end": ("stopped",)}
"""Texts that belong to the format itself, by META."""


def hostile_run(path: Path, name: str = EVERYTHING) -> Path:
    """A valid run file in which every text is its first letter followed by `name`."""
    write_run(path, slow_loading_run(30, workers=2))
    data = path.read_bytes()
    out = [data[: f.HEADER.size]]
    for stream, kind, row_size, payload in Scan(data, f.VERSION, f.HEADER.size):
        if kind == f.META:
            meta = json.loads(payload)
            is_process, is_worker = meta["meta"] == "process", meta.get("worker", False)
            out.append(_meta(stream, meta, name))
            if is_process:
                out += [_meta(stream, more, name) for more in _more(name, worker=is_worker)]
        else:
            out.append(chunk(stream, kind, payload, row_size))
    path.write_bytes(b"".join(out))
    return path


def unsafe(text: str) -> list[str]:
    """The characters of a text that would control a terminal or be invisible in it."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def _meta(stream: int, meta: dict[str, Any], name: str) -> bytes:
    kind = meta.pop("meta")
    changed = {key: one if key in _WORDS.get(kind, ()) else _hostile(one, name) for key, one in meta.items()}
    if kind == "sampled":
        changed["found"] = [
            [was[0], *row[1:]] for was, row in zip(meta["found"], changed["found"], strict=True)
        ]
    return meta_chunk(stream, kind, changed)


def _hostile(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return f"{value[:1]}{name}"
    if isinstance(value, dict):
        return {key: _hostile(held, name) for key, held in value.items()}
    return [_hostile(one, name) for one in value] if isinstance(value, list) else value


def _more(name: str, *, worker: bool) -> list[dict[str, Any]]:
    """What a training records beyond the minimum."""
    place = "fetch" if worker else "step"
    return [
        {"meta": "device", "name": "device", "rank": None},
        {"meta": "lost", "message": "lost"},
        {"meta": "sampled", "found": [[place, "function", "file", 3, True, False, 5.0]], "cpu_s": 5.0},
        {"meta": "transforms", "spent": [["transform", 3.0, 9]]},
        {"meta": "system", "cores": 4, "filesystems": {f"nfs{name}": 9}, "missing": ["why"]},
    ]
