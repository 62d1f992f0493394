"""elastic-ai-train asked to end, killed, and started again: the losses are those of an undisturbed training."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_train import LACKS, SMALL, document, started
from tests.support.engine_run import describe, local
from toolkit.lease.programs import train_keep
from toolkit.lease.programs.train_keep import NotKept, State, load, save

pytestmark = [pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}"), pytest.mark.engines]
OF = {"weights": 2, "seed": 1}


def begun(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A training that has done its first steps."""
    client = local(folder, describe(folder))
    command = [sys.executable, "-m", "toolkit.lease.programs.train", *SMALL, "--json", *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = subprocess.Popen(command, env=client.environment(), **pipes)
    assert program.stderr is not None
    for line in program.stderr:
        if line.split()[:1] == ["4"]:
            return program
    raise AssertionError(f"ended with {program.wait()} before step 4")


@pytest.mark.parametrize(("gpus", "number"), [("1", signal.SIGTERM), ("2", signal.SIGUSR1), ("1", signal.SIGINT)])
def test_told_to_end_it_keeps_its_work_and_goes_on_to_the_same_losses(tmp_path: Path, gpus: str, number: int):
    kept = ["--gpus", gpus, "--keep", str(tmp_path / "work")]
    program = begun(tmp_path, *kept, "--steps", "40", "--pace", "100")
    program.send_signal(number)
    out, err = program.communicate(timeout=60)
    assert program.returncode == (130 if number == signal.SIGINT else 3), err
    first = json.loads(out)
    done = first["steps"]
    assert 4 <= done < 40
    assert (first["planned_steps"], first["kept"]["steps"], first["told_by"]) == (40, done, signal.Signals(number).name)
    assert first["opened_s"] < first["began_s"] < first["told_s"] < first["kept"]["saved_s"] < first["ended_s"]
    assert first["kept"]["bytes"] == (tmp_path / "work").stat().st_size
    assert {path.name for path in tmp_path.iterdir() if "work" in path.name} == {"work"}
    more = str(done + 9)
    second = document(tmp_path, *SMALL, *kept, "--steps", more)
    whole = document(tmp_path, *SMALL, "--gpus", gpus, "--steps", more)
    assert (second["resumed_from"], len(second["step_s"]), second["steps"]) == (done, 9, done + 9)
    assert first["losses"] == whole["losses"][:done]
    assert second["losses"] == whole["losses"]
    assert second["weights_sha256"] == whole["weights_sha256"]
    assert (whole["resumed_from"], whole["kept"], whole["told_s"], whole["planned_steps"]) == (0, None, None, done + 9)


def test_told_while_its_last_checkpoint_has_all_steps_its_work_was_kept_by_then(tmp_path: Path):
    kept = ["--gpus", "1", "--keep", str(tmp_path / "work"), "--keep-every", "1"]
    program = begun(tmp_path, *kept, "--steps", "40", "--pace", "400")  # it rests nearly all of the time
    time.sleep(0.15)
    program.send_signal(signal.SIGTERM)
    document = json.loads(program.communicate(timeout=60)[0])
    assert document["kept"]["steps"] == document["steps"]
    assert document["kept"]["saved_s"] >= document["told_s"]


def test_killed_it_goes_on_from_the_last_checkpoint(tmp_path: Path):
    kept = ["--gpus", "1", "--keep", str(tmp_path / "work"), "--keep-every", "2"]
    program = begun(tmp_path, *kept, "--steps", "40", "--pace", "100")
    program.kill()
    program.communicate(timeout=60)
    second = document(tmp_path, *SMALL, *kept, "--steps", "21")
    assert second["resumed_from"] % 2 == 0
    assert second["resumed_from"] >= 4
    assert second["kept"]["steps"] == 20
    whole = document(tmp_path, *SMALL, "--gpus", "1", "--steps", "21")
    assert (second["losses"], second["weights_sha256"]) == (whole["losses"], whole["weights_sha256"])


def test_what_a_person_reads_of_it(tmp_path: Path):
    kept = ["--gpus", "1", "--keep", str(tmp_path / "work"), "--keep-every", "3"]
    assert "kept              3 steps, " in started(tmp_path, *SMALL, *kept, "--steps", "4").stdout
    said = started(tmp_path, *SMALL, *kept, "--steps", "6").stdout
    assert "went on           after 3 steps of a checkpoint" in said
    assert "launches          13 a step" in said
    assert "3 with\n--keep: asked to end by SIGTERM" in started(tmp_path, "--help").stdout


def test_what_cannot_go_on_is_one_sentence(tmp_path: Path):
    work = tmp_path / "work"

    def fails(*options: str) -> str:
        done = started(tmp_path, *SMALL, "--gpus", "1", *options)
        assert (done.returncode, done.stderr.count("\n"), done.stdout.count("Traceback")) == (2, 1, 0), done.stderr
        return done.stderr

    keep = ("--keep", str(work))
    assert started(tmp_path, *SMALL, "--gpus", "1", *keep, "--keep-every", "4", "--steps", "4").returncode == 0
    whole = work.read_bytes()
    assert "all of the 4 steps are done; ask for more by --steps" in fails(*keep, "--steps", "4")
    assert "of another training: its seed is 1, this one's is 2" in fails(*keep, "--seed", "2")
    assert "of another training: its gpus is 1, this one's is 2" in fails(*keep, "--gpus", "2")
    for damaged in (whole[:-1], whole[:-9] + b"x" + whole[-8:], whole + b"more"):
        work.write_bytes(damaged)
        assert "the checkpoint is damaged" in fails(*keep)
    for other in (b"", b"words\n", b"[]\n", b'{"of": []}\n', b"\xff" * 70000):
        work.write_bytes(other)
        assert "no checkpoint of elastic-ai-train" in fails(*keep)
    assert "a folder; give the name of a file" in fails("--keep", str(tmp_path))
    assert "nothing can be written to /nothing: No such file" in fails("--keep", "/nothing/work")
    assert "answers alone leave nothing to keep" in fails("--infer", *keep)
    assert "--keep-every needs --keep" in fails("--keep-every", "3")


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    work = tmp_path / "work"
    save(work, State(b"12345678", b"abcdefgh", [0.1, float("inf")]), OF)

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(train_keep.os, "fsync", full)
    with pytest.raises(NotKept, match="cannot be written: No space left on device"):
        save(work, State(b"87654321", b"abcdefgh", [0.1, 0.2, 0.3]), OF)
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    assert load(work, OF) == State(b"12345678", b"abcdefgh", [0.1, float("inf")])
    assert load(tmp_path / "nothing", OF) is None
