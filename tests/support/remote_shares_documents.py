"""What the probe of tenants on parts of a GPU prints, made here with rates that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.remote_train_documents import report as trained
from tests.support.remoting_documents import doc
from tests.support.site import result
from validation.kinds import parse
from validation.model import Measurement, Result

SHARES: dict[str, Any] = {
    "server": "gpu1", "parts": ("3/4", "5/20"), "turns": 2, "steps": 12, "batch": 32, "inputs": 64, "hidden": 32,
}  # fmt: skip
#: Changes the report of one tenant: turn, part, number, report.
Change = Callable[[int, str, int, dict[str, Any]], object]


def shares_document(
    params: Mapping[str, Any] = SHARES,
    ratio: float = 1.0,
    emulated: bool = True,
    change: Change | None = None,
    **facts: Any,
) -> Any:
    """All tenants of all turns; `ratio`: all parts together over the whole."""
    lines = []
    parts = list(params["parts"])
    for turn in range(1, int(params["turns"]) + 1):
        for part, number, share in [("1", 0, 1.0), *((p, at, ratio / len(parts)) for at, p in enumerate(parts))]:
            made = trained("remote", int(params["batch"]), params, share, emulated)
            made |= {"began_s": 1000.0 * turn + (0 if part == "1" else 500), "host": "client1"}
            if change is not None:
                change(turn, part, number, made)
            lines.append(f"== turn {turn} of {params['turns']}: {part} {number}\n{json.dumps(made)}\n")
    who = {"server": params["server"], "parts": parts, "emulated": emulated, **facts}
    return doc("remoting-shares", who, "".join(lines))


def shares_result(m: Measurement, **how: Any) -> Result:
    """A measurement's result, by its parser."""
    samples, facts = parse(m.kind, shares_document(m.params, **how), m.params)
    return result(m, samples, facts=facts)
