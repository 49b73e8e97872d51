"""`unstarve serve [DIR]`: the runs of a folder in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unstarve.errors import MissingExtraError


def serve(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder that the run files lie in. [default: this one]",
            show_default=False,
        ),
    ] = Path(),
    port: Annotated[
        int,
        typer.Option("--port", "-p", metavar="N", min=0, max=65535, help="Port; 0 takes any that is free."),
    ] = 5000,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on. One that other machines can reach asks for a token, which is part of "
            "the address that is printed.",
        ),
    ] = "127.0.0.1",
    token: Annotated[
        bool, typer.Option("--token", help="Ask for a token here, too: other users share this machine.")
    ] = False,
    max_upload: Annotated[
        int, typer.Option("--max-upload", metavar="MB", min=1, help="Largest run file that may be uploaded.")
    ] = 200,
) -> None:
    """Show the runs of a folder in a browser: list, open, compare, watch live, upload, delete.

    Runs until Ctrl-C. Nothing is sent anywhere; nothing but the folder's run files can be seen.
    """
    try:
        from unstarve.web.server import Wishes
        from unstarve.web.server import serve as serve_folder
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "unstarve":
            raise
        raise MissingExtraError("serving needs Starlette and uvicorn: pip install 'unstarve[web]'") from None

    def announce(address: str) -> None:
        typer.echo(f"unstarve: the runs of {folder.resolve()} are at {address} (Ctrl-C ends this)")
        if "token=" in address:
            typer.echo("unstarve: whoever has it can see and delete them; it is not encrypted", err=True)

    serve_folder(Wishes(folder, host, port, token, max_upload * 1_000_000), announce)
