"""The attempts of rm.isolate by PyTorch, against what `toolkit run` refuses before it starts a program."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.commands.run import run
from toolkit.lease import LeaseError
from toolkit.lease.before import sees
from validation.measures.remoting import remoting_isolate_probe
from validation.probes import remoting_program
from validation.probes.tool import Ran


@pytest.mark.parametrize("visible", ["", "0,1,2,3", "all"])
def test_a_program_with_any_gpus_in_its_environment_is_started(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody has seen what it would have reached."""
    asked: list[list[str]] = []
    monkeypatch.setattr(
        remoting_isolate_probe,
        "run_tool",
        lambda words, *_: asked.append(words) or Ran(words, 0, '{"devices": []}', ""),
    )
    monkeypatch.setattr(remoting_program, "python", lambda: "/usr/bin/python3")
    tenant = remoting_isolate_probe.Tenant(1, remoting_isolate_probe.Asked(server="gpu1", engine="torch"))
    tenant.found("device", env={"CUDA_VISIBLE_DEVICES": visible})
    given: dict[str, Any] = run.make_context("run", asked[0][2:]).params
    assert str(given["lease"]) == "1"
    sees.refuse_none("PyTorch", None, {"CUDA_VISIBLE_DEVICES": visible}, given["cpu_ok"])
    if not visible:
        with pytest.raises(LeaseError, match="would see no GPU"):
            sees.refuse_none("PyTorch", None, {"CUDA_VISIBLE_DEVICES": visible}, cpu_ok=False)
