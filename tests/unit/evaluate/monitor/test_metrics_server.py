"""A running training is scraped over HTTP and read with Prometheus' own parser."""

from __future__ import annotations

import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import unstarve
from sample_loaders import numbered
from unstarve.errors import MissingExtraError, UsageError
from unstarve.evaluate.monitor import meter
from unstarve.model import MetricKind

LONGEST_S = 60.0


@pytest.fixture(autouse=True)
def no_other_loaders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_totals", {})


@pytest.fixture
def server() -> Iterator[str]:
    with unstarve.serve_metrics(port=0) as running:
        yield running.url


def scrape(url: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    with urllib.request.urlopen(url, timeout=LONGEST_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    return {
        family.name: {tuple(sorted(s.labels.items())): s.value for s in family.samples}
        for family in text_string_to_metric_families(text)
    }


def test_a_scrape_tells_what_was_delivered(server: str) -> None:
    assert scrape(server) == {}
    loader = unstarve.MonitoredDataLoader(numbered(batches=6, size=4), 2, name='a "hostile"\nname')
    list(loader)
    labels = (("loader", 'a "hostile"\nname'), ("rank", "0"))
    found = scrape(server)
    assert found["unstarve_batches"] == {labels: 6.0}
    assert found["unstarve_samples"] == {labels: 24.0}
    assert found["unstarve_wait_seconds"][("cause", "unknown"), *labels] > 0
    assert 0 <= found["unstarve_stall_ratio"][labels] <= 1
    list(loader)
    assert scrape(server)["unstarve_batches"] == {labels: 12.0}


def test_a_loader_made_anew_goes_on_counting() -> None:
    for _ in range(2):
        list(unstarve.MonitoredDataLoader(numbered(batches=3), name="train"))
    (batches,) = (m for m in unstarve.current_metrics() if m.name == "unstarve_batches_total")
    assert (batches.value, batches.kind) == (6, MetricKind.COUNTER)


def test_the_rank_is_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    list(unstarve.MonitoredDataLoader(numbered(), name="train"))
    assert {metric.labels["rank"] for metric in unstarve.current_metrics()} == {"3"}


def test_only_the_metrics_are_served(server: str) -> None:
    for path in ("/etc/passwd", "/metrics/x"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(server.replace("/metrics", path), timeout=LONGEST_S)
        assert refused.value.code == 404
        refused.value.close()


def test_a_scraper_that_goes_away_disturbs_nobody(server: str, capfd: pytest.CaptureFixture[str]) -> None:
    host, port = server.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=LONGEST_S) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
    with socket.create_connection((host, int(port)), timeout=LONGEST_S) as connection:
        connection.sendall(b"\x00nonsense\r\n\r\n")
    assert scrape(server) == {}
    assert capfd.readouterr().err == ""


def test_closing_frees_the_port_and_may_be_done_twice() -> None:
    server = unstarve.serve_metrics(port=0)
    assert server.url in repr(server)
    socket_of = server._server.socket
    assert socket_of.fileno() >= 0
    server.close()
    server.close()
    assert socket_of.fileno() == -1
    assert not server._thread.is_alive()


def test_a_port_that_is_taken_is_named(server: str) -> None:
    port = int(server.split(":")[2].split("/")[0])
    with pytest.raises(UsageError, match=f"127.0.0.1:{port}"):
        unstarve.serve_metrics(port=port)
    with pytest.raises(UsageError, match="port must be from 0"):
        unstarve.serve_metrics(port=-1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # the point of it
def test_a_forked_worker_does_not_hold_the_port() -> None:
    with unstarve.serve_metrics(port=0) as server:
        child = os.fork()
        if child == 0:
            os._exit(0 if server._server.socket.fileno() == -1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert server._server.socket.fileno() >= 0


def test_a_textfile_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "unstarve.prom"
    target.write_text("old")
    list(unstarve.MonitoredDataLoader(numbered(), name="train"))
    unstarve.write_metrics(target)
    names = {family.name for family in text_string_to_metric_families(target.read_text())}
    assert "unstarve_wait_seconds" in names
    assert [path.name for path in tmp_path.iterdir()] == ["unstarve.prom"]
    with pytest.raises(UsageError, match="cannot write"):
        unstarve.write_metrics(target / "below")


def test_without_the_client_library_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'unstarve\[prometheus\]'"):
        unstarve.serve_metrics(port=0)
    with pytest.raises(MissingExtraError, match=r"pip install 'unstarve\[prometheus\]'"):
        unstarve.write_metrics(tmp_path / "unstarve.prom")
    assert list(tmp_path.iterdir()) == []
    assert unstarve.current_metrics() == ()
