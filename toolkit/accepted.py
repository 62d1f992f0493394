"""The rates that a site trained at when it was accepted, out of its earlier runs on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from toolkit import acceptance, rundir
from toolkit.errors import UsageFault
from validation.judging.accepted import AcceptedRate, AcceptedRates, Key, job_key
from validation.model import Measurement, Plan, Topology, VerdictDoc
from validation.model.load import ConfigError, load_json
from validation.rules.fabric import Fabric
from validation.run.names import VERDICT
from validation.run.read import Run, read

CRITERION = "tn.rate"


def accepted_rates(runs_dir: Path, topology: Topology, fabric: Fabric, plan: Plan) -> AcceptedRates | None:
    """Of each job of the plan its rate in the first accepted run of this site that has it, on the same fabric and the
    same declared machines. None of virtual and undeclared nodes, whose rates judge nothing, and where no run has one.

    The first and not the last: a site that slows down by a little from run to run would pass for ever. A run whose
    verdict does not follow from its files counts for nothing.
    """
    wanted = {job_key(m): m for m in plan.measurements if CRITERION in m.criteria and "ranks" in m.params}
    if not wanted or topology.virtual or topology.here is not None:
        return None
    found: dict[Key, AcceptedRate] = {}
    for run in rundir.runs(runs_dir):
        if len(found) == len(wanted):
            break
        try:
            found = {**{rate_key: rate for rate_key, rate in _of(run, topology, fabric, wanted)}, **found}
        except (ConfigError, UsageFault):
            continue
    return AcceptedRates(rates=tuple(found[key] for key in wanted if key in found)) if found else None


def _of(
    run: Path, topology: Topology, fabric: Fabric, wanted: dict[Key, Measurement]
) -> Iterator[tuple[Key, AcceptedRate]]:
    files = read(run)
    if files.info.site != topology.site or files.info.fabric != fabric.name or not (run / VERDICT).is_file():
        return
    jobs = {m.id: job_key(m) for m in files.plan.measurements if CRITERION in m.criteria and "ranks" in m.params}
    if not set(jobs.values()) & set(wanted) or not _says_accepted(files):
        return
    verdict = acceptance.standing(run)  # judged again, which takes the longest
    if verdict.sign_off != "ACCEPTED":
        return
    rated = next((c.judgements for c in verdict.criteria if c.id == CRITERION), ())
    for judged in rated:
        measurement = next(iter(judged.evidence), "")
        key = jobs.get(measurement)
        if key not in wanted or judged.value is None or judged.verdict not in ("pass", "not-applicable"):
            continue
        model, batch, precision, framework, ranks, hosts = key
        if _same_machines(files.topology, topology, hosts):
            yield key, AcceptedRate(
                run=run.name, verdict_sha256=files.source(VERDICT).sha256, measurement=measurement, model=model,
                batch=batch, precision=precision, framework=framework, ranks=ranks, hosts=hosts,
                images_per_s=judged.value,
            )  # fmt: skip


def _says_accepted(files: Run) -> bool:
    return load_json(files.source(VERDICT), VerdictDoc).sign_off == "ACCEPTED"


def _same_machines(before: Topology, now: Topology, hosts: Sequence[str]) -> bool:
    """Whether the inventory declares these nodes as it did then: a node with other GPUs is another one."""
    was, are = ({node.name: node.bom for node in topology.nodes} for topology in (before, now))
    return all(name in was and name in are and was[name] == are[name] for name in hosts)
