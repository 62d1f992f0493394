"""What probe gpu-container says of imaginary nodes whose containers keep their GPUs. Tests spoil it."""

from __future__ import annotations

import json
from typing import Any

from tests.support.site import result
from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.model import Measurement, Result


def facts(gpus: int, **changes: Any) -> dict[str, Any]:
    """A node with so many GPUs."""
    return {
        "type": "gpu-container",
        "docker": "29.8.1",
        "toolkit": "NVIDIA Container Toolkit CLI version 1.19.1",
        "cgroups": "systemd v2",
        "host": gpus,
        "image": "sha256:4f2d",
        "unmade": "",
        "before": {"gpus": gpus, "said": ""},
        "after": {"gpus": gpus, "said": ""},
        "left": False,
        **changes,
    }


def read(measurement: Measurement, found: dict[str, Any]) -> Result:
    """Its result."""
    printed = doc("gpu-container", json.dumps(found), found, tool="docker", tool_version=found["docker"])
    samples, parsed = parse("gpu-container", printed, measurement.params)
    return result(measurement, samples, facts=parsed)
