"""What the probe of a program natively, remotely and on a part prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.remoting_documents import doc
from tests.support.site import result
from validation.kinds import parse
from validation.measures.remoting.remoting_unchanged_probe import WAYS
from validation.model import Measurement, Result

UNCHANGED: dict[str, Any] = {"server": "gpu1", "part": "1/2", "size_bytes": 1 << 20}
#: Changes what was said: {"before", "after", "packages", "runs"}.
Change = Callable[[dict[str, Any]], object]


def state(**changes: Any) -> dict[str, Any]:
    """Of a client without a GPU."""
    found = {
        "packages": {"count": 412, "sha256": "a" * 64},
        "kernel": "6.1.0-41-amd64",
        "modules": ["ext4", "nf_tables"],
    }
    return {**found, "driver": "", **changes}


def unchanged_document(
    params: Mapping[str, Any] = UNCHANGED, emulated: bool = True, change: Change | None = None, **facts: Any
) -> Any:
    """All three ways, and nothing changed."""
    runs = [
        {
            "way": way, "program_sha256": "b" * 64, "command_sha256": "c" * 64, "words": 4,
            "sent_sha256": "d" * 64, "back_sha256": "d" * 64, "told_bytes": (128 << 20) >> (way == "part"),
            "library": "/usr/lib/libcuda.so.1" if way == "native" else "/opt/elastic-ai/engine/lib/libcuda.so.1",
        }
        for way in WAYS
    ]  # fmt: skip
    said: dict[str, Any] = {"before": state(), "after": state(), "packages": [], "runs": runs}
    if change is not None:
        change(said)
    known = {"server": params["server"], "part": params["part"], "emulated": emulated}
    return doc("remoting-unchanged", {**known, **facts}, json.dumps(said))


def unchanged_result(m: Measurement, **how: Any) -> Result:
    """A measurement's result, by its parser."""
    samples, facts = parse(m.kind, unchanged_document(m.params, **how), m.params)
    return result(m, samples, facts=facts)
