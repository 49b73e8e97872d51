"""`unstarve pack SRC… DST`: many samples → one packed file; `--verify` checks one."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from unstarve.cli.examples import examples
from unstarve.cli.output_files import JsonTo, check_json, write_json
from unstarve.cli.ray_option import RayAddress
from unstarve.cluster import joined
from unstarve.errors import StoppedError, UsageError
from unstarve.machine import usable_cores
from unstarve.present.terminal.screen import screen
from unstarve.progress import progress
from unstarve.words import duration, printable, size

_MOST_JOBS = 8


@examples(
    (
        "Pack a folder of images, with its subfolders as labels:",
        "unstarve pack images/ train.packed --labels",
    ),
    ("Pack WebDataset's shards:", "unstarve pack 'shards/*.tar' train.packed"),
    ("Pack a dataset object:", "unstarve pack data.py:make_train train.packed"),
    ("Compare every checksum:", "unstarve pack --verify train.packed"),
)
def pack(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC… DST",
            help="What to pack, then the file to write. SRC is a folder, files or a pattern, or a dataset: "
            "MODULE:ATTRIBUTE or SCRIPT.py:ATTRIBUTE, the dataset itself or a function that makes it.",
            show_default=False,
        ),
    ],
    labels: Annotated[
        bool, typer.Option("--labels", help="Pack (content, label), with the sorted subfolders as labels.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Pack the bytes of every file, even of .pt, .npy and .safetensors.")
    ] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Processes that load samples; 0 chooses a number.")
    ] = 0,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", min=0, help="Seed for datasets with random transforms; each sample is seeded from it."
        ),
    ] = 0,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip samples that cannot be loaded, and say which.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace DST if it exists.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start over instead of resuming the last attempt.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Pack nothing: compare every checksum of the packed file DST.")
    ] = False,
    ray: RayAddress = None,
    json_to: JsonTo = None,
) -> None:
    """Pack many samples into one file, which `unstarve.PackedDataset` reads at the speed of the storage.

    Symbolic links are followed; the result counts those that lead out of SRC. Hidden files, and links back to
    a folder that contains them, are skipped. A broken link or a FIFO is an error unless --skip-bad skips it.

    After a stop or a kill, run the same command again to resume; DST appears only when it is complete.
    Without
    --raw, .pt and .npy files become tensors and arrays, .safetensors files dicts of tensors, and all others
    bytes.

    One sample is a key of WebDataset's .tar files (a dict by suffix), a row of the arrays of an .h5 file, or
    a row of a Hugging Face dataset: the folder that save_to_disk wrote, or .parquet files.

    With --ray, every node of a Ray cluster loads the samples of the files that it holds; DST is written here.


    Exit codes: 0 done, 1 --verify found damage, 2 bad input, 130 stopped from the keyboard.
    """
    check_json(json_to)
    console = screen(stderr=True)
    if verify:
        _verify(words, console, json_to)
        return
    if len(words) < 2:
        raise UsageError("pack needs a source and a file to write: unstarve pack SRC DST")
    from unstarve.fixes.datasets.packed.packing_job import PackOrder
    from unstarve.fixes.datasets.packed.packing_job import pack as pack_it

    order = PackOrder(
        tuple(words[:-1]), Path(words[-1]), labels=labels, raw=raw, seed=seed,
        jobs=jobs or min(usable_cores(), _MOST_JOBS), skip_bad=skip_bad, force=force, restart=restart,
    )  # fmt: skip
    begun = time.monotonic()
    with progress(console, "packed") as shown, nullcontext() if ray is None else joined(ray) as cluster:
        done = pack_it(order, shown, cluster)
    seconds = time.monotonic() - begun
    if json_to is not None:
        write_json(
            json_to,
            {
                "schema": "unstarve.pack/1",
                "path": words[-1],
                "samples": done.samples,
                "bytes": done.size_bytes,
                "seconds": round(seconds, 3),
                "resumed_from": done.resumed_from,
                "left_out": list(done.left_out),
                "links_outside": len(done.links.outside),
                "links_left_out": list(done.links.endless),
            },
        )
    else:
        left_out = f", {len(done.left_out)} skipped" if done.left_out else ""
        packed = f"{done.samples} samples, {size(done.size_bytes)}, in {duration(seconds)}{left_out}"
        typer.echo(f"{printable(words[-1])}: {packed}")
        _print_links(done.links.outside, "out of SRC", "followed")
        _print_links(done.links.endless, "back to a folder above", "skipped")


def _print_links(links: list[str], where: str, fate: str) -> None:
    if len(links) == 1:
        typer.echo(printable(f"1 link leads {where} and was {fate}: {links[0]}"))
    elif links:
        typer.echo(printable(f"{len(links)} links lead {where} and were {fate}; the first is {links[0]}"))


def _verify(words: list[str], console: Console, json_to: Path | None) -> None:
    if len(words) != 1:
        raise UsageError("--verify takes one packed file: unstarve pack --verify DST")
    from unstarve.fixes.datasets.packed.packed_contents import verify

    path = Path(words[0])
    try:
        with progress(console, "checked") as shown:
            found = verify(path, shown.reach)
    except KeyboardInterrupt:
        raise StoppedError("stopped before all samples were checked") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if json_to is not None:
        write_json(
            json_to,
            {
                "schema": "unstarve.verify/1",
                "path": words[0],
                "samples": found.samples,
                "bytes": found.size_bytes,
                "damaged": [{"sample": one.sample, "name": one.name} for one in found.damaged],
            },
        )
    else:
        for one in found.damaged:
            name = "" if one.name is None else f" ({printable(one.name)})"
            typer.echo(f"sample {one.sample}{name} is damaged: its checksum is wrong")
        count = len(found.damaged)
        outcome = f"{count} damaged" if count else "no damage found"
        typer.echo(f"{printable(str(path))}: {found.samples} samples, {size(found.size_bytes)}: {outcome}")
    if found.damaged:
        raise typer.Exit(1)
