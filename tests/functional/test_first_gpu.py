"""benchmarks/first_gpu.py: whole on emulated GPUs, and what a step can do to the others: nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from ctypes import CDLL
from pathlib import Path
from typing import Any

import pytest

from toolkit.engine import build
from validation.base.project import ROOT

PROGRAM = ROOT / "benchmarks/first_gpu.py"
sys.path.insert(0, str(PROGRAM.parent))
import first_gpu  # noqa: E402
import first_gpu_words  # noqa: E402
from first_gpu import Day, Step  # noqa: E402

pytestmark = pytest.mark.engines
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def day(folder: Path, seconds: float = 60) -> Day:
    return Day(folder, seconds, dict(os.environ))


@pytest.mark.skipif(bool(build.missing_tools()), reason="no compiler here")
def test_every_step_on_an_emulated_gpu(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [sys.executable, str(PROGRAM), "--minutes", "30", "--emulated", "1", "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    found = json.loads((out / "summary.json").read_text())
    steps = {one["name"]: one for one in found["steps"]}
    ended = {name for name, one in steps.items() if one["outcome"] == "ended well"}
    lacks = {name for name, one in steps.items() if one["outcome"] == "not run"}
    wanted = {
        "10-driver",
        "14-kernels",
        "20-gpu-copies",
        "20-gpu-load",
        "31-copies",
        "40-engine-build",
        "60-inspection",
    }
    assert wanted <= ended, done.stdout
    assert {name for name in steps if name.startswith(("41-", "42-"))} <= ended, done.stdout
    assert found["bits_of_native"] == {"42-train-remote-64-1": True, "42-train-remote-64-2": True}
    assert lacks <= {"70-gpu-compute", "70-burn-in", "71-training"}, done.stdout
    assert "EMULATED GPUs (1)" in (out / "summary.txt").read_text()
    driver = json.loads((out / "10-driver.out").read_text())
    assert driver["emulated"]
    assert driver["functions"]["engine_has_another"] == driver["functions"]["absent"] == []
    copies = [json.loads(line) for line in (out / "31-copies.out").read_text().splitlines()]
    assert {(one["copy"], one.get("in_a_row")) for one in copies} == {
        (kind, row) for kind in ("h2d", "d2h", "local") for row in (16, 1, None)
    }
    assert done.returncode == int(any(one["outcome"] in ("failed", "reached its limit") for one in steps.values()))


def test_a_step_that_hangs_or_fails_or_is_not_there_ends_no_other(tmp_path: Path) -> None:
    run = day(tmp_path)
    assert run.run(Step("one", 5, SLEEP)).outcome == "reached its limit"
    failed = run.run(Step("two", 9, [sys.executable, "-c", "import sys; sys.exit('no such GPU')"]))
    assert (failed.outcome, failed.why) == ("failed", "exit code 1: no such GPU")
    assert run.run(Step("three", 9, [str(tmp_path / "absent")])).outcome == "failed"
    assert run.run(Step("four", 9, SLEEP, needs="no PyTorch is here")).why == "no PyTorch is here"
    assert run.run(Step("five", 9, ["true"])).outcome == "ended well"


def alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_what_a_step_started_goes_with_it_though_it_does_not_listen(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    deaf = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    deaf += f"open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    leader = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {deaf!r}]); time.sleep(600)"
    assert day(tmp_path).run(Step("one", 6, [sys.executable, "-c", leader])).outcome == "reached its limit"
    until = time.monotonic() + 10
    while (
        Path(f"/proc/{note.read_text()}").exists()
        and "zombie" not in Path(f"/proc/{note.read_text()}/status").read_text()
    ):
        assert time.monotonic() < until
        time.sleep(0.05)


class Older:
    """A libcuda of before CUDA 12.0, which has not all functions of later ones, and answers 0."""

    LACKS = ("cuGetProcAddress_v2", "cuDeviceGetAttribute", "elasticAiEmulated")

    def __getattr__(self, name: str) -> Any:
        if name in self.LACKS:
            raise AttributeError(f"libcuda.so.1: undefined symbol: {name}")
        return lambda *_: 0


def test_an_older_driver_costs_what_it_lacks_and_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loaded(name: str | None) -> Any:
        return Older() if name == "libcuda.so.1" else CDLL(name)

    def one(call: Any, *given: Any, kind: Any = None, after: Any = ()) -> list[int]:
        return [0, 1 if call is not None else 0]

    monkeypatch.setattr(first_gpu_words.ctypes, "CDLL", loaded)
    monkeypatch.setattr(first_gpu_words, "number", one)
    monkeypatch.setattr(sys, "argv", ["first_gpu_words.py", "driver"])
    assert first_gpu_words.main() == 1
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["functions"]["by_version"]["cuInit 2000"] == [0, None, None]
    assert told["devices"] == [{"failed": "AttributeError: libcuda.so.1: undefined symbol: cuDeviceGetAttribute"}]
    assert set(told["faults"].values()) == {0}
    assert "undefined symbol: cuDeviceGetAttribute" in said.err


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_minutes_are_a_number_above_nothing(minutes: str, tmp_path: Path) -> None:
    words = [sys.executable, str(PROGRAM), f"--minutes={minutes}", "--out", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "--minutes: a number of more than 0 is wanted" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("sys.exit(0)", "sys.exit(0)", 0),
        ("sys.exit(0)", "sys.exit(5)", 1),
        ("sys.exit(3)", "sys.exit(0)", 2),
        ("sys.exit(1)", "sys.exit(0)", 1),
        (None, None, 1),
    ],
)
def test_the_exit_code_tells_a_driver_that_is_not_there_from_a_step_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str | None, second: str | None, code: int
) -> None:
    def everything(run: Day, folder: Path, emulated: bool) -> None:
        for name, words in (("10-driver", first), ("11", second)):
            lacks = "" if words else "no time was left"
            run.run(Step(name, 20, [sys.executable, "-c", f"import sys; {words}"], needs=lacks))

    monkeypatch.setattr(first_gpu, "everything", everything)
    monkeypatch.setattr(sys, "argv", ["first_gpu.py", "--out", str(tmp_path / "out")])
    assert first_gpu.main() == code


def test_without_time_left_a_step_is_not_run_and_says_so(tmp_path: Path) -> None:
    done = day(tmp_path, 1).run(Step("one", 60, ["true"]))
    assert (done.outcome, done.why) == ("not run", "no time was left")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('{"returncode": 2, "stderr": "x\\nno GPU answers\\n"}', "exit code 2: no GPU answers"),
        ("", "it printed no document"),
        ("[]", "it printed no document"),
        ('{"returncode": 0, "stderr": ""}', ""),
    ],
)
def test_a_probe_that_measured_nothing_has_failed(tmp_path: Path, said: str, why: str) -> None:
    words = [sys.executable, "-c", f"print({said!r})"]
    done = day(tmp_path).run(Step("20-probe", 20, words, document=True))
    assert (done.outcome, done.why) == ("failed" if why else "ended well", why)


def test_losses_that_differ_from_natives_are_told(tmp_path: Path) -> None:
    for way, loss in (("native", 1.0), ("remote", 1.5)):
        words = json.dumps({"losses": [loss], "weights_sha256": "00"})
        (tmp_path / f"42-train-{way}-64-1.out").write_text(words)
    assert first_gpu.compared(tmp_path) == {"42-train-remote-64-1": False}


def test_without_a_driver_the_exit_code_says_so(tmp_path: Path) -> None:
    words = [sys.executable, str(PROGRAM), "--minutes", "0.15", "--out", str(tmp_path / "out")]
    empty = {**os.environ, "LD_LIBRARY_PATH": ""}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=empty)
    if "10-driver (at most 9 s) ... ended well" in done.stdout:
        pytest.skip("this machine has a driver")
    assert done.returncode == 2, done.stdout
    assert "libcuda.so.1" in done.stdout


def test_ctrl_c_keeps_what_ran_and_leaves_no_process(tmp_path: Path) -> None:
    out, note = tmp_path / "out", tmp_path / "pid"
    hang = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    code = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import first_gpu as it; "
        f"it.words_of_the_machine = lambda: [it.Step('01-hangs', 500, [sys.executable, '-c', {hang!r}])]; "
        f"sys.argv[1:] = ['--out', {str(out)!r}]; sys.exit(it.main())"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, start_new_session=True) as process:
        until = time.monotonic() + 60
        while not (note.exists() and note.read_text()):
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
    assert json.loads((out / "summary.json").read_text())["steps"] == []


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    words = [sys.executable, str(PROGRAM), "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "it is not empty; name a new folder" in done.stderr
