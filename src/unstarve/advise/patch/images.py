"""A call that makes a loader of an image folder, changed so that unstarve reads its images."""

from __future__ import annotations

import ast

from unstarve.advise.patch.adding import Edit
from unstarve.advise.patch.calls import Call, Written, line_offset
from unstarve.errors import NotPatchableError

NOTE = (
    "unstarve reads the images then: the same files, order and targets; random crops are drawn from other"
    " generators, and pixels differ as two JPEG decoders do"
)
_BY_HAND = (
    "change it by hand to unstarve.DataLoader(unstarve.ImageFolderDataset.like(dataset), …), or use --save"
    " and run --with"
)


def wrapped(text: bytes, call: Call, kind: str, dataset: Written | None) -> list[Edit]:
    """The loader becomes unstarve's, and its dataset what unstarve makes of it.

    Raises `NotPatchableError` where that would change more than this: a loader class of the user's own.
    """
    begin, end = call.whole.begin, call.whole.begin + len(call.function.encode())
    if kind != "DataLoader" or not call.direct or text[begin:end] != call.function.encode():
        raise NotPatchableError(f"unstarve.DataLoader cannot take the place of {call.function}; {_BY_HAND}")
    if dataset is None:
        raise NotPatchableError(
            f"where {call.function}(…) gets its dataset from is not to be seen; {_BY_HAND}"
        )
    own = text[dataset.begin : dataset.end].decode()
    return [
        Edit(begin, end, "unstarve.DataLoader"),
        Edit(dataset.begin, dataset.end, f"unstarve.ImageFolderDataset.like({own})"),
    ]


def imported(source: str) -> list[Edit]:
    """``import unstarve`` behind the imports that the file begins with, unless it is there."""
    body = ast.parse(source).body
    if any(_is_import_of_ours(node) for node in body):
        return []
    line = _first_line(body[0]) if body else 1  # behind comments: the first two lines may be for the system
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
