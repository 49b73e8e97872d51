"""The nouns every stage shares: frozen data, standard library only.

``collect`` makes events, ``record`` stores them and gives a `Run` back, ``analyze`` turns a `Run`
into a `Diagnosis`, ``present`` shows it. All times named ``…_ns`` are readings of one monotonic clock
per machine; all named ``…_s`` and ``…_ms`` are durations; a ``share`` lies between 0 and 1.
``None`` always means *not known*, never zero.
"""

from __future__ import annotations

from unstarve.model.benched import Bar, Benchmark, Checked, Extra, Kind, Part, Promise, Way
from unstarve.model.causes import Cause, Phase, State
from unstarve.model.chart_data import (
    BatchStory,
    Doing,
    EpochBorder,
    Histogram,
    Lane,
    LaneKind,
    LaneSpan,
    Series,
    StepPoint,
    Views,
)
from unstarve.model.compared import Change, Comparison, Gate, LoadComparison, LoadLog, Row
from unstarve.model.device import GpuSummary, Reading, Stall
from unstarve.model.diagnosis import (
    Advice,
    Demand,
    Diagnosis,
    FunctionCost,
    Gain,
    Headroom,
    LoaderSummary,
    Overhead,
    Share,
    SlowSample,
    Spread,
    Throughput,
    Verdict,
)
from unstarve.model.forecasts import Forecast, Forecaster, Scenario, Setting, WhatIf
from unstarve.model.live import Live, LoaderNow, MemoryNow, RunState, Tail, TrainerNow, WorkerNow
from unstarve.model.memory import MemoryLine, MemorySummary
from unstarve.model.metrics import Metric, MetricKind
from unstarve.model.monitored import RegimeChange, Window
from unstarve.model.pulse import Pulse
from unstarve.model.recorded import (
    Batch,
    Crew,
    Epoch,
    Loader,
    Process,
    Received,
    Run,
    Sampled,
    Sent,
    TransformTime,
    Work,
)
from unstarve.model.saved import Place, SavedLoader, Span
from unstarve.model.shown import Shown
from unstarve.model.tried import (
    LoaderArguments,
    LoaderDiagnosis,
    ProfiledFunction,
    SampleCost,
    StartCost,
    Tried,
    WorkerSearch,
)
from unstarve.model.tuned import LoaderSettings, Trial, Tuning

__all__ = [
    "Advice",
    "Bar",
    "Batch",
    "BatchStory",
    "Benchmark",
    "Cause",
    "Change",
    "Checked",
    "Comparison",
    "Crew",
    "Demand",
    "Diagnosis",
    "Doing",
    "Epoch",
    "EpochBorder",
    "Extra",
    "Forecast",
    "Forecaster",
    "FunctionCost",
    "Gain",
    "Gate",
    "GpuSummary",
    "Headroom",
    "Histogram",
    "Kind",
    "Lane",
    "LaneKind",
    "LaneSpan",
    "Live",
    "LoadComparison",
    "LoadLog",
    "Loader",
    "LoaderArguments",
    "LoaderDiagnosis",
    "LoaderNow",
    "LoaderSettings",
    "LoaderSummary",
    "MemoryLine",
    "MemoryNow",
    "MemorySummary",
    "Metric",
    "MetricKind",
    "Overhead",
    "Part",
    "Phase",
    "Place",
    "Process",
    "ProfiledFunction",
    "Promise",
    "Pulse",
    "Reading",
    "Received",
    "RegimeChange",
    "Row",
    "Run",
    "RunState",
    "SampleCost",
    "Sampled",
    "SavedLoader",
    "Scenario",
    "Sent",
    "Series",
    "Setting",
    "Share",
    "Shown",
    "SlowSample",
    "Span",
    "Spread",
    "Stall",
    "StartCost",
    "State",
    "StepPoint",
    "Tail",
    "Throughput",
    "TrainerNow",
    "TransformTime",
    "Trial",
    "Tried",
    "Tuning",
    "Verdict",
    "Views",
    "Way",
    "WhatIf",
    "Window",
    "Work",
    "WorkerNow",
    "WorkerSearch",
]
