"""What `toolkit validate` does, step by step: refuse early, plan, measure, judge, report."""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toolkit import rundir
from toolkit.agreement import Agreement
from toolkit.errors import LabError, UsageFault
from toolkit.fabric_choice import trains_over_tcp
from toolkit.lab.rehearsable import needs_machines
from toolkit.progress import ProgressLines
from validation.base.counting import number_of
from validation.execute import HereLauncher, Launcher, SshLauncher, run_plan
from validation.execute.measure import utc_now
from validation.execute.store import Store
from validation.judging.case import make_case
from validation.kinds.parsing import ParseError, as_facts
from validation.model import Call, Node, Plan, Result, Topology, VerdictDoc
from validation.model.load import ConfigError
from validation.model.node_facts import Ports
from validation.rules.fabric import Fabric, LoadedFabric, fabric_names, load_fabric, read_fabric
from validation.rules.release import release
from validation.run.baseline import NAME as BASELINE
from validation.run.catalogue import load_criteria, read_criteria
from validation.run.kept import as_kept
from validation.run.names import CRITERIA, FABRIC, PROFILE, PUNCH, RESULTS, RUN, VERDICT, WAIVERS
from validation.run.read import Run, read
from validation.run.rejudge import judge_files
from validation.signing import is_signed
from validation.verdict.next_attempts import again, on_nodes

if TYPE_CHECKING:
    from validation.report import Written

T = TypeVar("T")
FACTS_TIMEOUT_S = 30.0

__all__ = ["utc_now"]


class Interrupted(Exception):
    """Ctrl-C, TERM or a closed terminal; everything on the nodes has been stopped."""


def make_launcher(site: str) -> Launcher:
    """How nodes are reached."""
    return SshLauncher(site)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; a signal cancels `work`, lets it clean up, and comes out as Interrupted."""

    async def main() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup wants to be left alone
                loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted from None

    return asyncio.run(main())


async def reach(launcher: Launcher, nodes: Collection[Node]) -> None:
    """Connect to all nodes at the same time; UsageFault with one line for each that cannot be used."""
    troubles = await launcher.connect(list(nodes))
    if troubles:
        lines = "\n".join(f"  {name}: {why}" for name, why in sorted(troubles.items()))
        raise UsageFault(
            f"{len(troubles)} of {number_of(len(nodes), 'node')} cannot be used; nothing was measured:\n{lines}"
        )


async def _ports(launcher: Launcher, node: Node) -> Ports | str:
    """What a node's facts probe says of its fabric ports and RDMA devices; words where it says nothing."""
    asked = Call(probe="facts", params={"interfaces": [port.interface for port in node.ports], "rdma_only": True})
    remote = await launcher.start(node.name, ["--deadline-s", f"{FACTS_TIMEOUT_S:g}", *asked.words])
    try:
        output = await remote.finish()
    finally:
        if not remote.ended:
            await remote.stop()
    documents = [found for found in output.documents() if "facts" in found]
    if not documents or documents[-1].get("error"):
        said = output.stderr.decode(errors="replace").strip().splitlines()
        return f"its facts could not be read: {said[-1] if said else f'exit status {output.returncode}'}"
    try:
        return as_facts(Ports, documents[-1]["facts"], "facts")
    except ParseError as fault:
        return f"its facts cannot be used: {fault}"


def _carried(found: Ports) -> dict[str, str]:
    """Interface -> link layer of the RDMA device that carries it."""
    return {port.interface: port.rdma.link_layer or "unknown" for port in found.fabric_ports if port.rdma}


def _rdma_trouble(node: Node, facts: Ports | str) -> str | None:
    """What keeps a node from using RDMA on its fabric ports; None when nothing does."""
    if isinstance(facts, str):
        return facts
    wanted = [port.interface for port in node.ports if port.rdma]
    carried = _carried(facts)
    bare = [name for name in wanted if name not in carried]
    if not bare:
        return None
    devices = [str(device) for device in facts.rdma_devices]
    if len(bare) < len(wanted):
        return f"no RDMA device on {', '.join(bare)}"
    if devices:
        return f"RDMA devices {', '.join(devices)}, none of them on a fabric port ({', '.join(bare)})"
    return "no RDMA device"


def _layer_trouble(node: Node, facts: Ports | str, fabric: Fabric) -> str | None:
    """RDMA ports of a node whose link layer is not the fabric's; None when there are none."""
    layers = {} if isinstance(facts, str) else _carried(facts)
    wanted = {port.interface for port in node.ports if port.rdma}
    other = {name: layer for name, layer in layers.items() if name in wanted and layer != fabric.link_layer}
    return "; ".join(f"link layer of {name} is {layer}" for name, layer in other.items()) or None


async def refuse_without_rdma(
    launcher: Launcher, topology: Topology, fabric: Fabric, suites: Sequence[str] = (), apart: bool = False
) -> None:
    """UsageFault that names every node whose RDMA ports cannot be what the fabric is, when the fabric needs RDMA.

    A port of another link layer, a port without an RDMA device, fewer than two ports in all. Ports that carry TCP only
    (`rdma: false`) are not looked at. Of `suites` training alone is rehearsed in a lab of containers without. `apart`:
    some nodes of a site that was accepted, a head without RDMA or one server among them, of which a pair is not asked.
    """
    if not fabric.needs_rdma or trains_over_tcp(topology, fabric, suites):
        return
    nodes = [node for node in topology.nodes if any(port.rdma for port in node.ports)]
    count = sum(port.rdma for node in nodes for port in node.ports)
    others = ", ".join(name for name in fabric_names() if not load_fabric(name).needs_rdma)
    if count < 2 and not apart:
        raise UsageFault(
            f"fabric {fabric.name} runs over RDMA ({fabric.transport}), and RDMA is measured between two ports: the "
            f"inventory has {count} fabric port{'' if count == 1 else 's'} with RDMA; nothing was measured\n"
            "  what to do: declare the ports in fabric_ports, take rdma: false from those that have RDMA, or validate "
            f"these nodes over TCP: --fabric {others}{_labs_way(topology, fabric)}"
        )
    found = await asyncio.gather(*(_ports(launcher, node) for node in nodes))
    foreign = [
        f"  {node.name}: {why}"
        for node, facts in zip(nodes, found, strict=True)
        if (why := _layer_trouble(node, facts, fabric))
    ]
    if foreign:
        near = ", ".join(_fabrics_over(fabric.link_layer == "InfiniBand"))
        raise UsageFault(
            f"fabric {fabric.name} is {fabric.link_layer}, which the ports of {len(foreign)} of "
            f"{number_of(len(nodes), 'node')} are "
            "not; nothing was measured:\n" + "\n".join(foreign) + "\n"
            f"  what to do: validate these ports as what they are: --fabric {near}; or set the ports' link type to "
            f"{fabric.link_layer} (mlxconfig, LINK_TYPE)"
        )
    bad = [
        f"  {node.name}: {why}" for node, facts in zip(nodes, found, strict=True) if (why := _rdma_trouble(node, facts))
    ]
    if bad:
        raise UsageFault(
            f"fabric {fabric.name} runs over RDMA ({fabric.transport}), which {len(bad)} of "
            f"{number_of(len(nodes), 'node')} cannot "
            "do; nothing was measured:\n" + "\n".join(bad) + "\n"
            "  what to do: install the adapter and its driver there (ls /sys/class/infiniband, rdma link show), "
            "correct fabric_ports in the inventory (rdma: false for a port that carries TCP only), or validate these "
            f"nodes over TCP: --fabric {others}{_labs_way(topology, fabric)}"
        )


def _labs_way(topology: Topology, fabric: Fabric) -> str:
    """What a lab can do for the fabric, where this is one; "" at a site, and where no lab can do anything."""
    if topology.lab_link is None:
        return ""
    alone = "; suite training alone is rehearsed over TCP: --suite training"
    alone = alone if trains_over_tcp(topology, fabric, ("training",)) else ""
    try:
        needs_machines(fabric)
    except LabError:
        return alone
    return f"; a lab with RDMA is brought up by: toolkit lab up --fabric {fabric.name}{alone}"


def _fabrics_over(ethernet: bool) -> list[str]:
    """Names of the packaged RDMA profiles of the one or the other link layer."""
    profiles = [load_fabric(name) for name in fabric_names()]
    return [f.name for f in profiles if f.needs_rdma and (f.link_layer == "Ethernet") == ethernet]


async def measure(
    launcher: Launcher, run_dir: Path, topology: Topology, plan: Plan, progress: ProgressLines, done: Collection[str]
) -> None:
    """Run what is missing of the plan, and once more what cannot decide yet. The launcher is connected.

    On a resumed run some nodes may not be: nothing of theirs is missing, and nothing is repeated there.
    """
    run = read(run_dir)
    fabric, criteria = run.fabric, run.criteria
    missing = {node for m in plan.measurements if m.id not in done for node in m.nodes}

    def repeats(suite: str, results: Sequence[Result]) -> list[list[str]]:
        case = make_case(topology, plan, fabric, criteria, results)
        return on_nodes(again(case, suite), case, missing)

    try:
        await run_plan(plan, topology, launcher, run_dir, progress, done, repeats)
    finally:
        progress.close()


async def with_launcher(
    site: str,
    work: Callable[[Launcher], Coroutine[Any, Any, T]],
    here: bool = False,
    make: Callable[[str], Launcher] | None = None,
) -> T:
    """Do `work` with a launcher; whatever happens, nothing is left running on a node afterwards.

    `here`: the one node is this machine. `make`: another launcher than that over ssh.
    """
    launcher = HereLauncher() if here else (make or make_launcher)(site)
    try:
        return await work(launcher)
    finally:
        await launcher.close()


def refuse_contradictions(run_dir: Path) -> None:
    """ConfigError where the documents of a run contradict each other: nothing is measured on top of that."""
    read(run_dir).notes()


def finished(run_dir: Path) -> set[str]:
    """Ids of the measurements whose last result can be used; the others are measured again on resume."""
    run = read(run_dir)
    faults = run.evidence(again=True).faults
    last = {result.measurement: result.status for result in run.results}
    return {id_ for id_, status in last.items() if status == "ok" and not faults.get(id_)}


def go_on(
    run_dir: Path,
    work: Callable[[Launcher, Path, Topology, Plan], Awaitable[object]],
    make: Callable[[str, float], Launcher] | None = None,
) -> bool:
    """Measure, by `work`, what a run lacks, on the nodes that are needed for it; False where it lacks nothing.
    `make`: another launcher than that over ssh, for so many seconds.

    The caller holds the run's lock. UsageFault for a node that cannot be used, Interrupted as of `run_async`.
    """
    info, topology, plan = rundir.asked(run_dir)
    refuse_contradictions(run_dir)
    done = finished(run_dir)
    needed = {node for m in plan.measurements if m.id not in done for node in m.nodes}
    if not needed:
        return False

    async def reached(launcher: Launcher) -> None:
        # Slurm's commands may be on the head alone, whether or not something of it is missing
        asked = {n.name for n in topology.nodes if make is not None and "heads" in n.groups}
        await reach(launcher, [n for n in topology.nodes if n.name in needed | asked])
        await work(launcher, run_dir, topology, plan)

    took = {m.id: m.estimated_s for m in plan.measurements if m.id not in done}
    left = sum(max((took[id_] for id_ in ids if id_ in took), default=0.0) for ids in plan.rounds)
    how = None if make is None else lambda site: make(site, left)
    run_async(with_launcher(info.inventory, reached, topology.here is not None, how))
    return True


def judge_run(run: Path | Run) -> VerdictDoc:
    """Judge a run from its files alone, by the rules that are copied into it; writes verdict.json. What was read of
    `run` is there for whoever reports on it.
    """
    run = read(run)
    if not (run.folder / RESULTS).exists():
        Store(run.folder).close()  # killed before its first result: an empty list of results, not a damaged run
    verdict = judge_files(run, again=True)
    rundir.write_document(run.folder / VERDICT, verdict)
    run.take_verdict(verdict)
    return verdict


def standing(run: Path | Run) -> VerdictDoc:
    """verdict.json; ConfigError where the run's files give another verdict."""
    from validation.signing.again import judged_again  # only here: it loads the report's templates

    run = read(run)
    verdict, fault = judged_again(run)
    if fault:
        raise ConfigError(
            f"{run.folder / fault}; restore it from a copy, or judge again: toolkit validate --rejudge {run.folder}"
        )
    return verdict


def rejudge(run_dir: Path, agreement: Agreement) -> VerdictDoc:
    """Judge an old run by today's rules, as `take_rules` brings them in."""
    take_rules(run_dir, agreement)
    return judge_run(run_dir)


def take_rules(run_dir: Path, agreement: Agreement) -> None:
    """Bring today's fabric profile and criteria into an old run; what was there before is kept under superseded/.

    Acceptance profile and waivers are those of `agreement`; what it does not name stays as it is in the run.
    """
    run, sources = read(run_dir), read_criteria()
    if (run_dir / CRITERIA / BASELINE).is_file():  # the site's own, which has no successor in this release
        sources = (*sources, run.source(f"{CRITERIA}/{BASELINE}"))
    info, criteria = run.info, load_criteria(sources)
    # Only what came from this package has a successor in it: a site's own profile stays the copy in the run.
    ours = info.origins.get(FABRIC) == "packaged" and info.fabric in fabric_names()
    fabric = read_fabric(info.fabric) if ours else LoadedFabric(run.fabric, run.source(FABRIC), "site")
    if PROFILE not in agreement.files:
        run.profile_for(criteria)  # refused before anything is moved
    if WAIVERS not in agreement.files:
        run.waivers_for(criteria)
    if PUNCH not in agreement.files:
        run.points_for(criteria)
    kept = rundir.supersede(run_dir, agreed=agreement.files) or run_dir
    if kept != run_dir:
        rundir.write_document(kept / RUN, info)  # a copy: without run.json a run is none
    for name, text in agreement.files.items():
        rundir.write_text(run_dir / name, as_kept(text))
    if agreement.profile and agreement.origin:
        origins = {**info.origins, PROFILE: agreement.origin}
        info = info.model_copy(update={"profile": agreement.profile.name, "origins": origins})
    rundir.copy_rules(run_dir, fabric, sources)
    why = f"rules of toolkit {release()}, copied in at {utc_now()}"
    rundir.renew(run_dir, info, (FABRIC, *agreement.files), why)


def write_report(
    run: Path | Run, formats: Collection[str] | None = None, out: Path | None = None, trusting: bool = False
) -> Written:
    """Write the report of a judged run in the formats asked for (None = all), into `out` (None = the run directory).

    What was read of `run` is not read once more, except its raw logs.
    `trusting` leaves the PDF where this user's toolkit made the one that stands there of the same text.
    UsageFault when the disk refuses, and when the run is signed and the report is to go into it.
    """
    from validation.report import FILES, write_formats  # only here: templates and figures are slow to load

    run = read(run)
    run_dir = run.folder
    inside = out is None or out.resolve().is_relative_to(run_dir.resolve())
    if inside and is_signed(run_dir):
        raise UsageFault(
            f"{run_dir}: is signed, so nothing in it may change; write the report elsewhere: toolkit report "
            f"{shlex.quote(str(run_dir))} --out FOLDER"
        )
    try:
        return write_formats(run, FILES if formats is None else formats, out, trusting)
    except OSError as fault:
        raise UsageFault(f"{run_dir}: the report cannot be written: {fault.strerror or fault}; make room") from None


def signed_report(run: Path | Run, formats: Collection[str], named: bool) -> Written:
    """The report that stands in a signed run, which nothing is written into. `named`: the formats were asked for by
    their names, so that one that is not there is an error.
    """
    from validation.report import FILES, Written  # only here: templates and figures are slow to load

    run_dir = read(run).folder
    there = {name: run_dir / FILES[name] for name in formats if (run_dir / FILES[name]).is_file()}
    where = f"toolkit report {shlex.quote(str(run_dir))} --out FOLDER"
    absent = {
        name: f"{run_dir / FILES[name]}: was not made before the run was signed; make it elsewhere: {where}"
        for name in formats
        if name not in there and (named or not there)
    }
    return Written(there, absent)
