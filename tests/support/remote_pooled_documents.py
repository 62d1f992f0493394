"""What the probe of siloed and pooled jobs prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.remoting_documents import doc
from tests.support.site import result
from validation.kinds import parse
from validation.measures.remoting.plan_pooled import jobs
from validation.measures.remoting.remoting_pooled_probe import ARRANGEMENTS, INFER, Job
from validation.model import Measurement, Result
from validation.probes.remoting_program import tool_of

POOLED: dict[str, Any] = {
    "servers": ("gpu1", "gpu2"),
    "gpus": 2,
    "jobs": tuple(job.words for job in jobs(virtual=True, torch=False)),
}
HAD_S = 8  # each lease
#: Changes what became of one job: arrangement, its name, its record.
Change = Callable[[str, str, dict[str, Any]], object]


def report(job: Job, gpu: str) -> dict[str, Any]:
    """Its program's document, as far as it is read."""
    infer = job.program == INFER
    made: dict[str, Any] = {"tool": tool_of(job.load), "infer": infer, "gpus": 1, "batch": job.batch}
    made |= {"network": job.program} if job.load else {"inputs": job.inputs, "hidden": job.hidden}
    made |= {"steps": job.steps, "losses": [] if infer else [2.3 / (1 + at / 9) for at in range(job.steps)]}
    made |= {"devices": [{"name": "V100", "uuid": gpu}], "servers": [{"host": gpu.rpartition(":")[0]}]}
    return made | {"weights_sha256": f"{job.batch:064x}", "answers_sha256": f"{job.batch:064x}" if infer else ""}


def queue(asked: Sequence[Job], servers: Mapping[str, Sequence[str]], gpus: int) -> dict[str, tuple[str, int, int]]:
    """Job -> GPU, start and end, of a pool that serves those first who asked first and lets nobody overtake; servers:
    of each department."""
    free = {f"{server}:{at}": [0, 0] for server in dict.fromkeys(sum(map(tuple, servers.values()), ()))
            for at in range(gpus)}  # fmt: skip
    found: dict[str, tuple[str, int, int]] = {}
    for job in asked:
        mine = [gpu for gpu in free if gpu.rpartition(":")[0] in servers[job.department]]
        halves = 1 if job.part == "1/2" else 2
        ready = {gpu: sorted(free[gpu])[halves - 1] for gpu in mine}
        gpu = min(mine, key=lambda one: (max(ready[one], int(job.submit_s)), one))
        start = max(ready[gpu], int(job.submit_s))
        free[gpu] = [*sorted(free[gpu])[halves:], *[start + HAD_S] * halves]
        found[job.name] = (gpu, start, start + HAD_S)
    return found


def pooled_document(
    params: Mapping[str, Any] = POOLED,
    emulated: bool = True,
    change: Change | None = None,
    unmade: str = "",
    **facts: Any,
) -> Any:
    """Both arrangements of a queue in order, each job with its GPU for eight seconds."""
    asked = [Job.read(words) for words in params["jobs"]]
    known = {"servers": list(params["servers"]), "emulated": emulated, "unmade": unmade, "free": True}
    known["torch_release"] = "0.1.0" if any(job.load for job in asked) else ""
    if unmade:
        return doc("remoting-pooled", {**known, **facts})
    own = dict(zip(sorted({job.department for job in asked}), params["servers"], strict=True))
    lines, lease = [], 10
    for number, arrangement in enumerate(ARRANGEMENTS):
        servers = {name: [server] if arrangement == "siloed" else params["servers"] for name, server in own.items()}
        base = 1_790_000_000 + 1000 * number
        for name, (gpu, start, end) in queue(asked, servers, params["gpus"]).items():
            job = next(one for one in asked if one.name == name)
            server, _, index = gpu.rpartition(":")
            lease += 1
            made: dict[str, Any] = {"status": 0, "words": "", "lease": lease, "report": report(job, gpu)}
            made["gpus"] = [{"uuid": gpu, "emulated": emulated, "server": server, "server_index": int(index)}]
            moments = {"submit_s": base + int(job.submit_s), "start_s": base + start, "end_s": base + end}
            made["record"] = {**moments, "node": server}
            if change is not None:
                change(arrangement, name, made)
            lines.append(f"== {arrangement} {name}\n{json.dumps(made)}\n")
    return doc("remoting-pooled", {**known, **facts}, "".join(lines))


def pooled_result(m: Measurement, **how: Any) -> Result:
    """The measurement's result, by its parser."""
    samples, facts = parse(m.kind, pooled_document(m.params, **how), m.params)
    return result(m, samples, facts=facts)
