"""Run directories made from model objects, for the tests of the report: what a rehearsal in the lab leaves behind.

The numbers are invented. They are shaped like a lab's with 1 Gbit/s links; nothing here was measured.
"""

from __future__ import annotations

import hashlib
from itertools import permutations
from pathlib import Path

from validation.criterion import criteria_texts, load_criteria
from validation.fabric import fabric_text, load_fabric, tcp_bandwidth_bound, tcp_rtt_bound
from validation.model import (
    Bound,
    CriterionVerdict,
    Endpoint,
    Finding,
    Judgement,
    LabLink,
    Measurement,
    Node,
    Plan,
    Port,
    Provenance,
    RawLog,
    Result,
    RunInfo,
    Sample,
    SshTarget,
    Topology,
    VerdictDoc,
)

RUN = "2026-11-21T10-15-00Z-tcp10"
GROUPS = {"head": ("head",), "client1": ("clients",), "gpu1": ("gpu_servers",), "gpu2": ("gpu_servers",)}
PORTS = [f"{name}/fab0" for name in GROUPS]
PAIRS = list(permutations(PORTS, 2))
NO_RESULT = "planned, but no result was recorded"


def topology(virtual: bool = True) -> Topology:
    nodes = tuple(
        Node(
            name=name,
            groups=groups,
            ssh=SshTarget(host=f"10.77.0.{11 + i}"),
            ports=(Port(interface="fab0", address=f"10.78.0.{11 + i}", prefix=24, rate_gbps=1.0),),
            slots=2,
            virtual="systemd-nspawn" if virtual else None,
        )
        for i, (name, groups) in enumerate(GROUPS.items())
    )
    return Topology(site="lab", nodes=nodes, lab_link=LabLink(rate_gbps=1.0, rtt_max_us=1000) if virtual else None)


def _measurement(
    suite: str, kind: str, criteria: tuple[str, ...], nodes: tuple[str, ...], **more: object
) -> Measurement:
    tail = more.pop("tail", ".".join(nodes))
    return Measurement.model_validate(
        dict(id=f"{kind}.{tail}", suite=suite, kind=kind, nodes=nodes, criteria=criteria, estimated_s=5, timeout_s=30)
        | more
    )


def plan() -> Plan:
    measurements = [_measurement("preflight", "facts", ("pf.bom", "pf.stack"), (name,)) for name in GROUPS]
    for kind, suite, criterion, params in (
        ("path-mtu", "preflight", "pf.mtu", {"mtu": 9000}),
        ("tcp-bandwidth", "transport", "tr.tcpbw", {"seconds": 5, "omit_s": 1, "interval_s": 0.5, "streams": 1}),
        ("tcp-latency", "transport", "tr.netlat", {"seconds": 2}),
    ):
        for a, b in PAIRS:
            ends = tuple(Endpoint(node=e.split("/")[0], port=e.split("/")[1]) for e in (a, b))
            nodes = tuple(e.node for e in ends)
            tail = f"{a}.{b}".replace("/", "-")
            measurements.append(
                _measurement(suite, kind, (criterion,), nodes, tail=tail, endpoints=ends, params=params)
            )
    for label, ranks, hosts in (("1", 1, "gpu1"), ("intra", 2, "gpu1"), ("inter", 4, "gpu1,gpu2")):
        measurements.append(
            _measurement(
                "training",
                "training-short",
                ("tn.short",) if label == "1" else ("tn.short", f"tn.{label}"),
                tuple(hosts.split(",")),
                tail=label,
                params={"ranks": ranks, "hosts": hosts, "warmup": 10, "steps": 100, "batch": 32, "label": label},
            )
        )
    ids = [m.id for m in measurements]
    return Plan(
        run=RUN,
        fabric="tcp10",
        suites=("preflight", "transport", "training"),
        measurements=tuple(measurements),
        rounds=(tuple(ids[:4]), *((i,) for i in ids[4:])),
        left_out=("compute: no GPU in this lab",),
        estimated_s=240,
    )


def _samples(m: Measurement, slow: str | None, virtual: bool) -> tuple[Sample, ...]:
    spread = (sum(map(ord, m.id)) % 17) / 17  # the same every time, different for every pair
    sick = slow in m.nodes
    if m.kind == "tcp-bandwidth":
        rate = (0.0982 if sick else 0.985) * (1 if virtual else 10)
        values, metric, unit = (
            [rate * (1 + 0.004 * (spread - 0.1 * i)) for i in range(10)],
            "tcp_bandwidth_gbps",
            "Gbit/s",
        )
    elif m.kind == "tcp-latency":
        values, metric, unit = [(55 if virtual else 28) + spread * 15 + i * 0.4 for i in range(10)], "tcp_rtt_us", "us"
    elif m.kind == "path-mtu":
        values, metric, unit = [9000.0], "path_mtu_bytes", "bytes"
    elif m.kind == "training-short":
        rate = {"1": 412.0, "intra": 655.0, "inter": 1010.0}[str(m.params["label"])]
        values, metric, unit = [rate * (1 + 0.002 * ((i * 7) % 11 - 5)) for i in range(100)], "images_per_s", "images/s"
    else:
        return ()
    return tuple(Sample(metric=metric, value=v, unit=unit) for v in values)


def _facts(node: str, virtual: bool) -> dict[str, object]:
    return {
        "virt": "systemd-nspawn" if virtual else "none",
        "lab": "elastic-ai-lab" if virtual else "",
        "model": "" if virtual else "PowerEdge C4140",
        "gpu_count": 0,
        "fabric_ports": ["fab0=up,mtu=9000"],
        "rdma_devices": [],
        "os": "debian 12",
        "kernel": "6.1.0-28-amd64",
        "docker": "20.10.24",
        "openmpi": "" if node == "client1" else "4.1.4",
        "torch": "1.13.1",
        "horovod": "0.28.1",
    }


TOOLS = {
    "facts": ("facts", "0.1.0"),
    "path-mtu": ("ping", "20221126"),
    "tcp-bandwidth": ("iperf3", "3.12"),
    "tcp-latency": ("sockperf", "3.7"),
    "training-short": ("mpirun + horovod", "4.1.4 + 0.28.1"),
}


def results(
    run_dir: Path, planned: Plan, slow: str | None, dead: str | None, error: str, virtual: bool
) -> list[Result]:
    out = []
    for index, m in enumerate(planned.measurements):
        log = run_dir / "raw" / m.id / f"{m.nodes[0]}.out"
        log.parent.mkdir(parents=True)
        log.write_text(f"output of {m.id}\n")
        digest = hashlib.sha256(log.read_bytes()).hexdigest()
        tool, version = TOOLS[m.kind]
        failed = dead in m.nodes
        out.append(
            Result.model_validate(
                dict(
                    measurement=m.id,
                    status="unreachable" if failed else "ok",
                    error=error if failed else None,
                    samples=() if failed else _samples(m, slow, virtual),
                    facts=_facts(m.nodes[0], virtual) if m.kind == "facts" and not failed else {},
                    provenance=Provenance(
                        nodes=m.nodes,
                        devices=tuple(str(e) for e in m.endpoints),
                        tool=tool,
                        tool_version=version,
                        command=(tool.split()[0], "-c", f"10.78.0.{11 + index % 4}", "--json"),
                        started=f"2026-11-21T10:{15 + index // 12:02d}:{index % 12 * 5:02d}Z",
                        ended=f"2026-11-21T10:{15 + index // 12:02d}:{index % 12 * 5 + 4:02d}Z",
                        duration_s=4.2,
                        raw=(RawLog(path=f"raw/{m.id}/{m.nodes[0]}.out", sha256=digest),),
                    ),
                )
            )
        )
    return out


def _pair_judgement(criterion: str, m: Measurement, result: Result | None, bound: Bound) -> Judgement:
    subject = f"{m.endpoints[0]}>{m.endpoints[1]}"
    values = sorted(s.value for s in result.samples) if result is not None else []
    if not values:
        code = "missing-result" if result is None else "tool-failed"
        reason = NO_RESULT if result is None else f"{result.status}: {result.error}"
        return Judgement(
            criterion=criterion,
            subject=subject,
            verdict="not-measured",
            reason_code=code,
            reason=reason,
            bound=bound,
            evidence=(m.id,) if result else (),
        )
    value = values[len(values) // 2]
    low = bound.floor is not None and value < bound.floor
    return Judgement(
        criterion=criterion,
        subject=subject,
        verdict="fail" if low else "pass",
        reason_code="below-floor" if low else "within-bounds",
        reason="the whole interval lies below the floor" if low else "the whole interval keeps the bound",
        value=value,
        low=values[0],
        high=values[-1],
        samples=len(values),
        bound=bound,
        evidence=(m.id,),
    )


def verdict(planned: Plan, measured: list[Result], topo: Topology, slow: str | None, waive: bool = False) -> VerdictDoc:
    """A hand-made verdict: right in form and consistent with the results, not the judge's."""
    fabric = load_fabric("tcp10")
    by_id = {r.measurement: r for r in measured}
    bounds = {
        "pf.mtu": Bound(metric="path_mtu_bytes", unit="bytes", equal="9000", source="fabric profile tcp10"),
        "tr.tcpbw": tcp_bandwidth_bound(fabric, topo.lab_link),
        "tr.netlat": tcp_rtt_bound(fabric, topo.lab_link),
    }
    missing = tuple(m.id for m in planned.measurements if m.id not in by_id or by_id[m.id].status != "ok")
    criteria = []
    for c in load_criteria():
        mine = [m for m in planned.measurements if c.id in m.criteria]
        judgements = tuple(_pair_judgement(c.id, m, by_id.get(m.id), bounds[c.id]) for m in mine if c.id in bounds)
        name, code, reason = "not-measured", "no-probe", c.no_probe or "not selected"
        if judgements:
            name, code, reason = "pass", "within-bounds", "all pairs keep the bound"
            if any(j.verdict == "not-measured" for j in judgements):
                name, code, reason = "not-measured", "missing-result", "not all pairs have a result"
            if any(j.verdict == "fail" for j in judgements):
                name, code, reason = "fail", "below-floor", "6 of 12 pairs are below the floor; all of them touch gpu2"
        elif c.kind == "facts" and not missing:
            name, code, reason = "pass", "within-bounds", "as declared on all nodes"
            judgements = tuple(
                Judgement(
                    criterion=c.id,
                    subject=n.name,
                    verdict="pass",
                    reason_code=code,
                    reason="as declared",
                    text="as declared",
                    evidence=(f"facts.{n.name}",),
                )
                for n in topo.nodes
            )
        if waive and name != "pass":
            name, code, reason = "waived", "waived", "waived by A. Example, 2026-11-20: not part of this delivery"
        got = sum(1 for j in judgements if j.value is not None or j.text is not None)
        criteria.append(
            CriterionVerdict(
                id=c.id,
                statement=c.statement,
                source=c.source,
                required=c.required,
                verdict=name,
                reason_code=code,
                reason=reason,
                judgements=judgements,
                coverage=f"{got}/{len(judgements)} {'nodes' if c.kind == 'facts' else 'pairs'}"
                if judgements
                else "0/0",
            )
        )
    outcome = "failed" if slow else "incomplete" if missing else "passed"
    evidence = tuple(m.id for m in planned.measurements if m.kind == "tcp-bandwidth" and slow in m.nodes)
    findings = (
        (
            Finding(
                kind="node",
                subject=slow,
                text=f"All 6 pairs of {slow} are below the floor in both directions (0.098 Gbit/s where 0.94 is "
                "demanded); the pairs without it are healthy.",
                remedy=f"Check cable, transceiver and switch port of {slow}/fab0, its negotiated speed (ethtool fab0) "
                "and any rate limit (tc qdisc show dev fab0).",
                criteria=("tr.tcpbw",),
                evidence=evidence,
            ),
        )
        if slow
        else ()
    )
    real = "REJECTED" if slow else "ACCEPTED" if waive and not missing else "INCOMPLETE"
    return VerdictDoc(
        run=RUN,
        fabric="tcp10",
        site="lab",
        sign_off="REHEARSAL" if topo.virtual else real,
        outcome=outcome,
        headline={
            "passed": "Every criterion that could be judged passed; all 43 planned measurements were made.",
            "failed": f"{slow} is guilty: its fabric port carries a tenth of what the link should.",
            "incomplete": f"{len(missing)} of 43 planned measurements have no usable result.",
        }[outcome],
        planned=len(planned.measurements),
        measured=len(planned.measurements) - len(missing),
        missing=missing,
        criteria=tuple(criteria),
        findings=findings,
        notes=("Bounds come from the lab link's declared rate.",) if topo.virtual else (),
    )


def make_run(
    run_dir: Path,
    slow: str | None = None,
    dead: str | None = None,
    error: str = "ssh: connect to host 10.77.0.14 port 22: No route to host",
    virtual: bool = True,
    judged: bool = True,
    cut_after: int | None = None,
    waive: bool = False,
) -> Path:
    """A run directory: clean, or with a `slow` node (fails), a `dead` one (incomplete), not `judged`, or killed after
    `cut_after` results with a torn last line. `waive` waives what is not measured, so that real hardware is accepted.
    """
    run_dir.mkdir(parents=True)
    topo, planned = topology(virtual), plan()
    measured = results(run_dir, planned, slow, dead, error, virtual)
    info = RunInfo(
        run=RUN,
        created="2026-11-21T10:15:00Z",
        toolkit_version="0.1.0",
        site="lab",
        inventory="inventories/lab",
        fabric="tcp10",
        suites=planned.suites,
        command=("toolkit", "validate", "--fabric", "tcp10"),
    )
    for name, document in (("run", info), ("topology", topo), ("plan", planned)):
        (run_dir / f"{name}.json").write_text(document.model_dump_json(indent=2))
    lines = [r.model_dump_json() + "\n" for r in measured]
    if cut_after is not None:
        lines = [*lines[:cut_after], lines[cut_after][:40]]
    (run_dir / "results.jsonl").write_text("".join(lines))
    (run_dir / "fabric.yml").write_text(fabric_text("tcp10"))
    (run_dir / "criteria").mkdir()
    for name, text in criteria_texts().items():
        (run_dir / "criteria" / name).write_text(text)
    if judged:
        document = verdict(planned, measured, topo, slow, waive)
        (run_dir / "verdict.json").write_text(document.model_dump_json(indent=2))
    return run_dir
