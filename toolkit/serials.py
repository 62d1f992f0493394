"""Parts by serial number now, against the newest signed run of the site: what `toolkit check` says of them."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.etree.ElementTree import Element, SubElement

from toolkit import rundir
from toolkit.exits import Exit
from validation.analysis.denial import last_results
from validation.analysis.paper_ends import ended_by
from validation.analysis.part_changes import DIFFERENT, PartChange, part_changes
from validation.base.counting import number_of
from validation.base.errors import ToolkitError
from validation.execute import Launcher
from validation.execute.measure import take
from validation.kinds import job_for
from validation.measures.asbuilt.plan import AT_A_TIME
from validation.measures.hardware.facts import BmcFacts, BmcNode
from validation.measures.hardware.listed import listed, site_parts
from validation.measures.hardware.plan import reading
from validation.measures.node.plan import looking
from validation.model import Node, Topology
from validation.model.listed_parts import ServerParts, doubled
from validation.model.node_facts import NodeFacts
from validation.run.read import read
from validation.signing import MANIFEST, is_signed
from validation.signing.last_day import expired

if TYPE_CHECKING:
    from validation.signing.record import Record

HEAD = "serial numbers"
PAPER = "signed paper"
State = Literal["same", "different", "incomplete", "not-compared"]


@dataclass(frozen=True)
class Signed:
    """The newest signed run of a site in which parts were read. `why`: why nothing can be compared with it, else ""."""

    record: Record | None
    servers: tuple[ServerParts, ...]
    why: str


@dataclass(frozen=True)
class PartsChecked:
    """What the comparison comes to. `of`: how many parts with a serial number the signed run lists in these nodes;
    `ended`: firmware and drivers that are others than when it was signed.
    """

    signed: Signed
    of: int
    changes: tuple[PartChange, ...] = ()
    doubled: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()

    @property
    def last_day(self) -> str:
        """Until when the signed paper holds; "" where it names no day."""
        return self.signed.record.last_day if self.signed.record is not None else ""

    @property
    def expired(self) -> bool:
        """Whether that day has passed."""
        return expired(self.last_day, datetime.now(timezone.utc).date())

    @property
    def different(self) -> tuple[PartChange, ...]:
        """Parts and servers that are not as they were signed."""
        return tuple(one for one in self.changes if one.what in DIFFERENT)

    @property
    def unconfirmed(self) -> tuple[PartChange, ...]:
        """What was signed, and could not be read now."""
        return tuple(one for one in self.changes if one.what == "unconfirmed")

    @property
    def state(self) -> State:
        """What it comes to, in a word."""
        if self.signed.record is None or self.signed.why:
            return "not-compared"
        return "different" if self.different else "incomplete" if self.unconfirmed else "same"

    @property
    def exit_code(self) -> Exit:
        """FAILED where a part is not as signed; INCOMPLETE where one was not read, or the signed run was changed."""
        if self.signed.record is not None and self.signed.record.fault:
            return Exit.INCOMPLETE
        if self.state != "different" and (self.ended or self.expired):
            return Exit.INCOMPLETE
        return {"different": Exit.FAILED, "incomplete": Exit.INCOMPLETE}.get(self.state, Exit.OK)

    def lines(self) -> list[str]:
        """One line for all, and one for each difference."""
        record = self.signed.record
        if record is None or self.signed.why:
            return [f"{HEAD}  NOT COMPARED: {self.signed.why}", *self._paper()]
        words = record.words
        word = {"same": "ok", "different": "FAILED", "incomplete": "INCOMPLETE"}[self.state]
        counted = [number_of(len(self.different), "difference")] if self.different else []
        counted += [f"{number_of(len(self.unconfirmed), 'reading')} missing"] if self.unconfirmed else []
        known = f"{number_of(self.of, 'part')} with a serial number {words} (run {record.run})"
        said = [f"{HEAD}  {word}: {', '.join([*counted, known])}"]
        marks = {"unconfirmed": "NOT READ"}
        for one in self.changes:
            mark = "FAILED" if one.what in DIFFERENT else marks.get(one.what, "note")
            said.append(f"{HEAD}  {mark} {one.said(words)}")
        return [*said, *(f"{HEAD}  note {one}" for one in self.doubled), *self._paper()]

    def _paper(self) -> list[str]:
        """How long the signed paper holds, and what has ended it."""
        if not self.last_day or self.signed.record is None:
            return []
        changed = any(one.what in DIFFERENT for one in self.changes)
        ended = [f"{PAPER}  ENDED: {one} {self.signed.record.words}" for one in self.ended]
        ended += [f"{PAPER}  ENDED: parts are not those that were signed"] if changed else []
        ended += [f"{PAPER}  EXPIRED: its last day was {self.last_day}"] if self.expired else []
        again = [f"{PAPER}  what to do: validate the site again, and sign that run"] if ended else []
        return [*ended, *again] or [f"{PAPER}  ok: holds until {self.last_day}"]

    def document(self) -> dict[str, object]:
        """For --json."""
        record = self.signed.record
        words = record.words if record else ""
        return {
            "state": self.state,
            "run": record.run if record else None,
            "signed_on": (record.day or None) if record else None,
            "why": self.signed.why or None,
            "signed_parts": self.of,
            "changes": [{**one.model_dump(mode="json"), "words": one.said(words)} for one in self.changes],
            "doubled": list(self.doubled),
            "last_day": self.last_day or None,
            "expired": self.expired,
            "ended_by": list(self.ended),
        }

    def junit(self) -> Element:
        """A suite of JUnit: a failure for each difference, an error for what was not read or compared."""
        suite = Element("testsuite", {"name": HEAD, "skipped": "0"})
        odd = [("failure", one.said(self.signed.record.words if self.signed.record else "")) for one in self.different]
        odd += [("error", one.said("")) for one in self.unconfirmed]
        if self.state == "not-compared" and self.exit_code != Exit.OK:
            odd.append(("error", self.signed.why))
        for kind, words in odd or [("", "")]:
            case = SubElement(suite, "testcase", {"classname": HEAD, "name": words or "as signed", "time": "0"})
            if kind:
                SubElement(case, kind, {"message": words}).text = words
        counts = {kind: sum(one == kind for one, _ in odd) for kind in ("failure", "error")}
        suite.set("tests", str(len(odd) or 1))
        suite.set("failures", str(counts["failure"]))
        suite.set("errors", str(counts["error"]))
        return suite


def newest_signed(runs_dir: Path, site: str) -> Signed:
    """The newest signed run of the site in this folder that lists parts, and whether it is as it was signed. Bundles
    count, too; a run whose signatures are gone is not passed over."""
    from toolkit.packed_runs import bundles, unpacked  # only here: what verifies is slow to load
    from validation.signing.record import signed_as

    begun = [folder for folder in rundir.runs(runs_dir) if is_signed(folder) or (folder / MANIFEST).is_file()]
    found = [(_named(folder), folder) for folder in begun if site in _sites(folder)]
    found += [(path.stem, path) for path in bundles(runs_dir, begun)]
    seen = False
    for _, path in sorted(found, reverse=True):
        with contextlib.ExitStack() as held:
            folder = path
            if path.is_file():
                try:
                    folder = held.enter_context(unpacked(path))
                except ToolkitError:
                    continue  # a file of another kind, or cut: toolkit verify names it
                if not signed_as(folder) or site not in _sites(folder):
                    continue
            seen = True
            signed = _signed(folder, path)
        if signed is not None:
            return signed
    of = f"{runs_dir} has no signed run of site {site}" + (" in which parts were read" if seen else "")
    return Signed(None, (), f"{of}; toolkit validate, then toolkit sign")


def _named(folder: Path) -> str:
    """The name by which a run was signed: that of its folder may be another."""
    from validation.signing.record import signed_as

    return max((one.run for one in signed_as(folder)), default=folder.name)


def _sites(folder: Path) -> set[str]:
    """Of which sites a run is: run.json may have been changed since it was signed, so its statements count too."""
    from validation.signing.record import signed_as

    sites = {one.site for one in signed_as(folder)}
    with contextlib.suppress(ToolkitError):
        sites.add(read(folder).info.site)
    return sites


def _signed(folder: Path, path: Path) -> Signed | None:
    """The run of a folder, which was unpacked of `path` where that is a bundle; None where it lists no parts."""
    from validation.signing.record import Record, record_of

    if not is_signed(folder):
        bare = (
            f"{folder.name} has a {MANIFEST} and no signatures: they were taken away, or it is of a bundle that nobody "
            f"signed. Sign it, or remove its {MANIFEST}"
        )
        return Signed(Record(folder.name, "", bare), (), bare)
    try:
        record = record_of(folder, folder.name)
        servers = () if record.fault else _parts(folder)
    except ToolkitError as fault:
        record, servers = Record(folder.name, "", " ".join(str(fault).split())), ()
    if record.fault:
        why = (
            f"{folder.name} was signed, but is not as it was signed: {record.fault}. "
            f"Next: {shlex.join(['toolkit', 'verify', str(path)])}"
        )
        return Signed(record, (), why)
    return Signed(record, servers, "") if any(one.parts or one.service_tag for one in servers) else None


def _parts(folder: Path) -> tuple[ServerParts, ...]:
    run = read(folder)
    return site_parts(run.topology, run.plan, last_results(run.whole_results))


async def read_now(launcher: Launcher, topology: Topology, nodes: Sequence[Node]) -> tuple[ServerParts, ...]:
    """The parts of these nodes as BMCs and nodes list them now. What does not answer is unread, with the reason."""
    gate = asyncio.Semaphore(AT_A_TIME)

    lost = await launcher.connect(nodes)

    async def look(node: Node) -> NodeFacts | None:
        if node.name in lost:
            return None
        planned = looking(node)
        async with gate:
            taken = await take(planned, job_for(planned, topology), launcher)
        return taken.facts if taken.status == "ok" and isinstance(taken.facts, NodeFacts) else None

    async def ask() -> dict[str, BmcNode]:
        mine = tuple(node.name for node in nodes if node.bmc is not None)
        if not mine:
            return {}
        planned = reading(mine)
        taken = await take(planned, job_for(planned, topology), launcher)
        if taken.status == "ok" and isinstance(taken.facts, BmcFacts):
            return {one.node: one for one in taken.facts.nodes}
        return {name: BmcNode(node=name, error=taken.error or "was not read") for name in mine}

    bmcs, facts = await asyncio.gather(ask(), asyncio.gather(*(look(node) for node in nodes)))
    return tuple(
        listed(node.name, bmcs.get(node.name), found, model=node.bom.model or "")
        for node, found in zip(nodes, facts, strict=True)
    )


def checked(signed: Signed, now: tuple[ServerParts, ...], whole: bool) -> PartsChecked:
    """`now` against a signed run; `whole`: all nodes of the inventory were read, not only some."""
    changes = part_changes(signed.servers, now)
    if not whole:
        changes = tuple(one for one in changes if one.what != "server-gone")
    tags = {one.service_tag.casefold() for one in now if one.service_tag} | {one.node for one in now}
    mine = [one for one in signed.servers if {one.node, (one.service_tag or "").casefold()} & tags]
    of = sum(part.serial is not None for one in mine for part in one.parts)
    ended = ended_by(signed.servers, now) if signed.record is not None and signed.record.last_day else ()
    return PartsChecked(signed, of, changes, tuple(map(str, doubled(now))), ended)
