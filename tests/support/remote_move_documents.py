"""What the probe of a GPU that changes hands prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.remote_train_documents import of_load
from tests.support.remote_train_documents import report as trained
from tests.support.remoting_documents import doc
from tests.support.site import result
from validation.kinds import parse
from validation.measures.remoting.remoting_move_probe import WITHOUT_END
from validation.model import Measurement, Result

MOVE: dict[str, Any] = {
    "server": "gpu1", "elsewhere": "gpu2", "batch": 32, "inputs": 64, "hidden": 32, "pace_ms": 50, "steps": 40,
    "safe_s": 300.0,
}  # fmt: skip
DONE = 100  # steps when the program was told
SIZE = 20_500  # bytes of its checkpoint
#: Changes the report of one program: its name, its report.
Change = Callable[[str, dict[str, Any]], object]


def _report(steps: int, params: Mapping[str, Any], emulated: bool, uuid: str, began_s: float, before: int = 0) -> Any:
    made = trained("remote", int(params["batch"]), {**params, "steps": steps}, 1.0, emulated)
    made["devices"] = [{**made["devices"][0], "uuid": uuid}]
    more = {"opened_s": began_s - 0.2, "began_s": began_s, "ended_s": began_s + 2.0, "planned_steps": steps}
    more |= {"resumed_from": before, "step_s": made["step_s"][before:], "told_s": None, "told_by": "", "kept": None}
    return of_load({**made, **more}, params)


def move_document(
    params: Mapping[str, Any] = MOVE,
    emulated: bool = True,
    change: Change | None = None,
    unmade: str = "",
    **facts: Any,
) -> Any:
    """Asked at 1,000 s, told at 1,020, gone at 1,022; the other's first step at 1,030, the first after it at 1,040."""
    steps, where = DONE + int(params["steps"]), {key: params[key] for key in ("server", "elsewhere")}
    known = {**where, "emulated": emulated, "unmade": unmade}
    if unmade:
        return doc("remoting-move", {**known, **facts})
    there = "GPU-1" if params["elsewhere"] else "GPU-0"
    made = {
        "gave": _report(DONE, params, emulated, "GPU-0", 990.0),
        "took": _report(int(params["steps"]), params, emulated, "GPU-0", 1030.0),
        "resumed": _report(steps, params, emulated, there, 1040.0, DONE),
        "whole": _report(steps, params, emulated, "GPU-0", 1060.0),
    }
    kept = {"steps": DONE, "bytes": SIZE, "seconds": 0.01, "saved_s": 1020.1}
    told = {"told_s": 1020.0, "told_by": "SIGTERM", "kept": kept, "ended_s": 1020.2, "planned_steps": int(WITHOUT_END)}
    made["gave"] |= told
    for name, one in made.items():
        if change is not None:
            change(name, one)
    known |= {"gave": "patient", "took": "urgent", "grace_s": 90.0, "safe_s": 0.0, "asked_s": 1000.0, "gone_s": 1022.0}
    known["leases"] = {"gave": {"start_s": 500, "end_s": 552}, "took": {"start_s": 555, "end_s": 561}}
    text = "".join(f"== {name}\n{json.dumps(one)}\n" for name, one in made.items())
    return doc("remoting-move", {**known, **facts}, text)


def move_result(m: Measurement, **how: Any) -> Result:
    """The measurement's result, by its parser."""
    samples, facts = parse(m.kind, move_document(m.params, **how), m.params)
    return result(m, samples, facts=facts)
