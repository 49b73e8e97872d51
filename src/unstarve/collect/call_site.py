"""The source line that creates a loader. Standard library only: it runs while torch is imported."""

from __future__ import annotations

import ast
import keyword
import linecache
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

_MOST_SOURCE = 1000
"""Longest call, in characters, that is worth printing again."""
_MOST_LINES = 100


def short(filename: str) -> str:
    """A path as people write it: relative if the file lies below the current folder."""
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except (ValueError, OSError):  # the file is elsewhere, or the current folder is gone
        return filename


def variable_name(filename: str, line: int) -> str | None:
    """The name that a source line assigns to: ``train_loader = DataLoader(…)``."""
    match = re.match(r"\s*(?:self\.)?(\w+)\s*(?::[^=]+)?=[^=]", linecache.getline(filename, line))
    return match.group(1) if match and not keyword.iskeyword(match.group(1)) else None  # else: loader = …


def iterated_name(filename: str, line: int) -> str | None:
    """The name that a loop on this line goes through: ``for step, x in enumerate(batches):``."""
    around = r"(?:(?:\w+\.)*(?:enumerate|islice|iter|tqdm|track|watch|zip)\()*"
    match = re.search(rf"\bfor .+? in {around}(?:self\.)?(\w+)\s*[),:]", linecache.getline(filename, line))
    return match.group(1) if match and not keyword.iskeyword(match.group(1)) else None


def call_source(filename: str, line: int, kind: str) -> str | None:
    """The call on this line that creates a loader of class `kind`, as written; None if it is not certain.

    Only the call is parsed: parsing the user's whole file could repeat its warnings.
    """
    lines = _lines(filename, line)
    if not lines:
        return None
    starts = _calls(lines[0], rf"(?:{re.escape(kind)}|DataLoader)") or _calls(lines[0], r"\w*Loader")
    starts = starts or [match.start() for match in re.finditer(r"super\(\)\.__init__\(", lines[0])]
    if len(starts) != 1:
        return None
    text = _up_to_closing([lines[0][starts[0] :], *lines[1:]])
    try:
        known = text is not None and len(text) <= _MOST_SOURCE
        made = known and isinstance(ast.parse(text or "", mode="eval").body, ast.Call)
    except (SyntaxError, ValueError):
        return None
    return text if made else None


def call_statement(filename: str, line: int, source: str) -> str:
    """What stands before the call that `call_source` found: ``train_loader = `` or ``return ``.

    Empty when the call is only a part of its statement.
    """
    before, _, _ = linecache.getline(filename, line).partition(source.partition("\n")[0])
    after = linecache.getline(filename, line + source.count("\n"))
    _, _, rest = after.partition(source.rpartition("\n")[2])
    simple = re.fullmatch(r"\s*(?:return|[\w.]+(?:\s*:[^=]+)?\s*=)\s*", before)
    return before.strip() + " " if simple and not rest.partition("#")[0].strip() else ""


def workers_option(filename: str, line: int) -> str | None:
    """The command-line option that the call on this line takes its number of workers from: ``--workers``.

    A call that does not say it itself (``create_loader(data, **options)``) has it from elsewhere in the file.
    """
    lines, whole = _lines(filename, line), "".join(linecache.getlines(filename))
    call = _up_to_closing(lines) if lines else None
    if call is None:
        return None
    given = re.findall(r"\bnum_workers\s*=\s*\w+\.(\w+)", call if "num_workers" in call else whole)
    names = "|".join({name.replace("_", "[-_]") for name in given}) or "$"
    options = set(re.findall(rf"['\"](--(?:{names}))['\"]", whole))
    return options.pop() if len(options) == 1 else None


def _lines(filename: str, line: int) -> list[str]:
    return linecache.getlines(filename)[line - 1 : line - 1 + _MOST_LINES] if line > 0 else []


def _calls(line: str, name: str) -> list[int]:
    """Where calls of this name begin, including the modules in front of it."""
    return [match.start() for match in re.finditer(rf"(?<![\w.])(?:\w+\.)*{name}(?:\[[^\]]*\])?\(", line)]


def _up_to_closing(lines: list[str]) -> str | None:
    """The text up to the bracket that closes the call: of the first pair, or of the one after ``super()``."""
    source: Iterator[str] = iter(lines)
    depth, pairs = 0, 2 if lines[0].startswith("super()") else 1
    try:
        for token in tokenize.generate_tokens(lambda: next(source, "")):
            if token.type == tokenize.OP and token.string in "()[]{}":
                depth += 1 if token.string in "([{" else -1
                pairs -= depth == 0 and token.string == ")"
                if pairs == 0:
                    row, column = token.end
                    return "".join([*lines[: row - 1], lines[row - 1][:column]])
    except (tokenize.TokenError, SyntaxError):
        return None
    return None
