"""How long a measurement of remoting waits for GPUs that somebody has."""

from __future__ import annotations

from typing import Any

import pytest

from validation.probes import remoting


class Pool:
    """A GPU that a lease has until a moment, and the clock of who waits for it."""

    def __init__(self, state: str, until_s: float) -> None:
        """state: of the lease, as `toolkit lease list` prints it."""
        self.state, self.until_s, self.now_s = state, until_s, 0.0

    def ask(self, *words: str) -> dict[str, Any]:
        """What the toolkit answers."""
        if words == ("lease", "list", "--all"):
            return {"leases": [{"lease": 7, "state": self.state}, {"lease": 8, "state": "ending"}]}
        assert words == ("gpus",)
        has = self.now_s < self.until_s
        uses = [{"lease": 7}] if has else []
        return {"gpus": [{"node": "gpu1", "index": 0, "free": 0.0 if has else 1.0, "uses": uses}]}

    def sleep(self, seconds: float) -> None:
        """Time goes on."""
        self.now_s += seconds


def pool(monkeypatch: pytest.MonkeyPatch, state: str, until_s: float) -> Pool:
    found = Pool(state, until_s)
    monkeypatch.setattr(remoting, "ask", found.ask)
    monkeypatch.setattr(remoting.time, "sleep", found.sleep)
    monkeypatch.setattr(remoting.time, "monotonic", lambda: found.now_s)
    return found


def test_a_lease_that_is_ending_is_waited_for_as_long_as_a_slow_server_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pool(monkeypatch, "ending", 5 * remoting.FREE_S)
    assert remoting.pool_of(["gpu1"])[0]["free"] == 1
    assert found.now_s == pytest.approx(5 * remoting.FREE_S, abs=2)


@pytest.mark.parametrize(("state", "waits_s"), [("running", remoting.FREE_S), ("ending", remoting.ENDING_S)])
def test_a_gpu_that_stays_in_use_is_named(monkeypatch: pytest.MonkeyPatch, state: str, waits_s: float) -> None:
    found = pool(monkeypatch, state, 10_000)
    with pytest.raises(remoting.Unmet, match="gpu1: GPU 0 is not free"):
        remoting.pool_of(["gpu1"])
    assert found.now_s == pytest.approx(waits_s, abs=2)
