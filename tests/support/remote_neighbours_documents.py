"""What the probes of a tenant beside its neighbours, and of changes of parts, print."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.remote_train_documents import of_load
from tests.support.remote_train_documents import report as trained
from tests.support.remoting_documents import doc
from tests.support.site import result
from validation.kinds import parse
from validation.measures.remoting.remoting_neighbours_probe import cases_of
from validation.model import Measurement, Result

NEIGHBOURS: dict[str, Any] = {
    "server": "gpu1", "turns": 2, "steps": 12, "batch": 32, "noise": 512, "inputs": 64, "hidden": 32,
}  # fmt: skip
NOREBOOT: dict[str, Any] = {"server": "gpu1", "wholes": ("1/2+1/2", "3/4+5/20")}
#: Changes the report of one program: turn, case, report.
Change = Callable[[int, str, dict[str, Any]], object]


def neighbours_document(
    params: Mapping[str, Any] = NEIGHBOURS,
    ratio: float = 0.97,
    emulated: bool = True,
    change: Change | None = None,
    **facts: Any,
) -> Any:
    """All cases of all turns; `ratio`: the tenant's rate beside noise over that alone."""
    lines = []
    for turn in range(1, int(params["turns"]) + 1):
        began_s = 1000.0 * turn
        cases = cases_of(params.get("load", ()))
        for case in (*cases, "neighbour") if "fault" in cases else cases:
            if case == "neighbour":
                made = {"status": 2, "words": "elastic-ai-train: 700", "ended_s": began_s + 1e-3, "after": 0}
            else:
                share = ratio if case == "noise" else 1.0
                made = {**trained("remote", int(params["batch"]), params, share, emulated), "began_s": began_s}
                made = of_load(made, params)
            if change is not None:
                change(turn, case, made)
            lines.append(f"== turn {turn} of {params['turns']}: {case}\n{json.dumps(made)}\n")
    return doc("remoting-neighbours", {"server": params["server"], "emulated": emulated, **facts}, "".join(lines))


def noreboot_document(params: Mapping[str, Any] = NOREBOOT, emulated: bool = True, reboots: int = 0) -> Any:
    """All ways to cut a GPU; `reboots`: so many of them, the last ones, with another boot id of the server."""
    wholes = [str(whole).split("+") for whole in params["wholes"]]
    changes = [
        {
            "parts": whole,
            "seconds": 2.5,
            "ids": {"server": f"id-{max(0, at - len(wholes) + reboots)}", "client": "id-c"},
        }
        for at, whole in enumerate(wholes, 1)
    ]
    said = {"before": {"server": "id-0", "client": "id-c"}, "changes": changes}
    return doc("remoting-noreboot", {"server": params["server"], "emulated": emulated}, json.dumps(said))


BESIDE: dict[str, Callable[..., Any]] = {
    "remoting-neighbours": neighbours_document,
    "remoting-noreboot": noreboot_document,
}


def beside_result(m: Measurement, **how: Any) -> Result:
    """A measurement's result, by its parser."""
    samples, facts = parse(m.kind, BESIDE[m.kind](m.params, **how), m.params)
    return result(m, samples, facts=facts)
