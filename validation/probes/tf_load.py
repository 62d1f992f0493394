"""A network of the founding documents trained by ordinary TensorFlow, timed: what remoting is measured by.

    python tf_load.py --network resnet50 --batch 32,64 --steps 41 --every 10

A load as that of tf_cnn_benchmarks: Keras layers, a step in one `tf.function`, SGD with momentum, made-up images, which
are sent as bytes. It knows nothing of leases: natively it takes the GPU (or, with --processor, stands on the processor
that stands in for one), by `toolkit run` the leased one. Everything follows from the seed; steps and times are
load_run's. One line of JSON for each batch size, like that of elastic-ai-train.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

if "validation.probes" not in sys.modules:  # a GPU server is given all as text (remoting_program)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from validation.probes import load_run
from validation.probes import tf_networks as networks
from validation.probes.load_run import DECAY, KINDS, MOMENTUM, RATE

TOOL = "tf_load"


class Load:
    """A network on the first GPU, and its data."""

    tool, known = TOOL, networks
    source: str = globals().get("SOURCE") or Path(__file__).read_text(encoding="utf-8")

    def __init__(self, options: argparse.Namespace, batch: int) -> None:
        """Seeded anew, so that each batch size begins alike."""
        self.options, self.batch = options, batch
        self.side = options.side or networks.NETWORKS[options.network].side
        self.gpus = [] if options.processor else tf.config.list_physical_devices("GPU")
        if not options.processor and not self.gpus:
            raise SystemExit(f"{TOOL}: no GPU is visible here")
        tf.keras.backend.clear_session()
        tf.keras.utils.set_random_seed(options.seed)
        data = np.random.RandomState(options.seed)
        shape = (KINDS, batch, self.side, self.side, 3)
        self.images = data.randint(0, 256, shape, dtype=np.uint8)
        self.labels = data.randint(0, networks.CLASSES, (KINDS, batch))
        self.net = networks.build(options.network, self.side, options.thin)
        self.optimiser = tf.keras.optimizers.SGD(RATE, momentum=MOMENTUM)
        self.optimiser.build(self.net.trainable_variables)
        self._one = tf.function(self._step, jit_compile=False)

    def _step(self, images: Any, labels: Any) -> Any:
        variables = self.net.trainable_variables
        with tf.GradientTape() as tape:
            logits = self.net(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = [made + DECAY * value for made, value in zip(tape.gradient(loss, variables), variables)]
        self.optimiser.apply_gradients(zip(gradients, variables))
        return loss

    def step(self, number: int) -> Any:
        """Trains by one batch; its mean loss, not waited for."""
        return self._one(self.images[number % KINDS], self.labels[number % KINDS])

    def read(self, waiting: list[Any]) -> list[float]:
        """The losses of these steps, by one answer."""
        losses: list[float] = tf.stack(waiting).numpy().tolist()
        return losses

    def weights(self) -> bytes:
        """All numbers of the network, running means too."""
        return b"".join(value.astype(np.float32).tobytes() for value in self.net.get_weights())

    def count(self) -> int:
        """Numbers that are learned."""
        return sum(int(np.prod(value.shape)) for value in self.net.trainable_variables)

    def about(self) -> dict[str, Any]:
        """What computed."""
        return {"tensorflow": tf.__version__, "threads": tf.config.threading.get_intra_op_parallelism_threads()}

    def seen(self) -> list[dict[str, str]]:
        """Name and UUID of its device: what the lease says of it, or natively what made it visible, or what a processor
        stands in for."""
        if self.options.processor:
            return [{"name": "processor", "uuid": self.options.processor}]
        leased = [str(one["uuid"]) for one in load_run.leased()]
        name = tf.config.experimental.get_device_details(self.gpus[0]).get("device_name", "GPU")
        return [{"name": name, "uuid": (leased or os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))[0]}]

    def servers(self) -> list[dict[str, str]]:
        """Where its device is, by the lease; none natively."""
        return [] if self.options.processor else load_run.servers_in("ELASTIC_AI_TENSORFLOW_SERVERS")


def main() -> int:
    """Run it; the exit code."""
    options = load_run.parser_of("tensorflow", TOOL, __doc__, networks).parse_args()
    if options.processor:  # as many threads as a server of the engine has, however few processors a job was given
        tf.config.threading.set_intra_op_parallelism_threads(os.cpu_count())
    return load_run.main(Load, options)


if __name__ == "__main__":
    sys.exit(main())
