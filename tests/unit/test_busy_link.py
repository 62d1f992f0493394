"""A lab's link and a host that stands still for moments."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.lab import network
from toolkit.lab.spec import LabSpec, NodeSpec, counted_rate_bps

STOPPED_S = 0.020
"""A pause of the host that the mean rate has to survive. Ours."""


@pytest.mark.parametrize("rate_gbps", [0.1, 1.0, 10.0])
def test_a_link_has_tokens_and_a_queue_for_as_long_as_its_host_is_stopped(
    rate_gbps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a bucket of 1 ms a link of 1 Gbit/s carried 0.90 to 0.97 of its rate on a busy host."""
    shapes: list[list[str]] = []
    monkeypatch.setattr(network, "run", lambda words, **_: shapes.append(words))
    node = NodeSpec("gpu2", "gpu_servers", 4)
    spec: Any = LabSpec(name="t", index=0, nodes=(node,), rate_gbps=rate_gbps, os="debian 12")
    network.shape_link(spec, node, rate_gbps)
    assert len(shapes) == 2  # both directions
    for words in shapes:
        burst, limit = (int(words[words.index(key) + 1].removesuffix("b")) for key in ("burst", "limit"))
        carried = counted_rate_bps(rate_gbps) / 8 * STOPPED_S
        assert carried <= burst <= limit
        assert (
            burst <= counted_rate_bps(rate_gbps) / 8 / 10
        )  # what a stream begins with is gone within its first second
