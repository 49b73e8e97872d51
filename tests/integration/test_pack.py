"""`unstarve pack` as people use it: what goes in comes out, and nothing is lost on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from same_batches import same
from unstarve import PackedDataset
from unstarve.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


Pack = Callable[..., Done]


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pack:
    """Run `unstarve pack` in this process, in the test's folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str | Path) -> Done:
        monkeypatch.setattr(sys, "path", sys.path[:])
        sys.modules.pop("data", None)  # every test has one of its own
        with pytest.raises(SystemExit) as end:
            main(["pack", *map(str, words)])
        told = capsys.readouterr()
        return Done(int(end.value.code or 0), told.out, told.err)

    return run


def one_sentence(done: Done) -> str:
    assert done.code == 2
    assert done.out == ""
    (line,) = done.err.strip().splitlines()
    assert line.startswith("unstarve: ")
    return line


def write_arrays(folder: Path, count: int = 40) -> list[np.ndarray[Any, Any]]:
    folder.mkdir(parents=True)
    arrays = [np.random.default_rng(i).random((4, 5), np.float32) for i in range(count)]
    for i, array in enumerate(arrays):
        np.save(folder / f"{i:03}.npy", array)
    return arrays


SCRIPT = """
import numpy, pathlib, random, torch

class Pairs(torch.utils.data.Dataset):
    classes = ["cat", "dog"]
    def __len__(self): return 50
    def __getitem__(self, i): return torch.full((3, 4), float(i)), i % 2

class Texts:
    def __len__(self): return 50
    def __getitem__(self, i): return {"ids": torch.arange(i % 5), "text": f"line {i}", "score": i / 3}

class Random(Pairs):
    def __getitem__(self, i): return torch.rand(3), random.random(), numpy.random.rand(2)

class Broken(Pairs):
    def __getitem__(self, i):
        if i == 37: raise ValueError("no such image")
        return i

class Shaky(Pairs):
    def __getitem__(self, i):
        if i == 37 and not pathlib.Path("failed").exists():
            pathlib.Path("failed").touch()
            raise OSError("the server did not answer")
        return super().__getitem__(i)

class Image: pass
class Images(Pairs):
    def __getitem__(self, i): return Image(), 1

def stream():
    for i in range(20): yield {"i": i}

def make(): return Pairs()
def fails(): raise RuntimeError("the disk is not mounted")
ready = Pairs()
loader = torch.utils.data.DataLoader(ready)
number = 5
"""


def test_a_folder_of_arrays_is_packed_with_its_names(pack: Pack, tmp_path: Path) -> None:
    arrays = write_arrays(tmp_path / "elsewhere" / "arrays")
    (tmp_path / "elsewhere" / "arrays" / ".DS_Store").write_text("hidden")
    done = pack("elsewhere/arrays", "train.packed")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("train.packed: 40 samples, ")
    dataset = PackedDataset(tmp_path / "train.packed", verify=True)
    assert all(same(dataset[i], array) for i, array in enumerate(arrays))
    assert list(dataset.names or ())[:2] == ["000.npy", "001.npy"]
    assert dataset.about == {"source": "elsewhere/arrays"}


@pytest.mark.parametrize("spec", ["data.py:make", "data.py:Pairs", "data.py:loader.dataset", "data:make"])
def test_a_dataset_is_packed_however_it_is_named(pack: Pack, tmp_path: Path, spec: str) -> None:
    (tmp_path / "data.py").write_text(SCRIPT)
    assert pack(spec, "a", "-j", "2").code == 0
    dataset = PackedDataset(tmp_path / "a")
    assert [label for _, label in dataset] == [i % 2 for i in range(50)]  # type: ignore[attr-defined] # old protocol
    assert same(dataset[7], (torch.full((3, 4), 7.0), 1))
    assert dataset.classes == ["cat", "dog"]
    assert dataset.names is None


def test_texts_and_streams_are_packed(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(SCRIPT)
    assert pack("data.py:Texts", "texts", "-j", "3").code == 0
    texts = PackedDataset(tmp_path / "texts")
    assert all(
        same(texts[i], {"ids": torch.arange(i % 5), "text": f"line {i}", "score": i / 3}) for i in range(50)
    )
    assert pack("data.py:stream", "stream").code == 0
    assert [PackedDataset(tmp_path / "stream")[i] for i in range(20)] == [{"i": i} for i in range(20)]


def test_images_in_folders_get_labels(pack: Pack, tmp_path: Path) -> None:
    for name in ("dog/2.jpg", "cat/b/9.jpg", "dog/10.jpg", "cat/1.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_bytes(name.encode())
    assert pack("images", "images/all.packed", "--labels").code == 0
    dataset = PackedDataset(tmp_path / "images" / "all.packed")
    names = ["cat/1.jpg", "cat/b/9.jpg", "dog/10.jpg", "dog/2.jpg"]
    assert list(dataset.names or ()) == names
    assert [dataset[i] for i in range(4)] == [(name.encode(), int("dog" in name)) for name in names]
    assert dataset.classes == ["cat", "dog"]
    assert pack("images", "images/all.packed", "--force").code == 0  # and does not pack itself
    assert len(PackedDataset(tmp_path / "images" / "all.packed")) == 4


def test_files_are_read_by_their_ending(pack: Pack, tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    torch.save({"x": tensor, "y": 3}, tmp_path / "a.pt")
    head = json.dumps({
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [0], "data_offsets": [24, 24]},
    }).encode()  # fmt: skip
    content = len(head).to_bytes(8, "little") + head + tensor.numpy().tobytes()
    (tmp_path / "b.safetensors").write_bytes(content)
    (tmp_path / "c.txt").write_text("hello")
    assert pack("a.pt", "b.safetensors", "c.txt", "packed").code == 0
    dataset = PackedDataset(tmp_path / "packed")
    assert same(dataset[0], {"x": tensor, "y": 3})
    assert same(dataset[1], {"w": tensor, "b": torch.empty(0, dtype=torch.bfloat16)})
    assert dataset[2] == b"hello"
    assert pack("*.safetensors", "raw", "--raw").code == 0
    assert PackedDataset(tmp_path / "raw")[0] == content


def test_the_number_of_jobs_does_not_show(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(SCRIPT)
    for jobs in ("1", "3"):
        done = pack("data.py:Random", f"jobs{jobs}", "--jobs", jobs)
        assert "the first sample differs when it is loaded twice" in done.err
        assert "PackedDataset(transform=…)" in done.err
    assert (tmp_path / "jobs1").read_bytes() == (tmp_path / "jobs3").read_bytes()
    pack("data.py:Random", "other", "--seed", "1")
    assert (tmp_path / "other").read_bytes() != (tmp_path / "jobs1").read_bytes()


MISTAKES: dict[str, tuple[list[str], str]] = {
    "a typo": (["arays", "a"], "no such file or folder: arays"),
    "a pattern that fits nothing": (["*.jpeg", "a"], "no files in *.jpeg"),
    "an empty folder": (["empty", "a"], "no files in empty"),
    "no destination": (["arrays"], "unstarve pack SRC DST"),
    "a folder for a file": (["arrays", "empty"], "cannot write empty: it is a folder"),
    "no such folder": (["arrays", "no/a"], "there is no folder"),
    "a module that is not there": (
        ["mydata:make", "a"],
        "module mydata cannot be imported: ModuleNotFoundError",
    ),
    "a script that is not there": (["date.py:make", "a"], "no such file: date.py"),
    "a name that is not there": (["data.py:maek", "a"], "data.py has no 'maek'"),
    "a script with an error": (["wrong.py:make", "a"], "wrong.py cannot be imported: SyntaxError"),
    "what is no dataset": (["data.py:number", "a"], "data.py:number is a int, not a dataset"),
    "a loader": (["data.py:loader", "a"], "which returns batches: pack data.py:loader.dataset"),
    "a function that fails": (["data.py:fails", "a"], "RuntimeError: the disk is not mounted (data.py, line"),
    "a script without a name": (["dat.py", "a"], "pass MODULE:ATTRIBUTE or SCRIPT.py:ATTRIBUTE"),
    "samples of no known type": (
        ["data.py:Images", "a"],
        "sample 0 cannot be packed: [0] is of type data.Image",
    ),
    "a file in no folder": (["arrays", "a", "--labels"], "is in no subfolder"),
    "labels for a dataset": (["data.py:make", "a", "--labels"], "--labels and --raw are for files"),
    "a file that is not there": (["--verify", "b"], "No such file"),
    "a file of another kind": (["--verify", "data.py"], "data.py is not a packed dataset"),
    "two files to verify": (["--verify", "a", "b"], "--verify takes one packed file"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_a_sentence_and_leaves_nothing(pack: Pack, tmp_path: Path, mistake: str) -> None:
    write_arrays(tmp_path / "arrays", 3)
    (tmp_path / "empty").mkdir()
    (tmp_path / "data.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text("def make(: pass")
    before = {path.name for path in tmp_path.iterdir()}
    words, told = MISTAKES[mistake]
    assert told in one_sentence(pack(*words))
    assert {path.name for path in tmp_path.iterdir()} - before <= {"__pycache__"}


def test_a_packed_file_is_replaced_only_when_told_to(pack: Pack, tmp_path: Path) -> None:
    write_arrays(tmp_path / "arrays", 3)
    assert pack("arrays", "a").code == 0
    first = (tmp_path / "a").read_bytes()
    assert "a exists already: choose another name, or replace it with --force" in one_sentence(
        pack("arrays", "a")
    )
    np.save(tmp_path / "arrays" / "more.npy", np.ones(3))
    assert (tmp_path / "a").read_bytes() == first
    assert pack("arrays", "a", "-f").code == 0
    assert len(PackedDataset(tmp_path / "a")) == 4


def test_a_bad_file_is_named_and_nothing_before_it_is_lost(pack: Pack, tmp_path: Path) -> None:
    arrays = write_arrays(tmp_path / "arrays", 60)
    bad = tmp_path / "arrays" / "050.npy"
    sound = bad.read_bytes()
    bad.write_bytes(sound[:100])
    told = one_sentence(pack("arrays", "a", "-j", "2"))
    assert "sample 50 (050.npy)" in told
    assert "or skip it with --skip-bad; 50 samples are kept in a.partial: run the same command" in told
    bad.write_bytes(sound)
    done = pack("arrays", "a")
    assert (done.code, done.err) == (
        0,
        "unstarve: resuming after sample 50, where the last attempt stopped\n",
    )
    assert same(PackedDataset(tmp_path / "a", verify=True)[50], arrays[50])
    bad.unlink()
    pack("arrays", "without")
    bad.write_bytes(b"")
    done = pack("arrays", "skipped", "--skip-bad", "--json", "-")
    (skipped_one,) = [line for line in done.err.splitlines() if "skipped: sample" in line]
    assert "skipped: sample 50 (050.npy)" in skipped_one
    assert json.loads(done.out)["left_out"] == ["050.npy"]
    skipped = PackedDataset(tmp_path / "skipped")
    assert list(skipped.names or ()) == list(PackedDataset(tmp_path / "without").names or ())
    assert skipped.about["left_out"] == ["050.npy"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_sample_that_fails_only_once_is_packed(pack: Pack, tmp_path: Path, jobs: str) -> None:
    (tmp_path / "data.py").write_text(SCRIPT)
    done = pack("data.py:Shaky", "a", "--skip-bad", "-j", jobs, "--json", "-")
    assert json.loads(done.out)["left_out"] == []
    assert (tmp_path / "failed").exists()
    packed = PackedDataset(tmp_path / "a")
    assert len(packed) == 50
    assert same(packed[37], (torch.full((3, 4), 37.0), 1))


def test_what_a_dataset_raises_is_told_with_its_line(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(SCRIPT)
    told = one_sentence(pack("data.py:Broken", "a"))
    assert "sample 37 failed with ValueError: no such image (data.py, line" in told


def test_another_source_does_not_go_on_where_one_was_stopped(pack: Pack, tmp_path: Path) -> None:
    write_arrays(tmp_path / "arrays", 10)
    write_arrays(tmp_path / "others", 10)
    (tmp_path / "arrays" / "005.npy").write_bytes(b"")
    pack("arrays", "a")
    (tmp_path / "others" / "0.npy").write_bytes((tmp_path / "others" / "001.npy").read_bytes())
    assert "a was begun with other samples or options" in one_sentence(pack("others", "a"))
    assert pack("others", "a", "--restart").code == 0
    assert len(PackedDataset(tmp_path / "a")) == 11
    assert not (tmp_path / "a.partial").exists()


def test_verify_tells_the_damaged_samples(pack: Pack, tmp_path: Path) -> None:
    write_arrays(tmp_path / "arrays", 20)
    pack("arrays", "a")
    done = pack("--verify", "a")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("no damage found\n")
    data = bytearray((tmp_path / "a").read_bytes())
    data[4096 + 80 * 7 + 3] ^= 1
    (tmp_path / "a").write_bytes(data)
    done = pack("--verify", "a")
    assert done.code == 1
    assert done.out.splitlines()[0] == "sample 7 (007.npy) is damaged: its checksum is wrong"
    found = json.loads(pack("--verify", "a", "--json", "-").out)
    assert found["damaged"] == [{"sample": 7, "name": "007.npy"}]
    (tmp_path / "a").write_bytes(data[:-100])
    assert "truncated" in one_sentence(pack("--verify", "a"))


SLOW = """
import os, time, torch
class Slow:
    def __len__(self): return 300
    def __getitem__(self, i):
        for stop in (200, 280):
            if i >= stop and not os.path.exists(f"go {stop}"):
                open(f"stuck {stop}", "w")
                time.sleep(600)
        return torch.full((1000,), float(i)), f"sample {i}"
"""
HASTY = """
import resource, sys
from unstarve.fixes.datasets.packed import packed_partial, packed_writer
packed_partial._BUFFER_BYTES = 1000; packed_writer._CHECKPOINT_S = 1e-3; packed_writer._CHECKPOINT_SHARE = 1
if len(sys.argv) > 1: resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from unstarve.cli import main
main(["pack", "data.py:Slow", "a", "--jobs", "2"])
"""


@pytest.fixture
def slow(project: Any, pack: Pack) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A dataset that gets stuck twice, unless told to go; how to start packing it with many checkpoints."""
    project.write("data.py", SLOW)
    for name in ("go 200", "go 280"):
        (project.folder / name).touch()
    assert pack("data.py:Slow", "expected").code == 0
    (project.folder / "go 200").unlink()
    (project.folder / "go 280").unlink()
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        options = project.options(stderr=subprocess.PIPE, text=True, start_new_session=True)
        started.append(subprocess.Popen([sys.executable, "-c", HASTY, *words], **options))
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it left behind
        with process:
            pass


def wait_for(*paths: Path) -> None:
    end = time.monotonic() + 180
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_killed_and_then_interrupted_attempt_goes_on_where_it_was(
    slow: Any, pack: Pack, tmp_path: Path
) -> None:
    journal = tmp_path / "a.partial" / "journal.json"
    killed = slow()
    wait_for(tmp_path / "stuck 200", journal)
    killed.kill()
    assert killed.wait(timeout=180) == -signal.SIGKILL
    noted = json.loads(journal.read_text())["samples"]
    assert noted > 0
    assert not (tmp_path / "a").exists()

    (tmp_path / "go 200").touch()
    interrupted = slow()
    wait_for(tmp_path / "stuck 280")
    os.killpg(interrupted.pid, signal.SIGINT)  # as a terminal does, to the whole group
    assert interrupted.wait(timeout=180) == 130
    first, last = interrupted.stderr.read().strip().splitlines()
    assert first == f"unstarve: resuming after sample {noted}, where the last attempt stopped"
    noted = json.loads(journal.read_text())["samples"]
    assert last == (
        f"unstarve: stopped; {noted} samples are kept in a.partial: run the same command again to resume"
    )
    assert not (tmp_path / "a").exists()

    (tmp_path / "go 280").touch()
    done = pack("data.py:Slow", "a", "--json", "-")
    assert json.loads(done.out)["resumed_from"] == noted
    assert (tmp_path / "a").read_bytes() == (tmp_path / "expected").read_bytes()
    assert not (tmp_path / "a.partial").exists()


def test_a_full_disk_is_told_and_nothing_is_lost(slow: Any, pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "go 200").touch()
    (tmp_path / "go 280").touch()
    full = slow("600000")
    assert full.wait(timeout=180) == 2
    (told,) = full.stderr.read().strip().splitlines()
    assert "no space left for a (File too large); " in told
    assert "samples are kept in a.partial: run the same command again" in told
    assert "resuming after sample " in pack("data.py:Slow", "a").err
    assert (tmp_path / "a").read_bytes() == (tmp_path / "expected").read_bytes()


def test_help_needs_no_torch_and_shows_an_example(project: Any) -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom unstarve.cli import main\nmain(['pack', '--help'])"
    done = project.python("-c", code)
    assert done.returncode == 0
    assert "unstarve pack images/ train.packed --labels" in " ".join(done.stdout.split())
