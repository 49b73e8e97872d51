"""`unstarve serve [DIR]`: the runs of a folder in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unstarve.cli.examples import examples
from unstarve.errors import MissingExtraError, UsageError
from unstarve.words import printable

TOKEN_VARIABLE = "UNSTARVE_SERVE_TOKEN"


@examples(
    ("Serve the runs of a folder on port 5000:", "unstarve serve runs/"),
    ("Let other machines connect, with the printed token:", "unstarve serve runs/ --host 0.0.0.0"),
    ("Let the system choose a free port:", "unstarve serve --port 0"),
)
def serve(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder with the run files. [default: the current one]",
            show_default=False,
        ),
    ] = Path(),
    port: Annotated[
        int,
        typer.Option("--port", "-p", metavar="N", min=0, max=65535, help="Port; 0 picks a free one."),
    ] = 5000,
    host: Annotated[
        str,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on; 0.0.0.0 means all."),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            envvar=TOKEN_VARIABLE,
            help="Require this token. Other users can see options in the process list: prefer the variable. "
            "[default: a new one at every start]",
            show_default=False,
        ),
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token",
            help="Require no token; loopback addresses only. Anyone logged in on this machine can then view, "
            "add and delete runs.",
        ),
    ] = False,
    max_upload: Annotated[
        int,
        typer.Option("--max-upload", metavar="MB", min=1, help="Largest run file to accept."),
    ] = 200,
    max_time: Annotated[
        int, typer.Option("--max-time", metavar="S", min=1, help="Longest time to analyse one run.")
    ] = 120,
    max_memory: Annotated[
        float | None,
        typer.Option(
            "--max-memory",
            metavar="GB",
            min=1,
            help="Most memory to analyse one run. [default: a share of what is free]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the runs of a folder in a browser: list, open, compare, watch live, upload, delete.

    Runs until Ctrl-C. Open the printed address: it contains a token, without which nobody sees anything.
    Nothing leaves this machine, and only the folder's run files can be seen.
    """
    try:
        from unstarve.web.guard import ServerAccess
        from unstarve.web.job_pool import JobLimits
        from unstarve.web.server import ServeOptions, address_of
        from unstarve.web.server import serve as serve_folder
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "unstarve":
            raise
        raise MissingExtraError("`serve` needs Starlette and uvicorn: pip install 'unstarve[web]'") from None

    def announce(access: ServerAccess) -> None:
        where = printable(str(folder.resolve()))
        typer.echo(f"unstarve: serving the runs of {where} at {address_of(access)} (Ctrl-C to stop)")
        if access.token is None:
            typer.echo(
                "unstarve: no token: anyone logged in on this machine can view and delete runs",
                err=True,
            )
        elif not access.is_local:
            typer.echo(
                "unstarve: anyone with this URL can view and delete runs; the connection is not encrypted",
                err=True,
            )

    if no_token and token is not None:
        raise UsageError(f"give --no-token or a token ({TOKEN_VARIABLE} or --token), not both")
    memory_bytes = None if max_memory is None else int(max_memory * 10**9)
    jobs = JobLimits(max_time, memory_bytes)
    serve_folder(
        ServeOptions(folder, host, port, token, not no_token, max_upload * 1_000_000, jobs), announce
    )
