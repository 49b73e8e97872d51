"""``%load_ext unstarve``: a cell that begins with ``%%unstarve`` is recorded and followed by its verdict."""

from __future__ import annotations

import argparse
import ast
import shlex
from typing import Any

from unstarve.errors import UsageError
from unstarve.evaluate.record_block import Recording, recording
from unstarve.launch.hooks import attach
from unstarve.model import Diagnosis

_VARIABLE = "_unstarve"


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython's ``%load_ext unstarve``."""
    attach()  # now, so that reports can name loaders that are created before a recorded cell
    shell.register_magic_function(lambda line, cell: _record(shell, line, cell), "cell", "unstarve")


def _record(shell: Any, line: str, cell: str) -> None:
    """Record the loaders that this cell iterates, then show the diagnosis.

    %%unstarve [-o RUN] [--quiet]

    -o RUN keeps the run file; --quiet shows nothing. The diagnosis is in the variable _unstarve afterwards.
    """
    options = _options(line)
    recorded: Recording | None = None
    try:
        with recording(options.output) as recorded:
            _run(shell, cell)
    finally:  # an interrupted cell has a verdict, too
        if recorded is not None and recorded.done:
            shell.user_ns[_VARIABLE] = recorded.diagnosis
            if not options.quiet:
                _display(recorded.diagnosis)


def _display(diagnosis: Diagnosis) -> None:
    from IPython.display import display

    display(diagnosis)  # type: ignore[no-untyped-call]  # untyped in IPython


def _run(shell: Any, cell: str) -> None:
    """Run the cell as IPython would: show its last expression, let its exceptions out."""
    source = shell.transform_cell(cell)
    # The file name by which tracebacks and reports find the cell's source.
    name = shell.compile.cache(source, shell.execution_count)
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
    body = tree.body
    shown = [body.pop()] if body and isinstance(body[-1], ast.Expr) and not _is_silenced(source) else []
    exec(shell.compile(tree, name, "exec"), shell.user_ns)
    if shown:
        exec(shell.compile(ast.Interactive(shown), name, "single"), shell.user_ns)


def _is_silenced(source: str) -> bool:
    return source.rstrip().endswith(";")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"%%unstarve: {message}; it takes -o RUN and --quiet")


def _options(line: str) -> argparse.Namespace:
    parser = _Parser(prog="%%unstarve", add_help=False)
    parser.add_argument("-o", "--output")
    parser.add_argument("-q", "--quiet", action="store_true")
    return parser.parse_args(shlex.split(line))
