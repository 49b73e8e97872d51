"""From a profiler's file to a verdict, on files whose answer is known."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from profiler_files import event, training_trace, write_nsys, write_trace
from unstarve.api import diagnose, load_run, views_of
from unstarve.errors import ProfileError
from unstarve.importers.import_file import import_file
from unstarve.model import Cause, Diagnosis, State
from unstarve.model.profile import Profile
from unstarve.present.exports.markdown import markdown
from unstarve.present.page.html_page import report_page


def imported(file: Path) -> Diagnosis:
    run = file.parent / "imported.unstarve"
    import_file(file, run, lambda done: None, force=True)
    return diagnose(load_run(run))


def profile_in(d: Diagnosis) -> Profile:
    assert d.profile is not None
    return d.profile


def shares(d: Diagnosis) -> dict[Cause, float]:
    return {share.cause: round(share.share, 3) for share in d.budget}


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", ["t.pt.trace.json", "t.json.gz"])
def test_waits_of_a_trace_starve_the_gpu(tmp_path: Path, name: str, old: bool) -> None:
    d = imported(write_trace(tmp_path / name, training_trace(wait_ms=40, copy_ms=10, kernel_ms=50, old=old)))
    assert (d.verdict.state, d.verdict.cause) == (State.STARVED, Cause.UNKNOWN)
    assert d.verdict.headline.startswith("GPU 0 starved 40% of the time (the host waited 40%).")
    assert shares(d) == {Cause.COMPUTE: 0.5, Cause.UNKNOWN: 0.4, Cause.COPY: 0.1}
    assert d.wait_share == pytest.approx(0.4)
    assert d.steps == 6
    assert d.step_ms is not None
    assert d.step_ms.mean == pytest.approx(100)
    (device,) = profile_in(d).devices
    assert (device.busy_s, device.idle_s) == pytest.approx((0.36, 0.24))
    assert profile_in(d).gaps[0].host == "waiting for the loader"


def test_a_fed_training_is_called_fed(tmp_path: Path) -> None:
    d = imported(write_trace(tmp_path / "t.json", training_trace(wait_ms=1, copy_ms=1, kernel_ms=98)))
    assert (d.verdict.state, d.verdict.cause) == (State.FED, Cause.COMPUTE)


def test_a_fed_training_whose_gpu_waits_for_launches_says_so(tmp_path: Path) -> None:
    trace = [event("user_annotation", "ProfilerStep#0", 0, 4), event("cpu_op", "aten::mul", 0, 4)]
    trace += [event("kernel", "tiny", 0.04 * n, 0.01, device=0) for n in range(100)]
    d = imported(write_trace(tmp_path / "t.json", trace))
    assert (d.verdict.state, d.verdict.cause) == (State.FED, Cause.HOST)
    assert d.verdict.headline.endswith("the host launches its short kernels too late.")


def test_operators_have_their_own_time_and_their_kernels(tmp_path: Path) -> None:
    d = imported(write_trace(tmp_path / "t.json", training_trace()))
    by_name = {one.name: one for one in profile_in(d).operators}
    outer, inner = by_name["aten::outer"], by_name["aten::mm"]
    assert (outer.calls, outer.seconds, outer.self_s) == (6, pytest.approx(0.06), pytest.approx(0.036))
    assert (inner.self_s, inner.device_s) == (pytest.approx(0.024), pytest.approx(0.3))
    assert profile_in(d).kernels[0].name == "void gemm<float>(…)"


def test_a_trace_without_a_gpu_is_judged_by_its_waits(tmp_path: Path) -> None:
    trace = training_trace()
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") not in ("kernel", "gpu_memcpy")]
    d = imported(write_trace(tmp_path / "t.json", trace))
    assert d.device == "cpu"
    assert d.verdict.headline.startswith("Training waits for data 42% of the time.")


def test_an_export_whose_gpu_mostly_copies_is_copy_bound(tmp_path: Path) -> None:
    d = imported(write_nsys(tmp_path / "x.sqlite", loader=False))
    assert (d.verdict.state, d.verdict.cause) == (State.STARVED, Cause.COPY)
    assert "copy-bound" in d.verdict.headline
    (copy,) = profile_in(d).copies
    assert (copy.kind, copy.memory, copy.count) == ("HtoD", "pinned", 6)
    (call,) = profile_in(d).calls
    assert (call.name, call.process, call.calls) == ("read", 8, 6)


def test_nvtx_ranges_of_the_loader_are_waits(tmp_path: Path) -> None:
    d = imported(write_nsys(tmp_path / "x.sqlite"))
    assert d.steps == 6
    assert d.wait_share == pytest.approx(0.2, abs=0.01)


def test_ranges_that_unstarve_marks_are_the_phases(tmp_path: Path) -> None:
    marked = (("unstarve.step", 0, 100), ("unstarve.forward", 20, 40), ("unstarve.backward", 40, 70),
              ("unstarve.optimizer", 75, 90))  # fmt: skip
    profile = profile_in(imported(write_nsys(tmp_path / "x.sqlite", ranges=marked)))
    assert profile.steps == 6
    phases = {phase.name: round(phase.seconds / 6 * 1e3, 6) for phase in profile.phases}
    assert phases == {"data": 20, "copy": 0, "forward": 20, "backward": 30, "optimizer": 15, "other": 15}
    on_device = {phase.name: phase.device_s for phase in profile.phases if phase.device_s}
    assert on_device == {"forward": pytest.approx(0.03)}  # its kernels were launched at 30 ms


def test_the_question_at_the_end_of_an_epoch_is_not_a_step(tmp_path: Path) -> None:
    marked = (("unstarve.step", 0, 50), ("unstarve.step", 60, 80), ("unstarve.data", 60, 80))
    assert profile_in(imported(write_nsys(tmp_path / "x.sqlite", ranges=marked))).steps == 6


@pytest.mark.parametrize(
    "left_out",
    [
        "META_DATA_EXPORT",
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "NVTX_EVENTS",
        "OSRT_API",
    ],
)
def test_missing_tables_are_no_error(tmp_path: Path, left_out: str) -> None:
    d = imported(write_nsys(tmp_path / "x.sqlite", tables=(left_out,)))
    assert d.wall_s > 0
    assert sum(share.share for share in d.budget) == pytest.approx(1)


def test_every_view_of_an_imported_run_is_made(tmp_path: Path) -> None:
    d = imported(write_trace(tmp_path / "t.json", training_trace()))
    run = load_run(tmp_path / "imported.unstarve")
    assert "GPU 0 starved" in markdown(d)
    assert report_page(d, views_of(run)).startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b"", "is empty"),
        ("a.json", b"hello", "neither an nsys SQLite export nor a torch.profiler trace"),
        ("a.nsys-rep", b"\x00\x01", "nsys export --type sqlite"),
        ("a.sqlite.gz", b"\x1f\x8b\x00", "unpack it first"),
        ("a.sqlite", b"SQLite format 3\x00" + b"\xff" * 200, "cannot be read as an SQLite database"),
        ("a.json", json.dumps({"traceEvents": []}).encode(), "not one of torch.profiler"),
        ("a.json", json.dumps([event("kernel", "k", 0, 0)]).encode(), "records nothing"),
    ],
)
def test_other_files_are_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ProfileError, match=said):
        import_file(file, tmp_path / "r.unstarve", lambda done: None)
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_two_thousand_damaged_files_are_imported_or_refused(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.json", training_trace(steps=3)).read_bytes()
    export = write_nsys(tmp_path / "x.sqlite", steps=3).read_bytes()
    rng, outcomes = random.Random(1), set[str]()
    for number in range(2000):
        data = bytearray(trace if number % 2 else export)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        if number % 7 == 0:
            del data[rng.randrange(len(data)) :]
        file = tmp_path / "damaged"
        file.write_bytes(data)
        try:
            imported(file)
            outcomes.add("imported")
        except ProfileError as error:
            outcomes.add("one line" if "\n" not in str(error) else str(error))
    assert outcomes == {"imported", "one line"}
