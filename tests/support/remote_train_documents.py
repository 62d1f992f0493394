"""What the probe of trainings natively and remotely prints, made here with rates that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.remoting_documents import doc
from tests.support.site import result
from validation.kinds import parse
from validation.measures.remoting.remoting_train_probe import order
from validation.model import Measurement, Result

TRAIN: dict[str, Any] = {
    "server": "gpu1", "batches": ("8", "32", "64"), "turns": 2, "steps": 12, "inputs": 64, "hidden": 32,
}  # fmt: skip
RATE = 10_000.0
#: Changes the report of one job: turn, way, batch, report.
Change = Callable[[int, str, int, dict[str, Any]], object]


def report(way: str, batch: int, params: Mapping[str, Any], ratio: float, emulated: bool) -> dict[str, Any]:
    """Of one job; its steps differ by a hundredth, and the first is slow."""
    steps = int(params["steps"])
    step_s = batch / (RATE * (ratio if way == "remote" else 1.0))
    # What the engine adds is a synchronisation's; so the model explains every ratio that is not above 1.
    added = max(0.0, batch / RATE * (1 / ratio - 1)) if way == "remote" else 0.0
    each = {"synchronisation": 1e-5, "launches": 5e-5, "to_device": 3e-5, "from_device": 2e-5}
    costs = {f"{kind}_s": [seconds + added] * 3 for kind, seconds in each.items()}
    bytes_to = batch * 4 * (int(params["inputs"]) + 1)
    times = [5 * step_s, *(step_s * (1 + 0.01 * (at % 3 - 1)) for at in range(1, steps))]
    server = {"host": "gpu1", "emulated": emulated, "devices": [{"uuid": "GPU-0"}]}
    return {
        "tool": "elastic-ai-train", "label": "", "host": "gpu1" if way == "native" else "client1",
        "emulated": emulated, "devices": [{"name": "Emulated V100" if emulated else "V100", "uuid": "GPU-0"}],
        "servers": [server] if way == "remote" else [], "gpus": 1, "infer": False, "steps": steps, "batch": batch,
        "inputs": params["inputs"], "hidden": params["hidden"], "classes": 10, "seed": 1, "weights": 2410,
        "code_sha256": "c" * 64, "losses": [2.3 / (1 + at / batch) for at in range(steps)],
        "weights_sha256": f"{batch:064x}", "answers_sha256": "",
        "images_per_s": batch * (steps - 1) / sum(times[1:]), "step_s": times, "launches": 13 * steps,
        "bytes_to_devices": steps * bytes_to, "bytes_from_devices": 4 * steps, "synchronisations": steps,
        "wait_s": [1e-5] * steps,
        "costs": {"launches_each": 13, "bytes_to_device": bytes_to, "bytes_from_device": 4, **costs},
    }  # fmt: skip


def of_load(made: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The same report by the PyTorch program, where the plan has a load."""
    if not params.get("load"):
        return made
    words = list(params["load"])
    network, side, thin = (words[words.index(f"--{key}") + 1] for key in ("network", "side", "thin"))
    counted = {key: value for key, value in made.items() if key != "costs"}
    return {**counted, "tool": "torch_load", "network": network, "side": int(side), "thin": int(thin)}


def train_document(
    params: Mapping[str, Any] = TRAIN,
    ratios: Mapping[int, float] | None = None,
    emulated: bool = True,
    change: Change | None = None,
    **facts: Any,
) -> Any:
    """All jobs in their order; `ratios`: remote over native by batch, 0.97 where nothing is said."""
    lines = []
    for turn in range(1, int(params["turns"]) + 1):
        for batch in map(int, params["batches"]):
            for way in order(turn):
                made = of_load(report(way, batch, params, (ratios or {}).get(batch, 0.97), emulated), params)
                if change is not None:
                    change(turn, way, batch, made)
                lines.append(f"== turn {turn} of {params['turns']}: {way} {batch}\n{json.dumps(made)}\n")
    said = {"server": params["server"], "emulated": emulated, **facts}
    if "rate_by" in params:
        said.setdefault("link", {key: params[key] for key in ("gbps", "delay_us", "rate_by", "delay_by")})
    return doc("remoting-train", said, "".join(lines))


INFER: dict[str, Any] = {**TRAIN, "batches": ("1", "8", "64"), "steps": 101}


def infer_document(
    params: Mapping[str, Any] = INFER,
    ratio: float = 0.5,
    emulated: bool = True,
    change: Change | None = None,
    **facts: Any,
) -> Any:
    """All jobs that answer, in their order; `ratio`: remote over native rate."""

    def answers(turn: int, way: str, batch: int, made: dict[str, Any]) -> None:
        made.update(infer=True, losses=[], answers_sha256=f"{batch:064x}")
        if change is not None:
            change(turn, way, batch, made)

    ratios = dict.fromkeys(map(int, params["batches"]), ratio)
    return train_document(params, ratios, emulated, answers, **facts) | {"kind": "remoting-infer"}


def infer_result(m: Measurement, **how: Any) -> Result:
    """A measurement's result, by its parser."""
    samples, facts = parse(m.kind, infer_document(m.params, **how), m.params)
    return result(m, samples, facts=facts)


def train_result(m: Measurement, **how: Any) -> Result:
    """A measurement's result, by its parser."""
    samples, facts = parse(m.kind, train_document(m.params, **how), m.params)
    return result(m, samples, facts=facts)
