"""W&B, MLflow and OpenTelemetry receive what a monitored loader measures: the real packages, offline."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import unstarve


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.0005)
        return torch.tensor(index)


def train(loader: Any) -> None:
    for _ in loader:
        pass


@pytest.mark.needs("wandb")
def test_wandb_takes_the_metrics_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path, project="unstarve") as run:
        train(unstarve.MonitoredDataLoader(DataLoader(Slow(), batch_size=4), log_interval=8, send=run.log))
        summary = dict(run.summary)
        assert run.step >= 16
    assert 0 < summary["data/wait_share"] <= 1
    assert summary["data/throughput"] > 0
    assert list(tmp_path.rglob("*.wandb"))


@pytest.mark.needs("mlflow")
def test_mlflow_keeps_a_series_of_each_metric(tmp_path: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.create_experiment("unstarve", artifact_location=str(tmp_path / "artifacts"))
    with mlflow.start_run(experiment_id=mlflow.get_experiment_by_name("unstarve").experiment_id) as run:
        loader = unstarve.MonitoredDataLoader(
            DataLoader(Slow(), batch_size=4), log_interval=8, send=mlflow.log_metrics
        )
        train(loader)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "data/wait_ms")
    assert [one.step for one in history] == [8, 16]
    assert all(one.value > 0 for one in history)


@pytest.mark.needs("opentelemetry.sdk")
def test_opentelemetry_observes_every_loader() -> None:
    from opentelemetry.metrics import Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    def observe(name: str) -> Any:
        return lambda options: [
            Observation(metric.value, dict(metric.labels))
            for metric in unstarve.current_metrics()
            if metric.name == name
        ]

    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("unstarve")
    meter.create_observable_counter("unstarve.wait", [observe("unstarve_wait_seconds_total")], unit="s")
    meter.create_observable_gauge("unstarve.stall_ratio", [observe("unstarve_stall_ratio")])
    train(unstarve.MonitoredDataLoader(DataLoader(Slow(), batch_size=4), log_interval=8, name="observed"))
    found = {
        metric.name: point
        for one in reader.get_metrics_data().resource_metrics
        for scope in one.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if point.attributes["loader"] == "observed"
    }
    assert found["unstarve.wait"].value > 0.01
    assert 0 < found["unstarve.stall_ratio"].value <= 1
