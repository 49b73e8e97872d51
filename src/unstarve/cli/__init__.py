"""The command line: one file per verb; errors become one sentence and an exit code."""

from __future__ import annotations

import os
import sys

from unstarve.errors import UnstarveError
from unstarve.words import printable


def main(argv: list[str] | None = None) -> None:
    """Entry point of the ``unstarve`` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a character the terminal lacks must not end a report
    from unstarve.cli.app import app, misplaced, separate

    arguments = separate(sys.argv[1:] if argv is None else argv)
    try:
        if (note := misplaced(arguments)) is not None:
            print(printable(f"unstarve: {note}"), file=sys.stderr, flush=True)
        app(args=arguments, prog_name="unstarve")
    except UnstarveError as error:
        print(printable(f"unstarve: {error}", 4000), file=sys.stderr)
        _forget_interrupts()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (`| head`) closed the pipe; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _forget_interrupts() -> None:
    """Exit with our own code, not by SIGINT: Python remembers a Ctrl-C inside exec(), even a caught one.

    Dataclasses call exec() on import. A call of exec() that succeeds clears the memory.
    """
    exec("")
