"""Real TensorFlow programs by the engine: the bits of local, and nothing computed or read in the wrong place.

Marked `rest`: the wheel is hundreds of MB and its import takes seconds, which every run of bin/test would pay.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tensorflow_engine import Running, installed, real_python, server

pytestmark = pytest.mark.rest
LOCAL = {name: value for name, value in os.environ.items() if not name.startswith("ELASTIC_AI")} | {
    "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2",
}  # fmt: skip

HEAD = """
import hashlib, os, sys
import keras  # before TensorFlow, which it imports when it is half there
import numpy as np
import tensorflow as tf
def digest(values): return hashlib.sha256(b"".join(np.asarray(v).tobytes() for v in values)).hexdigest()
"""
MODELS = (
    HEAD
    + """
x, y = np.random.RandomState(0).rand(200, 8, 8, 3).astype("f"), np.arange(200) % 10
L = tf.keras.layers
for optimiser, *cases in (("sgd", (3, False)), ("adam", (1, False), (1, True))):
    for steps, compiled in cases:
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([L.Conv2D(4, 3), L.BatchNormalization(), L.ReLU(), L.Flatten(),
                                     L.Dropout(0.2), L.Dense(10)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimiser, loss, metrics=["accuracy"], steps_per_execution=steps, jit_compile=compiled)
        fitted = model.fit(x, y, epochs=2, batch_size=50, verbose=0, validation_split=0.1)
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100, seed=3).map(lambda a, b: (a * 2, b)).batch(60)
        model.fit(data, epochs=1, verbose=0)
        print(optimiser, steps, compiled, digest(model.get_weights()), digest([model.predict(x, verbose=0)]))
        print(fitted.history, model.evaluate(x, y, verbose=0))
"""
)
LOOPS = (
    HEAD
    + """
tf.random.set_seed(5)
w, optimiser = tf.Variable(tf.random.normal([20, 3])), tf.keras.optimizers.SGD(0.1)
data = tf.data.Dataset.from_tensor_slices(np.random.RandomState(1).rand(64, 20).astype("f")).batch(16)
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ w))
    optimiser.apply_gradients(zip(tape.gradient(loss, [w]), [w]))
    return loss
for how in (step, tf.function(step), tf.function(step, jit_compile=True)):
    print(how is step, [float(how(x)).hex() for x in data], digest([w.numpy()]))
@tf.function
def whole(data):
    total = 0.0
    for x in data:
        total += tf.reduce_sum(x @ w)
    return total
print("loop in a function", float(whole(data)).hex())
def numbers():
    for i in range(4):
        yield np.float32(i)
made = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.float32))
print([float(v) for v in made.map(lambda v: tf.numpy_function(lambda q: q * 2, [v], tf.float32))])
print(tf.function(lambda v: tf.py_function(lambda q: q + 1, [v], tf.float32) * 2)(tf.ones([2])).numpy())
folder = sys.argv[1]
model = tf.keras.Sequential([tf.keras.layers.Input([3]), tf.keras.layers.Dense(2)])
model.save(f"{folder}/m.keras")
print(np.array_equal(tf.keras.models.load_model(f"{folder}/m.keras").get_weights()[0], model.get_weights()[0]))
saved = tf.train.Checkpoint(model=model)
saved.restore(saved.save(f"{folder}/c/k")).assert_consumed()
print(sorted(name.split(".")[0] for name in os.listdir(f"{folder}/c")))
tf.io.write_file(f"{folder}/text", "words")
print(open(f"{folder}/text").read(), tf.io.read_file(f"{folder}/text").numpy())
try:
    tf.ones([2, 3]) @ tf.ones([2, 3])
except tf.errors.InvalidArgumentError as fault:
    print(type(fault).__name__)
"""
)
PLACES = (
    HEAD
    + """
import threading
from elastic_ai_tensorflow.placing import CLIENT
print(tf.config.list_physical_devices("GPU"), tf.config.get_visible_devices("GPU"))
gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.experimental.set_memory_growth(gpu, True)
tf.config.threading.set_intra_op_parallelism_threads(2)
print(tf.config.experimental.get_device_details(gpu), [one.name for one in tf.config.list_logical_devices("GPU")])
there = []
there.append((tf.ones([2]) + 1).device)
with tf.device("/GPU:0"):
    there.append((tf.ones([2]) + 1).device)
with tf.device(tf.config.list_logical_devices("GPU")[0].name):
    there.append(tf.Variable(1.0).device)
thread = threading.Thread(target=lambda: there.append((tf.ones([2]) + 1).device))
thread.start(); thread.join()
seen = []
@tf.function
def f(x):
    seen.append((x + 1).device)
    return x + 1
f(tf.ones([2])); there += seen
print(set(there))
for wrong in (lambda: tf.compat.v1.Session(), lambda: tf.config.set_logical_device_configuration(gpu, [])):
    try: wrong()
    except (RuntimeError, ValueError) as fault: print(type(fault).__name__, fault)
from tensorflow.python.eager import context, execute
def real(file):  # as no program would: the operator itself, told to be the server's
    return execute.execute("ReadFile", 1, [tf.constant(file)], None, context.context())[0]
for file in ("/etc/passwd", sys.argv[1] + "/mine", sys.argv[2]):
    with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
        try: print("READ", real(file).numpy())
        except tf.errors.OpError as fault: print(type(fault).__name__)
"""
)


@pytest.fixture(scope="module")
def lease(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("engine")
    with server(installed(root, real_python()), root / "s") as running:
        yield running


@pytest.mark.parametrize("program", [MODELS, LOOPS], ids=["models", "loops"])
def test_the_bits_are_those_of_local(lease: Running, tmp_path: Path, program: str) -> None:
    for where in ("local", "remote"):
        (tmp_path / where).mkdir()
    file = tmp_path / "program.py"  # TensorFlow reads the source of functions with loops
    file.write_text(program)
    words = [str(real_python()), str(file)]
    local = subprocess.run([*words, str(tmp_path / "local")], env=LOCAL, capture_output=True, text=True, check=True,
                           timeout=600)  # fmt: skip
    remote = lease.run([*words, str(tmp_path / "remote")], tmp_path / "c", timeout_s=600)
    assert remote.returncode == 0, remote.stderr[-3000:]
    assert remote.stdout.splitlines() == local.stdout.splitlines()


def test_a_program_s_gpus_are_the_lease_s_and_its_files_are_its_own(lease: Running, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("secret")
    done = lease.run([str(real_python()), "-c", PLACES, str(tmp_path), str(lease.folder / "token")], tmp_path / "c")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    one = "[PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]"
    assert lines[0] == f"{one} {one}"
    details = "{'device_name': 'Emulated X', 'compute_capability': (9, 0)}"
    assert lines[1] == f"{details} ['/job:worker/replica:0/task:0/device:GPU:0']"
    assert "localhost" not in lines[2]
    assert "job:worker" in lines[2]
    assert lines[3].startswith("LeaseError elastic-ai: sessions of TensorFlow 1 ")
    assert lines[4].startswith("ValueError a lease's GPU is not divided by the program")
    assert lines[5:] == ["PermissionDeniedError"] * 3


def test_a_part_ends_at_its_limit_with_tensorflow_s_own_error_and_goes_on(lease: Running, tmp_path: Path) -> None:
    """Small as a part of the lab's GPUs: the limit is of tensors alone."""
    program = HEAD + (
        "import time\nheld = []\n"
        "try:\n    while True: held.append(tf.ones([1 << 20]) + 1); held[-1][0].numpy()\n"
        "except tf.errors.ResourceExhaustedError as fault:\n    print(len(held))\n"
        "del held\n"
        "while True:\n"  # what it gave back is free on the server a moment later
        "    try: print(sum(float((tf.ones([1 << 20]) + i)[0]) for i in range(50))); break\n"
        "    except tf.errors.ResourceExhaustedError: time.sleep(0.1)\n"
    )
    with server(lease.engine_dir, tmp_path / "s", limit_mib=100) as part:
        done = part.run([str(real_python()), "-c", program], tmp_path / "c")
        assert done.returncode == 0, done.stderr[-3000:]
        count, more = done.stdout.split()
    assert 20 <= int(count) <= 25, "of 4 MiB each"
    assert more == "1275.0"


def test_kill_leaves_nothing_and_a_lost_server_is_a_sentence(lease: Running, tmp_path: Path) -> None:
    program = HEAD + "x = tf.ones([50 << 20]); float(x[0]); print('there', flush=True)\nwhile True: float((x + 1)[0])\n"
    with server(lease.engine_dir, tmp_path / "s") as own:
        process = subprocess.Popen(
            [str(real_python()), "-c", program], env=own.environment(tmp_path / "c"), stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        pid = int(str(own.events("client")[0]["pid"]))
        process.send_signal(signal.SIGKILL)
        process.wait()
        until = time.monotonic() + 20
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        again = subprocess.Popen(
            [str(real_python()), "-c", program], env=own.environment(tmp_path / "d"), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert again.stdout is not None
        assert again.stdout.readline() == "there\n"
        own.process.terminate()
        _, errors = again.communicate(timeout=60)
        assert again.returncode != 0
        assert "elastic-ai: the lease's server 127.0.0.1:" in errors


def test_no_lease_is_a_sentence_and_nothing_is_computed_here(lease: Running, tmp_path: Path) -> None:
    program = HEAD + "print(tf.ones([2]) + 1)\n"
    environment = lease.environment(tmp_path / "c", token="wrong" * 5)
    done = subprocess.run(
        [str(real_python()), "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "the server does not know this token" in done.stderr.splitlines()[-1]
    environment = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [str(real_python()), "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "so TensorFlow would listen to everybody on this" in done.stderr.splitlines()[-1]
