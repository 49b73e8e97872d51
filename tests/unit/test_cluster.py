"""An address that no Ray cluster answers, and a Python without Ray, are told in one sentence."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from unstarve.cli import main
from unstarve.cluster import joined
from unstarve.errors import MissingExtraError, UsageError


@pytest.mark.parametrize(
    "words",
    [["merge", "a.unstarve"], ["pack", "folder", "none.packed"], ["bench"]],
    ids=lambda words: words[0],
)
def test_without_ray_the_extra_is_named(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as ended:
        main([*words, "--ray", "127.0.0.1:6379"])
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith('unstarve: --ray needs Ray: pip install "unstarve[ray]"')


def test_without_ray_the_callback_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r'needs Ray: pip install "unstarve\[ray\]"'):
        import unstarve.integrations.ray  # noqa: F401 # imported for what it says


@pytest.fixture
def with_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as an address is looked at."""
    for name in ("ray", "ray.exceptions"):
        monkeypatch.setitem(sys.modules, name, threading)  # any module


@pytest.mark.usefixtures("with_ray")
@pytest.mark.parametrize("address", ["somewhere", "10.0.0.1:", ":6379", "local", "ray://host", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="--ray takes the address of a running cluster"), joined(address):
        pass


@pytest.mark.usefixtures("with_ray")
def test_a_closed_port_is_no_cluster() -> None:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    for known in (address, f"ray://{address}"):
        with pytest.raises(UsageError, match=f"no Ray cluster answers at {known}"), joined(known):
            pass


@pytest.mark.usefixtures("with_ray")
@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH", b""])
def test_another_server_is_no_cluster(greeting: bytes) -> None:
    def serve() -> None:
        with closing(server.accept()[0]) as there:
            there.sendall(greeting)

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        serving = threading.Thread(target=serve)
        serving.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"at {address}"), joined(address):
            pass
        serving.join()
