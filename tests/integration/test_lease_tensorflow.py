"""TensorFlow by a lease on the lab: its ordinary wheel on client1, an unchanged Keras program, bits of native, ends.

Marked `rest`: the site gets an engine more, TensorFlow's wheel is copied, and each program imports it for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from conftest import NODES, ROOT, Lab, toolkit

from tests.support.lease_lab import CUT, SERVERS, left, run_as, shell, until
from tests.support.recap import recap
from tests.support.tensorflow_engine import real_python
from toolkit.lab.frameworks import TENSORFLOW

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("nothing_left")]
QUIET = "env TF_CPP_MIN_LOG_LEVEL=3"
PYTHON = "/opt/tensorflow/bin/python"  # `python` is PyTorch's where the lab has both
TRAIN = f"{PYTHON} /home/alice/keras_images.py"
RUN = f"{QUIET} toolkit run -l gpu1"
LONG = """import time
import tensorflow as tf
x = tf.Variable(tf.zeros([1 << 20]))
print("ready", flush=True)
while True:
    x.assign_add(tf.ones([1 << 20]))
    float(x[0])
    time.sleep(0.05)
"""
Started = tuple[Future[tuple[int, str]], Callable[[], str]]


@pytest.fixture(scope="module")
def keras_lab(pool: Lab) -> Iterator[Lab]:
    """The lab with the engine for TensorFlow beside the others."""
    python = str(real_python())
    up = toolkit(
        "lab", "up", "--name", pool.name, "--inventory", pool.inventory, "--tensorflow", python, timeout_s=1800
    )
    assert up.returncode == 0, up.stderr
    done = pool.playbook(name="playbooks/remoting.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    again = pool.playbook("--tags", "remoting,acceptance")
    assert {node: counts["changed"] for node, counts in recap(again.stdout).items()} == dict.fromkeys(NODES, 0)
    prepare(pool)
    yield pool
    for node in NODES:
        pool.ssh(node, "rm -f /" + " /".join(TENSORFLOW.commands))
    pool.ssh("client1", "rm -f /home/*/keras_images.py /home/*/long.py /home/*/long.log")


def prepare(lab: Lab) -> None:
    """The programs, for both users."""
    for user in ("alice", "bob"):
        for name, text in (("keras_images.py", (ROOT / "examples/keras_images.py").read_text()), ("long.py", LONG)):
            lab.ssh("client1", f"cat > /home/{user}/{name} <<'END'\n{text}\nEND\n")


def results(text: str) -> list[str]:
    """Losses and weights, bit by bit."""
    return [line for line in text.splitlines() if line.startswith(("loss ", "weights "))]


@pytest.fixture(scope="module")
def native(keras_lab: Lab) -> list[str]:
    """The same program's, on client1's own processor."""
    code, out = run_as(keras_lab, "alice", f"{QUIET} CUDA_VISIBLE_DEVICES=-1 {TRAIN}")
    assert code == 0, out
    assert "gpus 0" in out
    return results(out)


@contextmanager
def running(lab: Lab, user: str = "alice", words: str = "") -> Iterator[Started]:
    """A program that computes until it is ended, and has begun to: its result, and what it printed until now."""
    log = f"/home/{user}/long.log"
    command = f"sh -c '{RUN} {words} -- {PYTHON} /home/{user}/long.py > {log} 2>&1'"
    lab.ssh("client1", f"rm -f {log}")
    with ThreadPoolExecutor(1) as worker:
        result = worker.submit(run_as, lab, user, command)

        def printed() -> str:
            return lab.ssh("client1", f"cat {log} 2>/dev/null || true")

        until(lambda: result.done() or "ready" in printed().splitlines(), True, 180)
        assert not result.done(), printed()
        yield result, printed


def end(lab: Lab, user: str, number: str) -> None:
    """A signal to the program that `toolkit run` started, as a terminal gives it with INT to all of them."""
    pattern = "^[^ ]*python[^ ]* /home/.*long.py" if number == "KILL" else "long.py"
    shell(lab, "client1", f"pkill -{number} -u {user} -f '{pattern}'; true")


def test_an_unchanged_keras_program_trains_with_the_bits_of_native(keras_lab: Lab, native: list[str]) -> None:
    code, out = run_as(keras_lab, "alice", f"{RUN} -- {TRAIN}")
    assert code == 0, out
    assert "python runs here, its GPUs by the engine tensorflow: keras_images.py:" in out
    assert "gpus 1" in out
    assert len(native) == 3
    assert results(out) == native


def test_a_part_of_a_gpu_trains_the_same_and_two_users_beside_each_other(keras_lab: Lab, native: list[str]) -> None:
    with ThreadPoolExecutor(2) as workers:
        jobs = [
            workers.submit(run_as, keras_lab, user, f"{RUN} -p 1/2 -- {PYTHON} /home/{user}/keras_images.py")
            for user in ("alice", "bob")
        ]
        done = [job.result(400) for job in jobs]
    for code, out in done:
        assert code == 0, out
        assert "one TensorFlow program of the lease runs at a time" in out
        assert results(out) == native


def test_a_neighbour_that_is_killed_disturbs_nobody(keras_lab: Lab, native: list[str]) -> None:
    with running(keras_lab, "bob", "-p 1/2") as (ended, _), ThreadPoolExecutor(1) as worker:
        beside = worker.submit(run_as, keras_lab, "alice", f"{RUN} -p 1/2 -- {TRAIN}")
        until(lambda: keras_lab.processes("client1", "keras_images.py").count("python") > 0, True, 60)
        end(keras_lab, "bob", "KILL")
        assert ended.result(60)[0] == 137
        code, out = beside.result(400)
    assert code == 0, out
    assert results(out) == native


@pytest.mark.parametrize(("number", "code"), [("INT", 130), ("TERM", 143), ("KILL", 137)])
def test_an_interrupted_program_leaves_nothing(keras_lab: Lab, number: str, code: int) -> None:
    with running(keras_lab) as (ended, printed):
        end(keras_lab, "alice", number)
        assert ended.result(60)[0] == code, printed()
    until(lambda: keras_lab.processes("client1", "elastic_ai_tensorflow|long.py"), "", 30)
    until(lambda: left(keras_lab), {}, 60)


def test_a_server_that_dies_is_an_error_of_the_program(keras_lab: Lab) -> None:
    with running(keras_lab) as (ended, printed):
        for node in SERVERS:
            keras_lab.ssh(node, "pkill -9 -f [e]lastic-ai-tfserver || true")
        code, _ = ended.result(60)
    assert code != 0
    assert "elastic-ai: the lease's server " in printed()
    assert "has ended" in printed(), "toolkit run says why"


def test_a_network_that_is_cut_ends_the_program_with_a_sentence(keras_lab: Lab) -> None:
    try:
        with running(keras_lab) as (ended, printed):
            shell(keras_lab, "gpu1", CUT)
            code, _ = ended.result(120)
            assert code != 0
            assert "elastic-ai: the lease's server " in printed()
            assert "did not answer for 10 s" in printed()
        until(lambda: left(keras_lab), {}, 90)
    finally:
        shell(keras_lab, "gpu1", "nft delete table inet cut 2>/dev/null; true")
