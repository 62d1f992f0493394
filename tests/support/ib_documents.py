"""What the tools of InfiniBand print of a fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.rdma_case import LOADED, PREFLIGHT, machines, ports_of, results
from tests.support.site import plan_of, result, verdict_of, with_value
from tests.support.tool_documents import doc as tool_doc
from validation.kinds import parse
from validation.measures.rdma.ib_fabric import IbFabricFacts
from validation.model import VerdictDoc

DATA = Path(__file__).parent.parent / "data" / "infiniband"


TEXTS = {path.stem: path.read_text() for path in DATA.glob("*.out")}


CLEAN, ERRORS = TEXTS["ibqueryerrors-clean"], TEXTS["ibqueryerrors-errors"]


SITE = machines()


def document(errors: str = CLEAN, **changes: str) -> dict[str, Any]:
    """The probe's document; `changes` replace a tool's output."""
    parts = {
        "sminfo": TEXTS["sminfo"],
        "ibnetdiscover": TEXTS["ibnetdiscover-ports"],
        "ibqueryerrors": errors,
        **changes,
    }
    stdout = "# ibnetdiscover --version\nBUILD VERSION: 44.0\n" + "".join(
        f"$ {tool} -C mlx5_0 -P 1\n{text}" for tool, text in parts.items()
    )
    facts = {"interfaces": ["ib0"], "devices": ["mlx5_0/1"]}
    return tool_doc("ib-fabric", stdout, facts, tool="infiniband-diags", tool_version="44.0")


def read(doc: dict[str, Any]) -> dict[str, Any]:
    samples, facts = parse("ib-fabric", doc)  # type: ignore[arg-type]
    assert isinstance(facts, IbFabricFacts)
    return {**dict(facts), **{s.metric: s.value for s in samples}}


def healthy_port(facts: dict[str, Any], node: int) -> None:
    port = facts["ports"][0]
    port.update(link_layer="InfiniBand", rate_gbps=100.0, rate_words="4X EDR", active_mtu_bytes=4096)
    gid = f"fe80:0000:0000:0000:b859:9f03:00a{'?abc'[node]}:0001"
    port["gids"] = [{"index": 0, "type": "IB/RoCE v1", "gid": gid}]
    port.pop("qos", None)


def verdict_on(*readings: dict[str, Any], rate_gbps: float = 100, fabric: str = "ib-edr", **facts: Any) -> VerdictDoc:
    """On a site whose tools say this, first and last, its ports of that rate; `facts` change the first reading."""
    plan = plan_of(SITE, LOADED if len(readings) > 1 else PREFLIGHT, fabric)
    found = []
    for one in results(SITE, plan):
        m = plan.measurement(one.measurement)
        if m.kind == "rdma-ports":

            def of_rate(facts: dict[str, Any], brief: bool, number: int = int(m.nodes[0][-1])) -> None:
                healthy_port(facts, number)
                if brief:
                    del facts["ports"][0]["active_mtu_bytes"]
                facts["ports"][0]["rate_gbps"] = rate_gbps

            one = ports_of(SITE, m, of_rate)
        elif m.kind == "path-mtu":
            one = with_value(m, 4092)
        found.append(one)
    mine = [m for m in plan.measurements if m.kind == "ib-fabric"]
    for m, doc in zip(mine, readings, strict=True):
        samples, said = parse("ib-fabric", doc, m.params)  # type: ignore[arg-type]
        found.append(result(m, samples, facts=said.model_copy(update=facts if m is mine[0] else {})))
    return verdict_of(SITE, plan, found, fabric=fabric)
