"""The nouns every stage shares: frozen data, standard library only.

``collect`` makes events, ``record`` stores them and gives a `Run` back, ``analyze`` turns a `Run`
into a `Diagnosis`, ``present`` shows it. All times named ``…_ns`` are readings of one monotonic clock
per machine; all named ``…_s`` and ``…_ms`` are durations; a ``share`` lies between 0 and 1.
``None`` always means *not known*, never zero.
"""

from __future__ import annotations

from unstarve.model.bench_results import Bar, Benchmark, Checked, Extra, Kind, Part, Promise, Way
from unstarve.model.causes import Cause, Phase, State
from unstarve.model.compared import Change, Comparison, Gate, LoadComparison, LoadLog, Row
from unstarve.model.concluded import (
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
from unstarve.model.live_run import Live, LoaderNow, MemoryNow, RunState, Tail, TrainerNow, WorkerNow
from unstarve.model.loader_diagnosis import (
    LoaderArguments,
    LoaderDiagnosis,
    ProfiledFunction,
    SampleCost,
    StartCost,
    Tried,
    WorkerSearch,
)
from unstarve.model.monitoring import Metric, MetricKind, RegimeChange, Window
from unstarve.model.nouns import Shown
from unstarve.model.recorded import (
    Batch,
    Crew,
    Epoch,
    Loader,
    Process,
    Pulse,
    Reading,
    Received,
    Run,
    Sampled,
    Sent,
    Stall,
    TransformTime,
    Work,
)
from unstarve.model.resources import GpuSummary, MemoryLine, MemorySummary
from unstarve.model.saved import Place, SavedLoader, Span
from unstarve.model.series import Series, StepPoint
from unstarve.model.tuning import LoaderSettings, Trial, Tuning
from unstarve.model.views import BatchStory, Doing, EpochBorder, Histogram, Lane, LaneKind, LaneSpan, Views
from unstarve.model.whatif import Forecast, Forecaster, Scenario, Setting, WhatIf

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
