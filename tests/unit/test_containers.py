"""The containers' files agree with each other, with the command line and with a server that runs."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tools.chroot_images import targets

from unstarve.cli.app import app, separate

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-a-test"
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of every build target, those of the targets it starts from first."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, (base, instructions) in targets().items():
        found[name] = [*found.get(base, []), ("FROM", base), *instructions]
    return found


STAGES = stages()


def last(stage: str, word: str) -> str:
    return [rest for instruction, rest in STAGES[stage] if instruction == word][-1]


def test_every_service_is_built_from_a_target_that_is_not_root() -> None:
    assert set(SERVICES) == {"benchmark", "perf-analysis", "webapp"}
    for service in SERVICES.values():
        assert int(last(service["build"]["target"], "USER")) > 0
        assert service["cap_drop"] == ["ALL"]
    assert {name: one["cap_add"] for name, one in SERVICES.items() if "cap_add" in one} == {
        "perf-analysis": ["PERFMON"]
    }


def test_images_from_elsewhere_are_pinned() -> None:
    bases = {base for stage in STAGES.values() for word, base in stage if word == "FROM"} - set(STAGES)
    (base,) = bases
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm", base)


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [rest.split()[:-1] for word, rest in STAGES["build"] if word == "COPY"]
    for name in (one for names in copied for one in names):
        assert (ROOT / name).exists()
        assert f"!{name}" in rules


@pytest.mark.parametrize("name", SERVICES)
def test_commands_parse(name: str) -> None:
    service = SERVICES[name]
    entry = service.get("entrypoint") or json.loads(last(service["build"]["target"], "ENTRYPOINT"))
    assert entry[-1] == "unstarve"
    parse(service["command"])


def parse(words: list[str]) -> dict[str, Any]:
    verb, *rest = separate(words)
    command: Any = typer.main.get_command(app)
    with command.commands[verb].make_context(verb, rest) as context:
        return dict(context.params)


def test_the_webapp_listens_where_the_port_is_published() -> None:
    service = SERVICES["webapp"]
    assert [one.rpartition(":")[2] for one in service["ports"]] == [last("webapp", "EXPOSE")] == ["5000"]
    for words in (service["command"], json.loads(last("webapp", "CMD"))):
        asked = parse(words)
        assert (asked["host"], asked["port"]) == ("0.0.0.0", 5000)
    assert ":?" in service["environment"]["UNSTARVE_SERVE_TOKEN"]


@pytest.fixture
def webapp(tmp_path: Path) -> Iterator[int]:
    """The port of the service's own command, started here on the folder of the test."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [str(tmp_path) if one == "/runs" else one for one in SERVICES["webapp"]["command"]]
    server = subprocess.Popen(
        [sys.executable, "-m", "unstarve", *words, "--port", str(port)],
        env={**os.environ, "UNSTARVE_SERVE_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout is not None
        assert TOKEN in server.stdout.readline()
        yield port
        server.terminate()


def is_healthy(port: int) -> bool:
    """Run the health check of the image, on another port."""
    check = last("webapp", "HEALTHCHECK").partition("CMD ")[2]
    assert " 5000," in check
    words = json.loads(check.replace(" 5000,", f" {port},"))
    assert words[0] == "python"
    return subprocess.run([sys.executable, *words[1:]], capture_output=True, check=False).returncode == 0


def test_the_health_check_tells_a_server_from_none(webapp: int) -> None:
    assert any(is_healthy(webapp) for _ in range(3))  # a busy machine may need Docker's retries, too
    with socket.socket() as unused:  # bound, so that nobody takes it, but not listening
        unused.bind(("127.0.0.1", 0))
        assert not is_healthy(unused.getsockname()[1])
