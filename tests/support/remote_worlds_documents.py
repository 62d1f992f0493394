"""What the probes of trainings on several GPUs print, made here with rates that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.remote_train_documents import RATE
from tests.support.remote_train_documents import report as trained
from tests.support.remoting_documents import doc
from tests.support.site import result
from validation.kinds import parse
from validation.measures.remoting import remoting_layout_probe, remoting_scale_probe
from validation.model import Measurement, Result

SIZES: dict[str, Any] = {"turns": 2, "batch": 32, "steps": 12, "inputs": 64, "hidden": 32}
SCALE: dict[str, Any] = {"servers": ("gpu1", "gpu2"), **SIZES}
LAYOUT: dict[str, Any] = {"server": "gpu1", "other": "gpu2", **SIZES}
#: Changes the report of one job: turn, name, report.
Change = Callable[[int, str, dict[str, Any]], object]


def job(
    uuids: list[str], params: Mapping[str, Any], ratio: float, emulated: bool, remote: bool = True
) -> dict[str, Any]:
    """The report of a job on these GPUs, with so much of the rate that they have one by one."""
    gpus = len(uuids)
    way = "remote" if remote else "native"
    made = trained(way, gpus * int(params["batch"]), params, 1.0, emulated)
    name = made["devices"][0]["name"]
    step_s = gpus * int(params["batch"]) / (RATE * gpus * ratio)
    times = [5 * step_s, *(step_s * (1 + 0.01 * (at % 3 - 1)) for at in range(1, int(params["steps"])))]
    made |= {"gpus": gpus, "devices": [{"name": name, "uuid": uuid} for uuid in uuids], "step_s": times}
    return made | {"images_per_s": made["batch"] * (len(times) - 1) / sum(times[1:])}


def scale_document(
    params: Mapping[str, Any] = SCALE,
    gpus: int = 2,
    ratio: float = 0.9,
    emulated: bool = True,
    change: Change | None = None,
    **facts: Any,
) -> Any:
    """All jobs; `gpus`: of each server; `ratio`: efficiency of more than one GPU."""
    lines = []
    servers = list(params["servers"])
    for turn in range(1, int(params["turns"]) + 1):
        for name, _, count in remoting_scale_probe.worlds(servers, dict.fromkeys(servers, gpus)):
            uuids = [f"GPU-{at}" for at in range(count)]
            made = job(uuids, params, ratio if count > 1 else 1.0, emulated)
            if change is not None:
                change(turn, name, made)
            lines.append(f"== turn {turn} of {params['turns']}: {name} {count}\n{json.dumps(made)}\n")
    who = {"client": "client1", "servers": servers, "gpus": [gpus] * len(servers), "emulated": emulated, **facts}
    return doc("remoting-scale", who, "".join(lines))


def layout_document(
    params: Mapping[str, Any] = LAYOUT,
    gpus: int = 2,
    ratios: Mapping[str, float] | None = None,
    emulated: bool = True,
    change: Change | None = None,
    **facts: Any,
) -> Any:
    """All jobs; `gpus`: of each server; `ratios`: of a layout's letters (L, LR, R) over N, 0.97 where none is said."""
    lines = []
    own, others = ([f"GPU-{where}{at}" for at in range(gpus)] for where in "ab")
    count = remoting_layout_probe.gpus_of_each(gpus, gpus if params["other"] else None)
    for turn in range(1, int(params["turns"]) + 1):
        for name in remoting_layout_probe.layouts(count, str(params["other"])):
            letters = "".join(letter for letter in name if letter.isalpha())
            half = count // 2
            uuids = {"R": others[:count], "LR": [*own[:half], *others[:half]]}.get(letters, own[:count])
            ratio = 1.0 if letters == "N" else (ratios or {}).get(letters, 0.97)
            made = job(uuids, params, ratio, emulated, letters != "N")
            if change is not None:
                change(turn, name, made)
            lines.append(f"== turn {turn} of {params['turns']}: {name} {count}\n{json.dumps(made)}\n")
    who = {"server": params["server"], "other": params["other"], "client": params["server"], "gpus": count}
    who |= {"own": own, "others": others if params["other"] else [], "emulated": emulated, **facts}
    return doc("remoting-layout", who, "".join(lines))


MADE: dict[str, Callable[..., Any]] = {"remoting-scale": scale_document, "remoting-layout": layout_document}


def worlds_result(m: Measurement, **how: Any) -> Result:
    """A measurement's result, by its parser."""
    samples, facts = parse(m.kind, MADE[m.kind](m.params, **how), m.params)
    return result(m, samples, facts=facts)
