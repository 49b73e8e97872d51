"""A Ray cluster on this machine, for tests: on loopback addresses, without a dashboard, ended in any case."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

_STARTED = "Ray runtime started"
_END_S = 10
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
_SHELL = 'mount --bind "$0" "$1" && shift && exec "$@"'


@contextmanager
def cluster(cpus: int) -> Iterator[str]:
    """Start a cluster of one node; its address. Ray replaces 127.0.0.1 by one that others can reach."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: sockets lie in it
    host, port = "127.0.0.2", _free_port()
    words = [
        "--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false",
        f"--ray-client-server-port={_free_port()}",
    ]  # fmt: skip
    try:
        with _node([], host, cpus, words):
            yield f"{host}:{port}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def second_node(address: str, theirs: Path, shown: Path) -> Iterator[None]:
    """Add a node to the cluster, to which the folder `theirs` is shown in place of another."""
    command = [*UNSHARE, "sh", "-c", _SHELL, str(theirs), str(shown)]
    with _node(command, "127.0.0.3", 1, [f"--address={address}"]):
        yield


UNSHARE = ["unshare", "-m" if os.geteuid() == 0 else "-rm"]
"""Runs a command with mounts of its own."""


def can_mount(folder: Path) -> bool:
    """Whether a process may have mounts of its own here."""
    try:
        tried = subprocess.run(
            [*UNSHARE, "sh", "-c", _SHELL, folder, folder, "true"], capture_output=True, check=False
        )
    except OSError:  # no such command
        return False
    return tried.returncode == 0


@contextmanager
def _node(before: Sequence[str], host: str, cpus: int, words: Sequence[str]) -> Iterator[None]:
    command = [
        *before, str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats",
        f"--node-ip-address={host}", "--object-store-memory=100000000", f"--num-cpus={cpus}", *words,
    ]  # fmt: skip
    with tempfile.TemporaryFile("w+") as log:
        node = subprocess.Popen(
            command,
            env=os.environ | QUIET | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert node.stdout is not None
        try:
            if not any(_STARTED in line for line in node.stdout):
                log.seek(0)
                raise AssertionError(log.read())
            yield
        finally:
            _end(psutil.Process(node.pid))
            node.wait()
            node.stdout.close()


def _end(node: psutil.Process) -> None:
    processes = [node, *node.children(recursive=True)]
    node.terminate()
    for left in psutil.wait_procs(processes, timeout=_END_S)[1]:
        left.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        return int(probe.getsockname()[1])
