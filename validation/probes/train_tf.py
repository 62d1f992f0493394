"""The training program of training_short by TensorFlow: the same job and the same report, the ranks joined by Horovod.

For processors: what the training image has is TensorFlow without CUDA. Synthetic images, network, optimizer and losses
are as train_cnn.py has them; the two small networks have the same parameters, and of the seven those that are among
TensorFlow's own applications are there. A step is one graph, in which a gradient is averaged as soon as it is known.

Rank 0 prints one line of JSON. What keeps the job from being measured is in it, too (`cannot`). There is no trace.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are

from validation.probes.train_cnn import LEARNING_RATE, MOMENTUM, NOISE, PATTERNS, WEIGHT_DECAY, figures, say_who
from validation.probes.train_networks import IN_TENSORFLOW, NETWORKS, SMALL, Missing, Network
from validation.probes.train_world import TEXT_BYTES, Alone, bind_rank, launcher, leave, parser_of

PRODUCTS_OF = ("Conv2D", "DepthwiseConv2dNative", "MatMul")
"""Operations of a graph that are products; what type they come out in is the witness of the precision."""
POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16"}


class Ranks(Alone):
    """The ranks, by Horovod's TensorFlow half."""

    name = "tensorflow"

    def __init__(self) -> None:
        """Meet the others. ImportError where Horovod is not there, or was built without TensorFlow."""
        self.hvd: Any = importlib.import_module("horovod.tensorflow")
        self.version = str(importlib.import_module("horovod").__version__)
        self.hvd.init()
        self.rank, self.size, self.local = self.hvd.rank(), self.hvd.size(), self.hvd.local_rank()

    def gather(self, torch: Any, values: list[float]) -> list[list[float]]:
        """By an all-gather. `torch`: TensorFlow."""
        rows = self.hvd.allgather(torch.constant([values], dtype=torch.float64))
        return [list(map(float, row)) for row in rows.numpy().tolist()]

    def texts(self, torch: Any, text: str) -> list[str]:
        """As numbers, so that nothing is unpickled from the network."""
        padded = text.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0")
        rows = self.hvd.allgather(torch.constant([list(padded)], dtype=torch.uint8))
        return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows.numpy().tolist()]

    def close(self) -> None:
        """Leave the others."""
        self.hvd.shutdown()


class Training:
    """A network, its images and everything that a step needs."""

    def __init__(self, tf: Any, ranks: Ranks, args: argparse.Namespace) -> None:
        """Make all of it. Missing for a network that TensorFlow does not have."""
        self.tf, self.ranks, self.args = tf, ranks, args
        network = NETWORKS[args.model]
        tf.keras.mixed_precision.set_global_policy(POLICIES[args.precision])
        tf.random.set_seed(99)
        self.net = build(tf, args.model)
        patterns = tf.random.stateless_normal((PATTERNS, network.side, network.side, 3), seed=(99, 0))
        self.labels = tf.range(args.batch) % PATTERNS
        shape = (args.batch, network.side, network.side, 3)
        noise = tf.random.stateless_normal(shape, seed=(1234, ranks.rank))
        self.images = tf.gather(patterns, self.labels) + NOISE * noise
        self.decay = 0.0 if args.model == SMALL else WEIGHT_DECAY
        self.optimizer = tf.keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
        self.variables = list(self.net.trainable_variables)
        self.optimizer.build(self.variables)
        self.graph = tf.function(self._step)

    def _loss(self) -> Any:
        logits = self.tf.cast(self.net(self.images, training=True), self.tf.float32)
        losses = self.tf.nn.sparse_softmax_cross_entropy_with_logits(self.labels, logits)
        return self.tf.reduce_mean(losses)

    def _gradients(self) -> tuple[Any, list[Any]]:
        with self.tf.GradientTape() as tape:
            loss = self._loss()
        return loss, tape.gradient(loss, self.variables)

    def _step(self) -> tuple[Any, Any, Any]:
        """Loss, and when (seconds of the epoch) this rank's own part was done and when the average was there."""
        tf = self.tf
        loss, gradients = self._gradients()
        if self.decay:
            gradients = [made + self.decay * value for made, value in zip(gradients, self.variables)]
        with tf.control_dependencies(gradients):
            done = tf.timestamp()
        if self.ranks.size > 1:
            gradients = [self.ranks.hvd.allreduce(made, name=f"gradient.{at}") for at, made in enumerate(gradients)]
        with tf.control_dependencies([done, *gradients]):
            averaged = tf.timestamp()
        self.optimizer.apply_gradients(zip(gradients, self.variables))
        return loss, done, averaged

    def try_alone(self) -> dict[str, int]:
        """Loss and gradients of this rank by itself, which learns nothing; the types of its products on the way."""
        tf = self.tf
        tf.function(self._gradients)()
        seen: dict[str, int] = {}
        for one in tf.function(self._loss).get_concrete_function().graph.get_operations():
            if one.type in PRODUCTS_OF:
                name = str(one.outputs[0].dtype.name)
                seen[name] = seen.get(name, 0) + 1
        return seen

    def begin(self) -> None:
        """All ranks with the parameters of rank 0."""
        if self.ranks.size > 1:
            self.ranks.hvd.broadcast_variables(self.net.variables, root_rank=0)

    def step(self) -> tuple[float, list[float]]:
        """Loss, and seconds: the whole step, input, forward and backward, waiting for the average of gradients."""
        begin, first = time.perf_counter(), time.time()
        loss, done, averaged = self.graph()
        value, own, shared = float(loss), float(done), float(averaged)
        return value, [time.perf_counter() - begin, 0.0, own - first, shared - own]

    def trace(self) -> None:
        """None is kept."""
        return None

    def sums(self) -> list[float]:
        """The sum of each parameter."""
        return [float(self.tf.reduce_sum(self.tf.cast(one, self.tf.float64))) for one in self.variables]

    def count(self) -> int:
        """Parameters that are trained."""
        return sum(int(self.tf.size(one)) for one in self.variables)


def build(tf: Any, name: str) -> Any:
    """The network with weights at random; Missing where TensorFlow has none of that name."""
    network, entry = NETWORKS[name], IN_TENSORFLOW.get(name, "")
    if not entry:
        raise Missing(f"{network.title} is none of TensorFlow's own networks; those are {', '.join(IN_TENSORFLOW)}")
    if network.library != "own":
        made = getattr(tf.keras.applications, entry)
        return made(weights=None, classes=network.classes, classifier_activation=None)
    return {"plain": _plain, "residual": _residual}[entry](tf.keras, network)


def _plain(keras: Any, network: Network) -> Any:
    """Two convolutions and two full layers, as train_networks has them."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((network.side, network.side, 3)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPool2D(2),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPool2D(4),
            layers.Flatten(),
            layers.Dense(200, activation="relu"),
            layers.Dense(network.classes),
        ]
    )


def _residual(keras: Any, network: Network) -> Any:
    """One block for each width, as train_networks has them."""
    layers = keras.layers

    def convolved(made: Any, width: int, side: int, stride: int) -> Any:
        made = layers.Conv2D(width, side, strides=stride, padding="same", use_bias=False)(made)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(made)

    def block(made: Any, before: int, width: int, stride: int) -> Any:
        path = layers.ReLU()(convolved(made, width, 3, stride))
        path = convolved(path, width, 3, 1)
        beside = made if stride == 1 and before == width else convolved(made, width, 1, stride)
        return layers.ReLU()(path + beside)

    given = keras.Input((network.side, network.side, 3))
    made = layers.ReLU()(convolved(given, 16, 3, 1))
    for before, width, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        made = block(made, before, width, stride)
    made = layers.GlobalAveragePooling2D()(made)
    return keras.Model(given, layers.Dense(network.classes)(made))


def prepare(args: argparse.Namespace, tf: Any, ranks: Ranks) -> tuple[Training | None, dict[str, Any]]:
    """What is ready to train on every rank, or why one of them cannot, which all of them learn."""
    made, found, why = None, dict[str, Any](), ""
    if args.device == "gpu":
        why = f"TensorFlow {tf.__version__} trains on processors here, and GPUs are asked for"
    elif args.precision not in POLICIES:
        why = f"processors do not train in {args.precision}"
    else:
        try:
            made = Training(tf, ranks, args)
            found = {"products": made.try_alone(), "tf32": False}
        except Missing as fault:
            why = str(fault)
        except tf.errors.ResourceExhaustedError:
            why = f"out of memory: a batch of {args.batch} images does not fit on {platform.machine()}"
    said = [text for text in ranks.texts(tf, why) if text]
    found["devices"] = ranks.texts(tf, f"cpu {platform.machine()}")
    return made, {**found, "cannot": said[0] if said else "", "cannot_ranks": len(said)}


def train(args: argparse.Namespace, tf: Any, ranks: Ranks) -> dict[str, Any]:
    """Run all steps on this rank and gather what the ranks measured; the same dictionary on every rank."""
    training, found = prepare(args, tf, ranks)
    told = {
        **about(args, ranks.size),
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "tensorflow": str(tf.__version__),
        "horovod": ranks.version,
        "hosts": ranks.texts(tf, socket.gethostname()),
        **found,
    }
    if told["cannot"] or training is None:
        return told
    training.begin()
    losses, seconds = [], []
    for _ in range(args.warmup + args.steps):
        loss, times = training.step()
        losses.append(loss)
        seconds.append(times)
    return {**told, **figures(args, tf, ranks, training, losses, seconds)}


def about(args: argparse.Namespace, size: int) -> dict[str, Any]:
    """What every report says of its job."""
    return {
        "world_size": size,
        "model": args.model,
        "precision": args.precision,
        "batch": args.batch,
        "warmup": args.warmup,
        "steps": args.steps,
        "framework": Ranks.name,
        "launcher": launcher(),
        "python": platform.python_version(),
        "torch": "",
    }


def without(args: argparse.Namespace, why: str) -> None:
    """The report of a job whose ranks cannot meet, by the first of them as the launcher counts."""
    if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
        size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
        print(json.dumps({**about(args, size), "cannot": why}), flush=True)


def main() -> None:
    """One rank."""
    parser = parser_of(__doc__)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    bind_rank(args)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # it would tell of the GPUs that its build has not
    try:
        tf: Any = importlib.import_module("tensorflow")  # by name, for the controller that reads this file has it not
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.set_visible_devices([], "GPU")
        ranks = Ranks()
    except ImportError as fault:
        without(args, f"no TensorFlow with Horovod is in this image: {fault}")
        return
    say_who(ranks)
    report = train(args, tf, ranks)
    if ranks.rank == 0:
        report.pop("trace", None)
        print(json.dumps(report), flush=True)
    leave(ranks)


if __name__ == "__main__":
    main()
