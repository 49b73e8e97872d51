"""`unstarve run CMD…` runs the command as it would run alone."""

from __future__ import annotations

import json
import sys

import pytest

TELL = """
import json, os, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"),
    "package": __package__, "main": sys.modules["__main__"].__dict__ is globals(),
    "cwd": os.getcwd(), "flags": list(sys.flags), "orig": sys.orig_argv[1:],
    "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
}))
"""
OURS_TO_LOOK_AT = ["--steps", "-o", "x", "--json", "--help", "-m", "--", "-q", "--stop-after", "ü b", ""]


@pytest.mark.parametrize(
    "command",
    [
        ["tell.py"],
        ["./tell.py"],
        ["-m", "package.tell"],
        ["package"],
        ["python", "tell.py"],
        ["python", "-m", "package.tell"],
    ],
    ids=" ".join,
)
def test_a_script_sees_what_it_would_see_alone(project, command: list[str]) -> None:
    project.environment["PYTHONPATH"] = str(project.folder / "mine")
    project.write("tell.py", TELL)
    project.write("package/__init__.py", "")
    project.write("package/__main__.py", TELL)
    project.write("package/tell.py", TELL)
    words = [*(command[1:] if command[0] == "python" else command), *OURS_TO_LOOK_AT]
    alone = json.loads(project.python(*words).stdout)
    for prefix in ([], ["--"]):
        done = project.unstarve("run", *prefix, *command, *OURS_TO_LOOK_AT)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        told.pop("sitecustomize"), alone.pop("sitecustomize", None)
        assert told == alone


def test_standard_input_reaches_the_script_and_its_output_is_untouched(project) -> None:
    project.write("echo.py", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])")
    data = bytes(range(256)) * 5000
    done = project.unstarve("run", "echo.py", input=data, text=False)
    assert done.stdout == data[::-1]
    assert b"INCONCLUSIVE" in done.stderr


def test_the_users_own_sitecustomize_and_python_path_stay_in_force(project) -> None:
    project.environment["PYTHONPATH"] = f"{project.folder / 'site'}:{project.folder / 'lib'}"
    project.write("site/sitecustomize.py", "import sys; sys.theirs = True")
    project.write("lib/helper.py", "VALUE = 7")
    script = project.write("train.py", "import sys, helper, sitecustomize; print(sys.theirs, helper.VALUE)")
    elsewhere = project.folder / "else" / "where"
    elsewhere.mkdir(parents=True)
    done = project.unstarve("run", script, cwd=elsewhere)
    assert done.stdout == "True 7\n"
    assert [path.suffix for path in elsewhere.iterdir()] == [".unstarve"]
    assert {path.name for path in project.folder.iterdir()} == {"site", "lib", "train.py", "else", "data.py"}


def test_a_process_that_never_uses_a_loader_imports_nothing_of_unstarve(project) -> None:
    project.write(
        "train.py", "import sys; print([m for m in sys.modules if m.startswith(('unstarve', 'torch'))])"
    )
    assert project.unstarve("run", "train.py").stdout == "[]\n"


def test_names_with_spaces_and_letters_of_all_kinds_work(project) -> None:
    project.write(
        "mein köln/zug ü.py", "from data import *\nfor b in DataLoader(Numbers(8)): pass\nprint('ok')"
    )
    project.environment["PYTHONPATH"] = str(project.folder)
    done = project.unstarve("run", "mein köln/zug ü.py", env={"LC_ALL": "C", "LANG": "C"})
    assert (done.returncode, done.stdout) == (0, "ok\n")
    (run,) = project.folder.glob("zug*.unstarve")
    (loader,) = project.report(run)["loaders"]
    assert loader["where"] == "mein köln/zug ü.py:2"


def test_files_named_like_torch_or_unstarve_beside_the_user_do_not_confuse_the_launcher(project) -> None:
    project.write("torch.py", "raise RuntimeError('not this one')")
    project.write("unstarve.py", "raise RuntimeError('nor this one')")
    project.write("code/train.py", "from data import *\nfor b in DataLoader(Numbers(8)): pass\n")
    project.write("code/data.py", (project.folder / "data.py").read_text())
    report = project.record("code/train.py")
    assert report["run"]["steps"] == 8


def test_a_scripts_own_module_called_unstarve_stays_its_own(project) -> None:
    project.write(
        "train.py",
        """
        import sys, types
        sys.modules["unstarve"] = types.SimpleNamespace(VALUE=7)
        from data import *
        for batch in DataLoader(Numbers(8)):
            pass
        import unstarve
        print(unstarve.VALUE)
        """,
    )
    done = project.unstarve("run", "train.py")
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert "not recording" in done.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["python", "-I", "train.py"], "Python ran with -I, which ignores PYTHONPATH"),
        (["python", "-bE", "train.py"], "Python ran with -E, which ignores PYTHONPATH"),
        (["./isolated"], "Python ran with -I, which ignores PYTHONPATH"),
        (["env", "-i", sys.executable, "train.py"], "could not attach to any Python process of the command"),
        (["python", "train.py", "-I"], "No DataLoader was iterated"),
    ],
    ids=" ".join,
)
def test_a_python_that_keeps_unstarve_out_is_told_from_one_without_loaders(
    project, command: list[str], told: str
) -> None:
    project.write("train.py", "print('trained')")
    script = project.write("isolated", "print('trained')")
    script.write_text(f"#!{sys.executable} -I\n{script.read_text()}")
    script.chmod(0o755)
    done = project.unstarve("run", "-o", "run.unstarve", "--force", *command)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert told in project.report()["verdict"]["headline"]
