"""A script that every new worker would run again."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from unstarve import words
from unstarve.checks.objects.loader_parts import report, start_method
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_GUARDS = ("__name__", "parent_process", "current_process")


def missing_main_guard(subject: Subject) -> Iterator[Finding]:
    """A loader that the main script iterates at module level, while its workers import that script."""
    loader = subject.loader
    method = start_method(loader)
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if loader.num_workers == 0 or method == "fork" or main is None or subject.file is None:
        return
    script = Path(main)
    if script.resolve() != Path(subject.file).resolve():
        return
    try:
        tree = ast.parse(script.read_text())
    except (OSError, SyntaxError, ValueError):
        return
    line = unguarded_iteration(tree, subject.name, subject.line)
    if line is not None:
        yield report(
            subject,
            "missing-main-guard",
            f"Line {line} of {script.name} iterates {subject.name} at module level, and"
            f" {words.workers(loader.num_workers)} start by {method}.",
            'if __name__ == "__main__":\n    main()  # with the training loop moved into main()',
            harm=1.0,
        )


def unguarded_iteration(tree: ast.Module, name: str, created: int | None) -> int | None:
    """The line that iterates loader `name` when the module is imported; None where that is not certain."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for statement in tree.body:
        if isinstance(statement, _DEFINITIONS) or _is_guarded(statement):
            continue
        if (line := _iterates(statement, name)) is not None:
            return line
        for call in ast.walk(statement):
            called = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
            body = functions.get(called)
            if body is None or created is None or not body.lineno <= created <= (body.end_lineno or 0):
                continue
            if _iterates(body, name) is not None:
                return statement.lineno
    return None


def _is_guarded(statement: ast.stmt) -> bool:
    tests = [node.test for node in ast.walk(statement) if isinstance(node, ast.If)]
    return any(word in ast.unparse(test) for test in tests for word in _GUARDS)


def _iterates(statement: ast.stmt, name: str) -> int | None:
    """The line of ``for … in name``, ``enumerate(name)`` or ``iter(name)``."""
    for node in ast.walk(statement):
        over = node.iter if isinstance(node, ast.For) else node if isinstance(node, ast.Call) else None
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.args:
            over = over.args[0] if over.func.id in ("iter", "enumerate", "tqdm") else None
        if isinstance(over, ast.Name) and over.id == name:
            return over.lineno
    return None
