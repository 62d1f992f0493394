"""What `toolkit validate` does, step by step: refuse early, plan, measure, judge, report."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Collection, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from toolkit import rundir
from toolkit.errors import UsageFault
from toolkit.progress import Lines
from validation.criterion import load_criteria
from validation.execute import Launcher, RunError, SshLauncher, run_plan
from validation.execute.measure import utc_now
from validation.execute.store import RESULTS, Store
from validation.fabric import Fabric, fabric_names, load_fabric
from validation.judge import judge
from validation.load import read_results
from validation.model import Node, Plan, Topology, VerdictDoc

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
        raise UsageFault(f"{len(troubles)} of {len(nodes)} nodes cannot be used; nothing was measured:\n{lines}")


async def _rdma_trouble(launcher: Launcher, node: Node) -> str | None:
    """What keeps a node from using RDMA on its fabric ports; None when nothing does."""
    interfaces = [port.interface for port in node.ports]
    options = [word for name in interfaces for word in ("--interface", name)]
    remote = await launcher.start(node.name, ["--deadline-s", f"{FACTS_TIMEOUT_S:g}", "facts", *options])
    try:
        output = await remote.finish()
    finally:
        if not remote.ended:
            await remote.stop()
    documents = output.documents()
    if not documents or documents[-1].get("error"):
        said = output.stderr.decode(errors="replace").strip().splitlines()
        return f"its facts could not be read: {said[-1] if said else f'exit status {output.returncode}'}"
    devices = [str(device) for device in documents[-1]["facts"]["rdma_devices"]]
    carried = {name for device in devices for name in device.partition("=")[2].split("+")}
    if any(name in carried for name in interfaces):
        return None
    if devices:
        return f"RDMA devices {', '.join(devices)}, none of them on a fabric port ({', '.join(interfaces) or 'none'})"
    return "no RDMA device"


async def refuse_without_rdma(launcher: Launcher, topology: Topology, fabric: Fabric) -> None:
    """UsageFault that names every node without an RDMA device on its fabric ports, when the fabric needs one."""
    if not fabric.needs_rdma:
        return
    nodes = [node for node in topology.nodes if node.ports]  # a head outside the fabric needs no adapter
    found = await asyncio.gather(*(_rdma_trouble(launcher, node) for node in nodes))
    bad = [f"  {node.name}: {why}" for node, why in zip(nodes, found, strict=True) if why]
    if not bad:
        return
    others = ", ".join(name for name in fabric_names() if not load_fabric(name).needs_rdma)
    raise UsageFault(
        f"fabric {fabric.name} runs over RDMA ({fabric.transport}), which {len(bad)} of {len(nodes)} nodes cannot do; "
        "nothing was measured:\n" + "\n".join(bad) + "\n"
        "  what to do: install the adapter and its driver there (ls /sys/class/infiniband, rdma link show), correct "
        f"fabric_ports in the inventory, or validate these nodes over TCP: --fabric {others}"
    )


async def measure(
    launcher: Launcher, run_dir: Path, topology: Topology, plan: Plan, progress: Lines, done: Collection[str]
) -> None:
    """Run what is missing of the plan. The launcher is connected."""
    try:
        await run_plan(plan, topology, launcher, run_dir, progress, done)
    finally:
        progress.close()


async def with_launcher(site: str, work: Callable[[Launcher], Coroutine[Any, Any, T]]) -> T:
    """Do `work` with a launcher; whatever happens, nothing is left running on a node afterwards."""
    launcher = make_launcher(site)
    try:
        return await work(launcher)
    finally:
        await launcher.close()


def finished(run_dir: Path) -> set[str]:
    """Ids of the measurements whose last result can be used; the others are measured again on resume."""
    results, _ = read_results(run_dir / RESULTS)
    last = {result.measurement: result.status for result in results}
    return {id_ for id_, status in last.items() if status == "ok"}


def judge_run(run_dir: Path) -> VerdictDoc:
    """Judge a run from its files alone, by the rules that are copied into it; writes verdict.json."""
    info, topology, plan = rundir.read(run_dir)
    fabric = load_fabric(str(run_dir / rundir.FABRIC))
    criteria = load_criteria(run_dir / rundir.CRITERIA)
    if not (run_dir / RESULTS).exists():
        Store(run_dir).close()  # killed before its first result: an empty list of results, not a damaged run
    results, _ = read_results(run_dir / RESULTS)
    verdict = judge(info, topology, plan, fabric, criteria, results)
    rundir.write_document(run_dir / rundir.VERDICT, verdict)
    return verdict


def rejudge(run_dir: Path) -> VerdictDoc:
    """Judge an old run by today's fabric profile and criteria; what was there before is kept under superseded/."""
    info, _, _ = rundir.read(run_dir)
    kept = rundir.supersede(run_dir) or run_dir
    # A profile from a file of the site has only the copy in the run.
    rundir.copy_rules(run_dir, info.fabric if info.fabric in fabric_names() else str(kept / rundir.FABRIC))
    return judge_run(run_dir)


def write_report(run_dir: Path) -> Path:
    """Write the report of a judged run; UsageFault when the disk refuses."""
    from validation.report import write_html  # only here: templates and figures are slow to load

    try:
        return write_html(run_dir)
    except OSError as fault:
        raise UsageFault(f"{run_dir}: the report cannot be written: {fault.strerror or fault}; make room") from None


@contextlib.contextmanager
def clear_faults() -> Iterator[None]:
    """Faults of a run come out as errors of the command line."""
    try:
        yield
    except RunError as fault:
        raise UsageFault(str(fault)) from None
