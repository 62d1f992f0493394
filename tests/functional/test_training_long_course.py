"""The long training's course: it learns, is killed and goes on as if nothing had been, and refuses what is not its own.

The network is one in plain Python (tests/support/plain_learner.py), for the tests have no torch; the tests of the lab
train with torch in the containers, and the last ones here where this machine has one.
"""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import plain_learner
from toolkit.here import find_torch, interpreters
from validation.probes import train_keep, train_long, train_tiny
from validation.probes.train_cnn import CannotTrain
from validation.probes.train_course import Training, learning_rate
from validation.probes.train_data import look

pytestmark = pytest.mark.engines

ROOT = Path(__file__).resolve().parents[2]
TIMES = ("train_s", "input_s", "val_s", "images_per_s")
EPOCHS = 4


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "tiny"
    train_tiny.make(folder, train=24, val=10)
    return folder


def started(tiny: Path, checkpoints: Path, pause_s: float) -> subprocess.Popen[str]:
    words = ["-m", "tests.support.plain_learner", str(tiny), str(checkpoints), str(EPOCHS), str(pause_s)]
    return subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


def killed_at(process: subprocess.Popen[Any], checkpoints: Path, step: int) -> None:
    """KILL as soon as a checkpoint of that step is there."""
    until = time.monotonic() + 240
    while not any(entry["step"] >= step for entry in train_keep._entries(checkpoints)):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until, f"no checkpoint of step {step}"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    if process.stdout:
        process.stdout.close()


def without_times(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in TIMES} for line in curve]


def test_a_training_that_is_killed_twice_has_the_curve_of_one_that_was_not(tiny: Path, tmp_path: Path) -> None:
    whole = finished(started(tiny, tmp_path / "whole", 0))
    for step in (10, 25):
        killed_at(started(tiny, tmp_path / "killed", 0.02), tmp_path / "killed", step)
    broken = finished(started(tiny, tmp_path / "killed", 0))
    assert len(broken["resumed"]) == 2
    assert broken["resumed"][0]["step"] > 0, "it went on within an epoch"
    assert without_times(broken["curve"]) == without_times(whole["curve"])
    last = whole["curve"][-1]
    assert last["epoch"] == EPOCHS
    assert last["val_top1"] > 0.6, "ten classes, one in ten by chance"
    assert whole["curve"][0]["train_top1"] < last["val_top1"] <= last["val_top5"] <= 1
    assert whole["curve"][0]["loss"] > last["loss"]
    assert whole["resumed"] == []
    assert whole["predicted"]["hours"] > 0


def test_what_is_kept_and_read_again_is_whole_whenever_the_writer_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from validation.probes import train_keep\n"
        "step = int(sys.argv[2])\n"
        "while True:\n"
        "    step += 1\n"
        "    train_keep.save(Path(sys.argv[1]), bytes([step % 251]) * 300000, {'step': step, 'world': 1})\n"
    )
    seen = 0
    for turn in range(6):
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(seen)], cwd=ROOT)
        until = time.monotonic() + 60
        while not any(entry["step"] > seen for entry in train_keep._entries(tmp_path)):
            assert time.monotonic() < until, "it wrote nothing"
            time.sleep(0.002)
        time.sleep(0.017 * turn)
        process.kill()
        process.wait()
        found = train_keep.load(tmp_path, {"world": 1})
        if found is None:
            continue
        state, about = found
        assert about["step"] >= seen
        assert state == bytes([about["step"] % 251]) * 300000
        seen = about["step"]
    assert seen > 6
    assert len(list(tmp_path.glob("step-*.state"))) <= train_keep.KEPT + 1


def test_a_write_that_ends_in_the_middle_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of the writes of a checkpoint; a kill seldom comes at the very moment."""
    really, broken = Path.open, 0

    class Cut(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(bytes(data)[: len(data) // 2])
            raise InterruptedError

    for at in range(5):
        train_keep.save(tmp_path, b"whole" * 100, {"step": 2 * at + 1, "world": 1})
        left = at

        def opened(path: Path, *args: Any, **more: Any) -> Any:
            nonlocal left
            left -= args == ("wb",)
            return Cut(path, "wb") if args == ("wb",) and left < 0 else really(path, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", opened)
            try:
                train_keep.save(tmp_path, b"newer" * 100, {"step": 2 * at + 2, "world": 1})
            except InterruptedError:
                broken += 1
        found = train_keep.load(tmp_path, {"world": 1})
        assert found
        assert found[0] in (b"whole" * 100, b"newer" * 100)
        assert found[1]["step"] >= 2 * at + 1
    assert broken == 2, "state and list are written"


def test_a_checkpoint_that_is_damaged_gives_way_to_the_one_before(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        train_keep.save(tmp_path, f"state {step}".encode(), {"step": step, "world": 2})
    assert sorted(p.name for p in tmp_path.glob("*.state")) == ["step-000000002.state", "step-000000003.state"]
    (tmp_path / "step-000000003.state").write_bytes(b"cut")
    found = train_keep.load(tmp_path, {"world": 2})
    assert found
    assert (found[0], found[1]["step"]) == (b"state 2", 2)
    (tmp_path / "step-000000002.state").unlink()
    with pytest.raises(train_keep.Refused, match="none of its 2 checkpoints is whole"):
        train_keep.load(tmp_path, {"world": 2})
    (tmp_path / train_keep.LATEST).write_text("{")
    with pytest.raises(train_keep.Refused, match="cannot be read"):
        train_keep.load(tmp_path, {"world": 2})


@pytest.mark.parametrize(
    ("other", "said"),
    [({"network": "vgg16"}, "its network is plain, this one's is vgg16"), ({"world": 4}, "its world is 1")],
)
def test_a_checkpoint_of_another_training_is_refused(
    tiny: Path, tmp_path: Path, other: dict[str, Any], said: str
) -> None:
    train, val = look(str(tiny), "train", 10), look(str(tiny), "val", 10)
    learner = plain_learner.PlainLearner(train, val)
    first = Training(plain_learner.course(tmp_path, 1), learner, plain_learner.One(), train)
    first.resume()
    first.run()
    second = Training(plain_learner.course(tmp_path, 1, **other), learner, plain_learner.One(), train)
    with pytest.raises(CannotTrain, match=said):
        second.resume()
    told = json.loads((tmp_path / "progress.json").read_text())
    assert (told["epoch"], told["epochs"], told["last"]["epoch"]) == (1, 1, 1)


def test_fewer_pictures_than_a_step_are_told(tiny: Path, tmp_path: Path) -> None:
    train, val = look(str(tiny), "train", 10), look(str(tiny), "val", 10)
    course = plain_learner.course(tmp_path, 1)
    course.batch = 1000
    with pytest.raises(CannotTrain, match="240 pictures are fewer than a step takes: 1 rank with a batch of 1000"):
        Training(course, plain_learner.PlainLearner(train, val), plain_learner.One(), train)


def test_checkpoints_need_a_folder_that_can_be_written(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    train, val = look(str(tiny), "train", 10), look(str(tiny), "val", 10)
    course = plain_learner.course(tmp_path / "file" / "under", 1)
    with pytest.raises(CannotTrain, match=r"no checkpoint can be written to .*under"):
        Training(course, plain_learner.PlainLearner(train, val), plain_learner.One(), train).resume()


def test_a_disk_that_is_full_ends_it_and_the_checkpoint_before_stays(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, val = look(str(tiny), "train", 10), look(str(tiny), "val", 10)
    training = Training(
        plain_learner.course(tmp_path, 2), plain_learner.PlainLearner(train, val), plain_learner.One(), train
    )
    training.resume()
    really = train_keep._durable

    def full(path: Path, data: bytes) -> None:
        if "000000010" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        really(path, data)

    monkeypatch.setattr(train_keep, "_durable", full)
    with pytest.raises(RuntimeError, match=r"no checkpoint can be written to .*: No space left on device"):
        training.run()
    found = train_keep.load(tmp_path, {"world": 1})
    assert found
    assert found[1]["step"] == 5


def test_the_rates_are_the_papers_and_scale_with_the_world() -> None:
    """Dell whitepaper 2019, 7.4.1: 0.4, from epoch 10 on 0.04, from 60 on 0.004, of 90, with 8 x 128 images a step."""
    at = {epoch: learning_rate(epoch / 90, 1024) for epoch in (0, 9, 10, 59, 60, 89)}
    assert at == {0: 0.4, 9: 0.4, 10: 0.04, 59: 0.04, 60: 0.004, 89: 0.004}
    assert learning_rate(0.5, 256) == 0.01
    # four times the images: four times the rate, from the paper's on in five epochs
    assert [round(learning_rate(epoch / 90, 4096), 3) for epoch in (0, 2.5, 5, 9, 10)] == [0.4, 1.0, 1.6, 1.6, 0.16]


@pytest.fixture(scope="module")
def python() -> str:
    """A Python of this machine with torch."""
    torch, found = find_torch(interpreters())
    if not torch:
        pytest.skip("this machine has no torch")
    return found


def long_words(python: str, data: Path, checkpoints: Path, **more: Any) -> list[str]:
    asked = {"data": data, "checkpoints": checkpoints, "epochs": 2, "batch": 4, "checkpoint-steps": 4, **more}
    words = [str(value) for key, one in asked.items() for value in (f"--{key}", one)]
    return [python, train_long.__file__, "--time-limit-s", "500", "--model", "small", "--device", "cpu", *words]


def report(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    return found


def test_two_ranks_of_torch_go_on_as_if_nothing_had_been(python: str, tmp_path: Path) -> None:
    train_tiny.make(tmp_path / "tiny", "tar", train=8, val=4)

    def run(folder: Path) -> subprocess.Popen[str]:
        words = long_words(python, tmp_path / "tiny", folder, framework="ddp")
        launch = [words[0], "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *words[1:]]
        return subprocess.Popen(launch, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    whole = report(run(tmp_path / "whole").communicate(timeout=500)[0])
    assert not whole["cannot"], whole["cannot"]
    killed_at(run(tmp_path / "killed"), tmp_path / "killed", 8)
    broken = report(run(tmp_path / "killed").communicate(timeout=500)[0])
    assert [mark["epoch"] for mark in broken["resumed"]] == [0]
    assert without_times(broken["curve"]) == without_times(whole["curve"])
    assert whole["curve"][-1]["loss"] < whole["curve"][0]["loss"]
    assert whole["ranks_agree"]


GOING = """
import os, pathlib, sys, time
from validation.probes import train_keep
folder = train_keep.going()
(folder / "set").mkdir()
(folder / "set" / "picture").write_bytes(b"x")
print(folder, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["", "KILL", "KILL its group"])
def test_what_is_kept_for_nobody_goes_with_its_process_however_that_ends(end: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", GOING], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert (folder / "set" / "picture").read_bytes() == b"x"
    if end:
        (os.killpg if "group" in end else os.kill)(process.pid, signal.SIGKILL)
    else:
        process.stdin.close()
    process.wait(timeout=30)
    assert process.stdout.read() == "", "the launcher waits for what its rank has left open"
    until = time.monotonic() + 30
    while folder.exists():
        assert time.monotonic() < until, f"{folder} stays"
        time.sleep(0.02)
