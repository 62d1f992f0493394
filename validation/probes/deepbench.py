"""The problem lists of DeepBench for training and for inference, and how many floating-point operations each takes.

Data: baidu-research/DeepBench at da81ba7 (2020-08-11, Apache-2.0), `training_set` and `inference_server_set` of
`code/kernels/gemm_problems.h`, `conv_problems.h` and `rnn_problems.h`, all of them in their order; some stand there
twice. Not taken: the lists for phones (`inference_device_set`) and sparse products. Standard library only: nodes read
it, and the controller, which holds a node's report against it.

Operations are counted as multiplications and additions of the dense products, nothing else:

- GEMM: 2 m n k.
- Convolution: 2 n k c r s p q for each of the three passes (forward, gradient of the input, of the filters).
- Recurrent layer: 4 g h h b t for each of the three passes, with g products for each step's input and as many for its
  state (1 plain, 4 LSTM, 3 GRU). DeepBench's own program leaves the products of the input out (CUDNN_SKIP_INPUT), which
  torch's layers do not: rates of this list are not to be held against its published ones.

For inference there is the forward pass alone.
"""

from __future__ import annotations

GATES = {"vanilla": 1, "lstm": 4, "gru": 3}
PASSES = 3  # of a training step: forward, gradient of the input, gradient of the weights
INFERENCE = "_inference"  # ends the names of the lists of a forward pass alone
TRAINING_LISTS = ("gemm", "conv", "rnn")
INFERENCE_LISTS = tuple(name + INFERENCE for name in TRAINING_LISTS)
LISTS = (*TRAINING_LISTS, *INFERENCE_LISTS)
# Where there is no GPU: those with the fewest operations
CPU_PROBLEMS = {"gemm": 10, "conv": 2, "rnn": 1, "gemm_inference": 5, "conv_inference": 2, "rnn_inference": 1}

# m x n x k, and whether A and B are stored transposed
_GEMM = """
    1760x16x1760NN 1760x32x1760NN 1760x64x1760NN 1760x128x1760NN 1760x7000x1760NN 2048x16x2048NN 2048x32x2048NN
    2048x64x2048NN 2048x128x2048NN 2048x7000x2048NN 2560x16x2560NN 2560x32x2560NN 2560x64x2560NN
    2560x128x2560NN 2560x7000x2560NN 4096x16x4096NN 4096x32x4096NN 4096x64x4096NN 4096x128x4096NN
    4096x7000x4096NN 1760x16x1760TN 1760x32x1760TN 1760x64x1760TN 1760x128x1760TN 1760x7000x1760TN
    2048x16x2048TN 2048x32x2048TN 2048x64x2048TN 2048x128x2048TN 2048x7000x2048TN 2560x16x2560TN 2560x32x2560TN
    2560x64x2560TN 2560x128x2560TN 2560x7000x2560TN 4096x16x4096TN 4096x32x4096TN 4096x64x4096TN
    4096x128x4096TN 4096x7000x4096TN 1760x7133x1760NT 2048x7133x2048NT 2560x7133x2560NT 4096x7133x4096NT
    5124x9124x1760NN 35x8457x1760NN 5124x9124x2048NN 35x8457x2048NN 5124x9124x2560NN 35x8457x2560NN
    5124x9124x4096NN 35x8457x4096NN 5124x9124x1760TN 35x8457x1760TN 5124x9124x2048TN 35x8457x2048TN
    5124x9124x2560TN 35x8457x2560TN 5124x9124x4096TN 35x8457x4096TN 7680x16x2560NN 7680x32x2560NN
    7680x64x2560NN 7680x128x2560NN 7680x16x2560TN 7680x32x2560TN 7680x64x2560TN 7680x128x2560TN 3072x16x1024NN
    3072x32x1024NN 3072x64x1024NN 3072x128x1024NN 3072x16x1024TN 3072x32x1024TN 3072x64x1024TN 3072x128x1024TN
    3072x7435x1024NT 7680x5481x2560NT 512x8x500000NN 1024x8x500000NN 512x16x500000NN 1024x16x500000NN
    512x8x500000TN 1024x8x500000TN 512x16x500000TN 1024x16x500000TN 1024x700x512NN 1024x700x512TN
    7680x24000x2560NN 6144x24000x2048NN 4608x24000x1536NN 8448x24000x2816NN 3072x24000x1024NN 7680x48000x2560NN
    6144x48000x2048NN 4608x48000x1536NN 8448x48000x2816NN 3072x48000x1024NN 7680x24000x2560TN 6144x24000x2048TN
    4608x24000x1536TN 8448x24000x2816TN 3072x24000x1024TN 7680x48000x2560TN 6144x48000x2048TN 4608x48000x1536TN
    8448x48000x2816TN 3072x48000x1024TN 6144x16x2048NN 4608x16x1536NN 8448x16x2816NN 6144x32x2048NN
    4608x32x1536NN 8448x32x2816NN 6144x16x2048TN 4608x16x1536TN 8448x16x2816TN 6144x32x2048TN 4608x32x1536TN
    8448x32x2816TN 512x24000x2816NN 512x24000x2048NN 512x24000x2560NN 512x24000x1536NN 1024x24000x2816NN
    1024x24000x2048NN 1024x24000x2560NN 1024x24000x1536NN 512x16x512NN 1024x16x512NN 512x24000x2816TN
    512x24000x2048TN 512x24000x2560TN 512x24000x1536TN 1024x24000x2816TN 1024x24000x2048TN 1024x24000x2560TN
    1024x24000x1536TN 512x16x512NT 1024x16x512NT 512x48000x2816NN 512x48000x2048NN 512x48000x2560NN
    512x48000x1536NN 1024x48000x2816NN 1024x48000x2048NN 1024x48000x2560NN 1024x48000x1536NN 512x32x512NN
    1024x32x512NN 512x48000x2816TN 512x48000x2048TN 512x48000x2560TN 512x48000x1536TN 1024x48000x2816TN
    1024x48000x2048TN 1024x48000x2560TN 1024x48000x1536TN 512x32x512NT 1024x32x512NT
"""

# w x h x c x n x k x filter_w x filter_h x pad_w x pad_h x stride_w x stride_h
_CONV = """
    700x161x1x4x32x20x5x0x0x2x2 700x161x1x8x32x20x5x0x0x2x2 700x161x1x16x32x20x5x0x0x2x2
    700x161x1x32x32x20x5x0x0x2x2 341x79x32x4x32x10x5x0x0x2x2 341x79x32x8x32x10x5x0x0x2x2
    341x79x32x16x32x10x5x0x0x2x2 341x79x32x32x32x10x5x0x0x2x2 480x48x1x16x16x3x3x1x1x1x1
    240x24x16x16x32x3x3x1x1x1x1 120x12x32x16x64x3x3x1x1x1x1 60x6x64x16x128x3x3x1x1x1x1 108x108x3x8x64x3x3x1x1x2x2
    54x54x64x8x64x3x3x1x1x1x1 27x27x128x8x128x3x3x1x1x1x1 14x14x128x8x256x3x3x1x1x1x1 7x7x256x8x512x3x3x1x1x1x1
    224x224x3x8x64x3x3x1x1x1x1 112x112x64x8x128x3x3x1x1x1x1 56x56x128x8x256x3x3x1x1x1x1
    28x28x256x8x512x3x3x1x1x1x1 14x14x512x8x512x3x3x1x1x1x1 7x7x512x8x512x3x3x1x1x1x1 224x224x3x16x64x3x3x1x1x1x1
    112x112x64x16x128x3x3x1x1x1x1 56x56x128x16x256x3x3x1x1x1x1 28x28x256x16x512x3x3x1x1x1x1
    14x14x512x16x512x3x3x1x1x1x1 7x7x512x16x512x3x3x1x1x1x1 224x224x3x16x64x7x7x3x3x2x2
    28x28x192x16x32x5x5x2x2x1x1 28x28x192x16x64x1x1x0x0x1x1 14x14x512x16x48x5x5x2x2x1x1
    14x14x512x16x192x1x1x0x0x1x1 7x7x832x16x256x1x1x0x0x1x1 7x7x832x16x128x5x5x2x2x1x1 56x56x64x8x64x3x3x1x1x1x1
    56x56x64x8x256x1x1x0x0x2x2 28x28x128x8x128x3x3x1x1x1x1 28x28x128x8x512x1x1x0x0x2x2 14x14x256x8x256x1x1x0x0x1x1
    14x14x256x8x256x3x3x1x1x1x1 14x14x256x8x1024x1x1x0x0x2x2 7x7x512x8x512x1x1x0x0x1x1 7x7x2048x8x512x1x1x3x3x2x2
    56x56x64x16x64x3x3x1x1x1x1 56x56x64x16x256x1x1x0x0x2x2 28x28x128x16x128x3x3x1x1x1x1
    28x28x128x16x512x1x1x0x0x2x2 14x14x256x16x256x1x1x0x0x1x1 14x14x256x16x256x3x3x1x1x1x1
    14x14x256x16x1024x1x1x0x0x2x2 7x7x512x16x512x1x1x0x0x1x1 7x7x2048x16x512x1x1x3x3x2x2
    700x161x1x16x64x5x5x1x1x2x2 350x80x64x16x64x3x3x1x1x1x1 350x80x64x16x128x5x5x1x1x2x2
    175x40x128x16x128x3x3x1x1x1x1 175x40x128x16x256x5x5x1x1x2x2 84x20x256x16x256x3x3x1x1x1x1
    84x20x256x16x512x5x5x1x1x2x2 42x10x512x16x512x3x3x1x1x1x1 112x112x64x8x64x1x1x0x0x1x1
    56x56x64x8x256x1x1x0x0x1x1 56x56x256x8x64x1x1x0x0x1x1 56x56x256x8x128x1x1x0x0x2x2 28x28x128x8x512x1x1x0x0x1x1
    28x28x512x8x128x1x1x0x0x1x1 28x28x512x8x256x1x1x0x0x2x2 14x14x256x8x1024x1x1x0x0x1x1
    28x28x512x8x1024x1x1x0x0x2x2 14x14x1024x8x256x1x1x0x0x1x1 14x14x256x8x1024x1x1x0x0x1x1
    14x14x1024x8x512x1x1x0x0x2x2 7x7x512x8x512x3x3x1x1x1x1 7x7x512x8x2048x1x1x0x0x1x1
    14x14x1024x8x2048x1x1x0x0x2x2 7x7x2048x8x512x1x1x0x0x1x1 112x112x64x16x64x1x1x0x0x1x1
    56x56x64x16x256x1x1x0x0x1x1 56x56x256x16x64x1x1x0x0x1x1 56x56x256x16x128x1x1x0x0x2x2
    28x28x128x16x512x1x1x0x0x1x1 28x28x512x16x128x1x1x0x0x1x1 28x28x512x16x256x1x1x0x0x2x2
    14x14x256x16x1024x1x1x0x0x1x1 28x28x512x16x1024x1x1x0x0x2x2 14x14x1024x16x256x1x1x0x0x1x1
    14x14x256x16x1024x1x1x0x0x1x1 14x14x1024x16x512x1x1x0x0x2x2 7x7x512x16x512x3x3x1x1x1x1
    7x7x512x16x2048x1x1x0x0x1x1 14x14x1024x16x2048x1x1x0x0x2x2 7x7x2048x16x512x1x1x0x0x1x1
"""

# cell - hidden units x batch x time steps
_RNN = """
    vanilla-1760x16x50 vanilla-1760x32x50 vanilla-1760x64x50 vanilla-1760x128x50 vanilla-2048x16x50
    vanilla-2048x32x50 vanilla-2048x64x50 vanilla-2048x128x50 vanilla-2560x16x50 vanilla-2560x32x50
    vanilla-2560x64x50 vanilla-2560x128x50 lstm-512x16x25 lstm-512x32x25 lstm-512x64x25 lstm-512x128x25
    lstm-1024x16x25 lstm-1024x32x25 lstm-1024x64x25 lstm-1024x128x25 lstm-2048x16x25 lstm-2048x32x25
    lstm-2048x64x25 lstm-2048x128x25 lstm-4096x16x25 lstm-4096x32x25 lstm-4096x64x25 lstm-4096x128x25
    lstm-1536x8x50 lstm-1536x16x50 lstm-1536x32x50 lstm-256x16x150 lstm-256x32x150 lstm-256x64x150
    gru-2816x32x1500 gru-2816x32x750 gru-2816x32x375 gru-2816x32x187 gru-2048x32x1500 gru-2048x32x750
    gru-2048x32x375 gru-2048x32x187 gru-1536x32x1500 gru-1536x32x750 gru-1536x32x375 gru-1536x32x187
    gru-2560x32x1500 gru-2560x32x750 gru-2560x32x375 gru-2560x32x187 gru-512x32x1 gru-1024x32x1500
    gru-1024x64x1500
"""

_GEMM_INFERENCE = """
    5124x700x2048NN 35x700x2048NN 5124x700x2560NN 35x700x2560NN 5124x1500x2048NN 35x1500x2048NN 5124x1500x2560NN
    35x1500x2560NN 7680x1x2560NN 7680x2x2560NN 7680x4x2560NN 3072x1x1024NN 3072x2x1024NN 3072x4x1024NN
    512x1x500000NN 1024x1x500000NN 512x2x500000NN 1024x2x500000NN 512x4x500000NN 1024x4x500000NN 1024x700x512NN
    7680x1500x2560NN 6144x1500x2048NN 4608x1500x1536NN 8448x1500x2816NN 3072x1500x1024NN 7680x3000x2560NN
    6144x3000x2048NN 4608x3000x1536NN 8448x3000x2816NN 3072x3000x1024NN 7680x6000x2560NN 6144x6000x2048NN
    4608x6000x1536NN 8448x6000x2816NN 3072x6000x1024NN 6144x1x2048NN 4608x1x1536NN 8448x1x2816NN 6144x2x2048NN
    4608x2x1536NN 8448x2x2816NN 6144x4x2048NN 4608x4x1536NN 8448x4x2816NN 512x1500x2816NN 512x1500x2048NN
    512x1500x2560NN 512x1500x1536NN 1024x1500x2816NN 1024x1500x2048NN 1024x1500x2560NN 1024x1500x1536NN 512x1x512NN
    1024x1x512NN 512x3000x2816NN 512x3000x2048NN 512x3000x2560NN 512x3000x1536NN 1024x3000x2816NN 1024x3000x2048NN
    1024x3000x2560NN 1024x3000x1536NN 512x2x512NN 1024x2x512NN 512x6000x2816NN 512x6000x2048NN 512x6000x2560NN
    512x6000x1536NN 1024x6000x2816NN 1024x6000x2048NN 1024x6000x2560NN 1024x6000x1536NN 512x4x512NN 1024x4x512NN
"""

_CONV_INFERENCE = """
    700x161x1x1x32x20x5x0x0x2x2 700x161x1x2x32x20x5x0x0x2x2 700x161x1x4x32x20x5x0x0x2x2 341x79x32x1x32x10x5x0x0x2x2
    341x79x32x2x32x10x5x0x0x2x2 341x79x32x4x32x10x5x0x0x2x2 480x48x1x1x16x3x3x1x1x1x1 240x24x16x1x32x3x3x1x1x1x1
    120x12x32x1x64x3x3x1x1x1x1 60x6x64x1x128x3x3x1x1x1x1 108x108x3x1x64x3x3x1x1x2x2 54x54x64x1x64x3x3x1x1x1x1
    27x27x128x1x128x3x3x1x1x1x1 14x14x128x1x256x3x3x1x1x1x1 7x7x256x1x512x3x3x1x1x1x1 224x224x3x1x64x3x3x1x1x1x1
    112x112x64x1x128x3x3x1x1x1x1 56x56x128x1x256x3x3x1x1x1x1 28x28x256x1x512x3x3x1x1x1x1 14x14x512x1x512x3x3x1x1x1x1
    7x7x512x1x512x3x3x1x1x1x1 224x224x3x2x64x3x3x1x1x1x1 112x112x64x2x128x3x3x1x1x1x1 56x56x128x2x256x3x3x1x1x1x1
    28x28x256x2x512x3x3x1x1x1x1 14x14x512x2x512x3x3x1x1x1x1 7x7x512x2x512x3x3x1x1x1x1 224x224x3x1x64x7x7x3x3x2x2
    28x28x192x1x32x5x5x2x2x1x1 28x28x192x1x64x1x1x0x0x1x1 14x14x512x1x48x5x5x2x2x1x1 14x14x512x1x192x1x1x0x0x1x1
    7x7x832x1x256x1x1x0x0x1x1 7x7x832x1x128x5x5x2x2x1x1 224x224x3x2x64x7x7x3x3x2x2 28x28x192x2x32x5x5x2x2x1x1
    28x28x192x2x64x1x1x0x0x1x1 14x14x512x2x48x5x5x2x2x1x1 14x14x512x2x192x1x1x0x0x1x1 7x7x832x2x256x1x1x0x0x1x1
    7x7x832x2x128x5x5x2x2x1x1 56x56x64x1x64x3x3x1x1x1x1 56x56x64x1x256x1x1x0x0x2x2 28x28x128x1x128x3x3x1x1x1x1
    28x28x128x1x512x1x1x0x0x2x2 14x14x256x1x256x1x1x0x0x1x1 14x14x256x1x256x3x3x1x1x1x1 14x14x256x1x1024x1x1x0x0x2x2
    7x7x512x1x512x1x1x0x0x1x1 7x7x2048x1x512x1x1x3x3x2x2 56x56x64x2x64x3x3x1x1x1x1 56x56x64x2x256x1x1x0x0x2x2
    28x28x128x2x128x3x3x1x1x1x1 28x28x128x2x512x1x1x0x0x2x2 14x14x256x2x256x1x1x0x0x1x1 14x14x256x2x256x3x3x1x1x1x1
    14x14x256x2x1024x1x1x0x0x2x2 7x7x512x2x512x1x1x0x0x1x1 7x7x2048x2x512x1x1x3x3x2x2 700x161x1x1x64x5x5x1x1x2x2
    350x80x64x1x64x3x3x1x1x1x1 350x80x64x1x128x5x5x1x1x2x2 175x40x128x1x128x3x3x1x1x1x1 175x40x128x1x256x5x5x1x1x2x2
    84x20x256x1x256x3x3x1x1x1x1 84x20x256x1x512x5x5x1x1x2x2 42x10x512x1x512x3x3x1x1x1x1 700x161x1x2x64x5x5x1x1x2x2
    350x80x64x2x64x3x3x1x1x1x1 350x80x64x2x128x5x5x1x1x2x2 175x40x128x2x128x3x3x1x1x1x1 175x40x128x2x256x5x5x1x1x2x2
    84x20x256x2x256x3x3x1x1x1x1 84x20x256x2x512x5x5x1x1x2x2 42x10x512x2x512x3x3x1x1x1x1 112x112x64x1x64x1x1x0x0x1x1
    56x56x64x1x256x1x1x0x0x1x1 56x56x256x1x64x1x1x0x0x1x1 56x56x256x1x128x1x1x0x0x2x2 28x28x128x1x512x1x1x0x0x1x1
    28x28x512x1x128x1x1x0x0x1x1 28x28x512x1x256x1x1x0x0x2x2 14x14x256x1x1024x1x1x0x0x1x1
    28x28x512x1x1024x1x1x0x0x2x2 14x14x1024x1x256x1x1x0x0x1x1 14x14x256x1x1024x1x1x0x0x1x1
    14x14x1024x1x512x1x1x0x0x2x2 7x7x512x1x512x3x3x1x1x1x1 7x7x512x1x2048x1x1x0x0x1x1 14x14x1024x1x2048x1x1x0x0x2x2
    7x7x2048x1x512x1x1x0x0x1x1 112x112x64x2x64x1x1x0x0x1x1 56x56x64x2x256x1x1x0x0x1x1 56x56x256x2x64x1x1x0x0x1x1
    56x56x256x2x128x1x1x0x0x2x2 28x28x128x2x512x1x1x0x0x1x1 28x28x512x2x128x1x1x0x0x1x1 28x28x512x2x256x1x1x0x0x2x2
    14x14x256x2x1024x1x1x0x0x1x1 28x28x512x2x1024x1x1x0x0x2x2 14x14x1024x2x256x1x1x0x0x1x1
    14x14x256x2x1024x1x1x0x0x1x1 14x14x1024x2x512x1x1x0x0x2x2 7x7x512x2x512x3x3x1x1x1x1 7x7x512x2x2048x1x1x0x0x1x1
    14x14x1024x2x2048x1x1x0x0x2x2 7x7x2048x2x512x1x1x0x0x1x1
"""

_RNN_INFERENCE = """
    lstm-512x1x25 lstm-512x2x25 lstm-512x4x25 lstm-1024x1x25 lstm-1024x2x25 lstm-1024x4x25 lstm-2048x1x25
    lstm-2048x2x25 lstm-2048x4x25 lstm-1536x1x50 lstm-1536x2x50 lstm-1536x4x50 lstm-256x1x150 lstm-256x2x150
    lstm-256x4x150 gru-2816x1x1500 gru-2816x1x750 gru-2816x1x375 gru-2816x1x187 gru-2816x2x1500 gru-2816x2x750
    gru-2816x2x375 gru-2816x2x187 gru-2816x4x1500 gru-2816x4x750 gru-2816x4x375 gru-2816x4x187 gru-2048x1x1500
    gru-2048x1x750 gru-2048x1x375 gru-2048x1x187 gru-2048x2x1500 gru-2048x2x750 gru-2048x2x375 gru-2048x2x187
    gru-2048x4x1500 gru-2048x4x750 gru-2048x4x375 gru-2048x4x187 gru-1536x1x1500 gru-1536x1x750 gru-1536x1x375
    gru-1536x1x187 gru-1536x2x1500 gru-1536x2x750 gru-1536x2x375 gru-1536x2x187 gru-1536x4x1500 gru-1536x4x750
    gru-1536x4x375 gru-1536x4x187 gru-2560x1x1500 gru-2560x1x750 gru-2560x1x375 gru-2560x1x187 gru-2560x2x1500
    gru-2560x2x750 gru-2560x2x375 gru-2560x2x187 gru-2560x4x1500 gru-2560x4x750 gru-2560x4x375 gru-2560x4x187
    gru-512x1x1 gru-512x2x1 gru-512x4x1 gru-1024x1x1500 gru-1024x2x1500 gru-1024x4x1500
"""

PROBLEMS: dict[str, tuple[str, ...]] = {
    "gemm": tuple(_GEMM.split()),
    "conv": tuple(_CONV.split()),
    "rnn": tuple(_RNN.split()),
    "gemm_inference": tuple(_GEMM_INFERENCE.split()),
    "conv_inference": tuple(_CONV_INFERENCE.split()),
    "rnn_inference": tuple(_RNN_INFERENCE.split()),
}


def gemm(name: str) -> tuple[int, int, int, bool, bool]:
    """m, n, k and whether A and B are stored transposed, of `1760x16x1760TN`."""
    m, n, k = (int(word) for word in name[:-2].split("x"))
    return m, n, k, name[-2] == "T", name[-1] == "T"


def conv(name: str) -> tuple[int, ...]:
    """The eleven numbers of a convolution: w, h, c, n, k, filter w and h, padding w and h, stride w and h."""
    return tuple(int(word) for word in name.split("x"))


def rnn(name: str) -> tuple[str, int, int, int]:
    """Cell, hidden units, batch and time steps of `lstm-512x16x25`."""
    cell, _, numbers = name.partition("-")
    hidden, batch, steps = (int(word) for word in numbers.split("x"))
    return cell, hidden, batch, steps


def operations(which: str, name: str) -> int:
    """Floating-point operations of a problem of list `which`, all its passes."""
    of, passes = which.removesuffix(INFERENCE), 1 if which.endswith(INFERENCE) else PASSES
    if of == "conv":
        w, h, c, n, k, s, r, pad_w, pad_h, stride_w, stride_h = conv(name)
        q, p = (w + 2 * pad_w - s) // stride_w + 1, (h + 2 * pad_h - r) // stride_h + 1
        return passes * 2 * n * k * c * r * s * p * q
    if of == "rnn":
        cell, hidden, batch, steps = rnn(name)
        return passes * 4 * GATES[cell] * hidden * hidden * batch * steps
    m, n, k, _, _ = gemm(name)
    return 2 * m * n * k


def chosen(which: str, most: int, cpu: bool) -> list[int]:
    """Places in list `which` of the problems to take: all where `most` is 0, else that many from the smallest to the
    largest; on a CPU the smallest.
    """
    order = sorted(range(len(PROBLEMS[which])), key=lambda at: (operations(which, PROBLEMS[which][at]), at))
    if cpu:
        return order[: CPU_PROBLEMS[which]]
    if not 0 < most < len(order):
        return order
    if most == 1:
        return order[-1:]
    return [order[place * (len(order) - 1) // (most - 1)] for place in range(most)]
