"""tf_cnn_benchmarks beside the short training, where the operator has put it into the training container."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from validation.measures.training.tf_cnn_benchmarks_probe import NAMES
from validation.model import Measurement, Node
from validation.plan.request import Part, PlanError, Request, transport_of
from validation.plan.training_choice import Config, on_gpus

KIND = "tf-cnn-benchmarks"


def plan(
    request: Request,
    part: Part,
    configs: Sequence[Config],
    head: Node,
    servers: Sequence[Node],
    counts: Mapping[int, int],
    steps: tuple[int, int],
) -> None:
    """The jobs of the short training again, each by itself, with TensorFlow; nothing without the option.

    `counts`: numbers of ranks -> how many servers. `steps`: of warm-up, and measured. PlanError for what is no path.
    """
    program = request.words.get("tf_cnn_benchmarks", "")
    if not program:
        if names := request.serving(KIND):
            why = "tf_cnn_benchmarks (tn.tfcnn): only where the operator has it, by --tf-cnn-benchmarks"
            part.leave_out(why, *names)
        return
    if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+\.py", program) or ".." in program:
        raise PlanError(
            f"--tf-cnn-benchmarks {program}: a path of the container is wanted, as /opt/x/tf_cnn_benchmarks.py"
        )
    able = [c for c in configs if c.model in NAMES and c.precision in ("fp32", "fp16")]
    if not able:
        part.leave_out(
            "tf_cnn_benchmarks (tn.tfcnn): it has none of the networks and number formats that are trained; "
            "--models resnet50 --dtype fp32, for one, it has",
            "tn.tfcnn",
        )
    gpus = on_gpus(servers)
    for config in able:
        for ranks, nodes in sorted(counts.items(), key=lambda item: (item[1], item[0])):
            hosts = servers[:nodes]
            estimated = (90.0 + sum(steps) * 0.3) if gpus else (30.0 + sum(steps) * config.batch * 0.3)
            mine = tuple(n.name for n in hosts)
            made = Measurement(
                id=f"{KIND}.{config.model}-b{config.batch}-{config.precision}.{ranks}",
                suite="training",
                kind=KIND,
                nodes=tuple(dict.fromkeys((head.name, *mine))),
                params={
                    "program": program,
                    "label": str(ranks),
                    "ranks": ranks,
                    "ranks_per_node": ranks // nodes,
                    "hosts": mine,
                    "warmup": steps[0],
                    "steps": steps[1],
                    "batch": config.batch,
                    "transport": transport_of(request, hosts),
                    "model": config.model,
                    "precision": config.precision,
                    "device": "gpu" if gpus else "cpu",
                },
                criteria=tuple(c for c in ("tn.tfcnn",) if c in request.serving(KIND)),
                estimated_s=estimated,
                timeout_s=10 * estimated + 120,
            )
            part.rounds.append([made])
