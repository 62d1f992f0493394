"""The decoder that suite training trains, on a GPU of somebody else's: its losses are those that are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.torch_engine import PROGRAMS, same_bits
from validation.measures.training.decoder import recorded

if TYPE_CHECKING:
    from tests.support.torch_engine import Server


def test_the_tiny_decoder_has_the_recorded_losses_by_the_engine(torch_server: Server) -> None:
    (curve,) = recorded().curves
    ran = same_bits(PROGRAMS / "decoder.py", torch_server)
    *losses, _ = ran["remote"].losses
    off = [abs(float.fromhex(mine) - theirs) for mine, theirs in zip(losses, curve.losses, strict=True)]
    assert max(off) <= curve.tolerance
