"""The decoders that train_decoder.py trains, and what a token of one costs. Read on the controller: no torch here."""

from __future__ import annotations

from typing import NamedTuple


class Decoder(NamedTuple):
    """A transformer as language models have it: pre-norm, rotary positions, grouped queries, gated feed-forward.

    `sharded`: by default its parameters are divided over the ranks (FSDP), else each rank has all of them (DDP).
    """

    title: str
    layers: int
    width: int
    heads: int
    key_heads: int
    inner: int
    vocabulary: int
    context: int
    rate: float  # of AdamW
    sharded: bool = False

    @property
    def block(self) -> int:
        """Parameters of a layer."""
        attention = 2 * self.width**2 + 2 * self.width * (self.width // self.heads) * self.key_heads
        return attention + 3 * self.width * self.inner + 2 * self.width

    @property
    def parameters(self) -> int:
        """All of them: layers, the last norm, and the tables of tokens at both ends."""
        return self.layers * self.block + self.width + 2 * self.vocabulary * self.width

    @property
    def flops(self) -> int:
        """Of a token, forward and backward: 6 N + 12 L d s (A. Chowdhery et al., PaLM, 2022, appendix B).

        N leaves out the table at the entrance, which nothing is multiplied with. The attention counts the whole square
        of the context, as there and in Megatron-LM (D. Narayanan et al., 2021, section 5.1), by which the published
        rates are; a kernel that leaves out what causality masks does half of that term. What is computed again for
        the way back is not counted.
        """
        multiplied = self.parameters - self.vocabulary * self.width
        return 6 * multiplied + 12 * self.layers * self.width * self.context


DECODERS = {
    "decoder-tiny": Decoder("tiny decoder", 2, 64, 4, 2, 176, 256, 64, 3e-3),
    "decoder-1b": Decoder("decoder of 1 billion", 18, 2048, 16, 16, 5632, 32768, 2048, 3e-4),
    "decoder-8b": Decoder("decoder of 8 billion", 32, 4096, 32, 8, 14336, 128256, 4096, 3e-4, True),
}
TINY = "decoder-tiny"
SHORT = {"tiny": TINY, "1b": "decoder-1b", "8b": "decoder-8b"}
"""What the command line calls them."""
