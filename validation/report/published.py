"""Published figures of the reference architecture, drawn beside measured ones as reference points and never judged.

Each with its source; nothing here was measured by this toolkit.
"""

from __future__ import annotations

WHITEPAPER = "Dell whitepaper, February 2019 (C4140 scale-out)"

#: ResNet-50, batch 128 per GPU, fp16: system -> images/s by number of GPUs (8 = two nodes of 4).
SCALING = {
    "C4130, P100-16GB PCIe": {1: 283.0, 4: 1099.0, 8: 2075.0},
    "C4140-K, V100 SXM2": {1: 626.0, 4: 2425.0, 8: 4500.0},
}

#: tf_cnn_benchmarks, 8 GPUs, batch 128 per GPU, fp16, images/s: model -> one figure for each of THROUGHPUT_SYSTEMS.
THROUGHPUT = {
    "Inception-v4": (1606, 1625, 1993),
    "VGG-19": (2449, 2406, 3205),
    "VGG-16": (2762, 2820, 3734),
    "Inception-v3": (3077, 2845, 3685),
    "ResNet-50": (4852, 4500, 5904),
    "GoogLeNet": (7894, 8754, 10801),
    "AlexNet": (16977, 12145, 14969),
}
THROUGHPUT_SYSTEMS = (
    "8 \u00d7 V100-16GB SXM2, one node",
    "2 \u00d7 C4140-K (4 + 4 V100)",
    "2 \u00d7 C4140-M (4 + 4 V100)",
)

#: (case, remote over native, source): 1 GPU.
REMOTE_RATIOS = (
    ("ResNet-50 training, batch 256, 10 GbE", 0.972, "alexhanl/machine-learning, Bitfusion 4.0.1, V100"),
    ("ResNet-50 inference, batch 256, 10 GbE", 0.980, "alexhanl/machine-learning, Bitfusion 4.0.1, V100"),
    ("ResNet-50 inference, batch 1, 10 GbE", 0.623, "alexhanl/machine-learning, Bitfusion 4.0.1, V100"),
    ("ResNeXt-101 inference, batch 1, 10 GbE", 0.691, "alexhanl/machine-learning, Bitfusion 4.0.1, V100"),
)
