"""``--ray``, for the verbs that can use a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Use the nodes of this Ray cluster: 10.0.0.1:6379, ray://10.0.0.1:10001, or auto.",
    ),
]
