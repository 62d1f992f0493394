"""Programs of PyTorch, unchanged: natively and by the engine, with one thread each, every loss to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.torch_engine import PROGRAMS, LossesDifferError, same_bits
from tests.support.torch_sweep import LISTS, known

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

TWELVE = (
    "vision", "language", "adversarial", "reinforcement", "mixed_precision", "accumulation", "resume",
    "custom_function", "recurrent", "trainer", "generate", "fft_vmap",
)  # fmt: skip


@pytest.mark.parametrize("name", TWELVE)
def test_a_program_has_the_bits_of_native(name: str, torch_server: Server) -> None:
    """Vision, language, GAN, RL, AMP, accumulation, resume, own functions, LSTM, a trainer, generate, FFT and vmap."""
    path = LISTS / "programs.txt"
    try:
        ran = same_bits(PROGRAMS / f"{name}.py", torch_server)
    except LossesDifferError:  # a crash, a hang or a program that was not on the device is on no list
        if name not in known(path):
            raise
    else:
        assert len(ran["remote"].losses) >= 5
        assert name not in known(path), f"{name} has the bits of native: remove it from {path.name}"
