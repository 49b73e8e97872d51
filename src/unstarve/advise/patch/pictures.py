"""A call that makes a loader of an image folder, changed so that unstarve reads its pictures."""

from __future__ import annotations

import ast

from unstarve.advise.patch.adding import Edit
from unstarve.advise.patch.calls import Call, Written
from unstarve.errors import NotPatchableError

NOTE = (
    "unstarve reads the pictures then: the same files, order and targets; random crops are drawn from other"
    " generators, and pixels differ as two JPEG decoders do"
)
_BY_HAND = (
    "change it by hand to unstarve.DataLoader(unstarve.ImageFolderDataset.like(dataset), …), or use --apply"
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
    line = 1
    for node in body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        line = (node.end_lineno or node.lineno) + 1
    at = len("".join(source.splitlines(keepends=True)[: line - 1]).encode())
    newline = "\r\n" if "\r\n" in source else "\n"
    return [Edit(at, at, f"import unstarve{newline}")]


def _is_import_of_ours(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) and any(
        alias.name.split(".")[0] == "unstarve" and alias.asname is None for alias in node.names
    )
