"""Takes one measurement: starts its probes, waits no longer than its deadline, and says what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from time import monotonic
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model, field_validator

from validation.execute.denied import denied_on
from validation.execute.fault_side import fault_side
from validation.execute.remote import Launcher, Output, Remote, is_report
from validation.kinds import KINDS, parse
from validation.kinds.parsing import ParseError, plain
from validation.model import CONTROLLER, Call, Denied, Failure, Job, Measurement, ResultStatus, Sample, Seat
from validation.model.facts import AnyFacts
from validation.probes import ProbeDoc
from validation.probes.supervise import EXIT_DEADLINE

READY_TIMEOUT_S = 30.0  # until a server listens; the probe itself gives up after 10 or 15
LINGER_S = 5.0  # the two ends of a session end within a moment of each other, on a busy node a longer one
FAILED_LINGER_S = 1.0  # a server whose client failed has nothing left but its own words, or its connection's end
LATE_S = 10.0  # beyond a probe's deadline on its node: its grace, its kill time, and the way back
EXIT_SSH = 255


@dataclass
class Taken:
    """What became of a measurement. `outputs` are (node, stdout, stderr) of the tools, `denied` what the nodes were
    denied meanwhile."""

    status: ResultStatus
    error: str | None
    doc: ProbeDoc | None = None
    samples: tuple[Sample, ...] = ()
    facts: AnyFacts = field(default_factory=dict)
    failure: Failure | None = None
    outputs: list[tuple[str, str, str]] = field(default_factory=list)
    denied: tuple[Denied, ...] = ()


def utc_now() -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    @field_validator("duration_s", check_fields=False)
    @classmethod
    def _duration(cls, value: float) -> float:
        if value < 0:
            raise ValueError("is less than zero")
        return value

    @field_validator("started", "ended", check_fields=False)
    @classmethod
    def _time(cls, value: str) -> str:
        datetime.fromisoformat(value)
        return value


_FIELDS: Any = {name: (hint, ...) for name, hint in get_type_hints(ProbeDoc).items()}
_Report = create_model("_Report", __base__=_Checked, **_FIELDS)
"""A ProbeDoc, held against what a node sent; keys beyond it are nobody's business here."""


def _document(output: Output) -> tuple[ProbeDoc | None, str]:
    """The probe's document: the last JSON object with all of its keys. Or None, and what is wrong with it, if it is."""
    for value in reversed(output.documents()):
        if is_report(value):
            try:
                json.dumps(value, ensure_ascii=False).encode()
                _Report.model_validate(value)
            except UnicodeEncodeError:
                return None, "the probe's report: holds text that is no Unicode"
            except ValidationError as fault:
                first = fault.errors(include_url=False)[0]
                return None, f"the probe's report: {first['loc'][0]}: {first['msg']}"
            return cast(ProbeDoc, value), ""
    return None, ""


def _text(output: Output) -> tuple[str, str]:
    return output.stdout.decode("utf-8", "replace"), output.stderr.decode("utf-8", "replace")


def _last(output: Output) -> str:
    return output.last_words or f"exit status {output.returncode}"


def read(m: Measurement, node: str, output: Output, peer: ProbeDoc | None = None) -> Taken:
    """From the measuring probe's output to samples. Nothing but a document that its parser accepts is `ok`.

    `peer` is the serving end's document: of an RDMA measurement its facts are half of the proof.
    """
    if output.fault:
        return Taken("failed", f"{node}: {output.fault}", outputs=[(node, *_text(output))])
    doc, wrong = _document(output)
    if doc is None:
        taken = Taken("failed", f"the probe on {node} ended without a report: {_last(output)}")
        if output.returncode == EXIT_SSH:
            taken = Taken("unreachable", f"connection to {node} lost: {_last(output)}")
        elif output.returncode == EXIT_DEADLINE:
            taken = Taken("timeout", f"did not end within {m.timeout_s:g} s on {node}")
        elif wrong:
            taken = Taken("unparseable", f"{node}: {wrong}")
        elif output.returncode == 0:
            taken = Taken("unparseable", f"the probe on {node} printed no report")
        taken.outputs = [(node, *_text(output))]
        return taken
    outputs = [(node, str(doc["stdout"]), str(doc["stderr"]))]
    known = plain(doc["facts"], drop=("json", "fault")) if _both_ends(m) else {}  # which device failed is worth keeping
    code = doc["facts"].get("fault") if _both_ends(m) else None
    failure = Failure(code=str(code), words=doc["error"] or "") if code is not None else None
    if output.returncode == EXIT_DEADLINE:
        late = f"did not end within {m.timeout_s:g} s on {node}"
        if code not in (None, "stopped"):  # what was seen when it was stopped, as a port that is down
            late += f": {doc['error']}"
        return Taken("timeout", late, doc, (), known, failure, outputs)
    if doc["error"] or output.returncode != 0:
        why = doc["error"] or f"exit status {output.returncode}"
        return Taken("failed", f"{node}: {why}", doc, (), known, failure, outputs)
    if _both_ends(m):
        doc["facts"]["peer"] = {**peer["facts"], "stdout": peer["stdout"]} if peer else None
    try:
        samples, facts = parse(m.kind, doc, m.params)
    except ParseError as refusal:
        if refusal.__cause__ is not None:  # not foreseen: for those who mend the parser
            outputs.append(unforeseen(refusal.__cause__))
        return Taken("unparseable", f"{node}: {refusal}", doc, (), known, failure, outputs)
    return Taken("ok", None, doc, tuple(samples), facts, None, outputs)


def unforeseen(fault: BaseException) -> tuple[str, str, str]:
    """The traceback of an error of the toolkit's own, as an output to be kept beside those of the nodes."""
    return (CONTROLLER, "", "".join(traceback.format_exception(fault)))


def _both_ends(m: Measurement) -> bool:
    return KINDS[m.kind].both_ends


def _arguments(call: Call, deadline_s: float, hold_s: float = 0.0) -> list[str]:
    hold = ["--hold-s", f"{hold_s:g}"] if hold_s else []
    return [*hold, "--deadline-s", f"{deadline_s:g}", *call.words]


async def take(m: Measurement, job: Job, launcher: Launcher) -> Taken:
    """Run the probes of one measurement. Whatever happens, also cancellation, none of them runs on afterwards."""
    running: list[Remote] = []
    began = monotonic()
    ready_s = READY_TIMEOUT_S if job.sending or job.server is not None else 0.0  # one end alone waits for nobody
    try:
        taken = await asyncio.wait_for(_take(m, job, launcher, running), m.timeout_s + ready_s + LATE_S)
    except asyncio.TimeoutError:
        taken = Taken("timeout", None)
    finally:
        await asyncio.gather(*(remote.stop() for remote in running if not remote.ended))
    if taken.status == "timeout" and taken.error is None:
        waited = f"{monotonic() - began:.0f} s"
        taken.error = f"no end and no answer from {job.node} in {waited}; its limit was {m.timeout_s:g} s"
    kind = KINDS[m.kind]
    said = [denied_on(remote.node, await remote.finish(), kind.by_daemon) for remote in running]
    taken.denied = () if kind.on_controller else tuple(denied for denied in said if denied is not None)
    return taken


async def _take(m: Measurement, job: Job, launcher: Launcher, running: list[Remote]) -> Taken:
    if job.sending:
        return await _take_together(m, job, launcher, running)
    if job.server_node is None or job.server is None:
        start = launcher.here if KINDS[m.kind].on_controller else launcher.start
        remote = await start(job.node, _arguments(job.probe, m.timeout_s))
        running.append(remote)
        return read(m, job.node, await remote.finish())
    # Both ends start together, the measuring one held back, so that their start-up times do not add up.
    lifetime = m.timeout_s + READY_TIMEOUT_S
    server = await launcher.start(job.server_node, _arguments(job.server, lifetime))
    running.append(server)
    client = await launcher.start(job.node, _arguments(job.probe, m.timeout_s, hold_s=lifetime))
    running.append(client)
    hello: dict[str, Any] | None = None
    with contextlib.suppress(asyncio.TimeoutError):
        hello = await asyncio.wait_for(server.first_document(), READY_TIMEOUT_S)
    if hello is None or hello.get("ready") is not True:
        return _unserved(m, job.server_node, await server.stop())
    client.go()
    client_end, server_end = asyncio.ensure_future(client.finish()), asyncio.ensure_future(server.finish())
    try:
        await asyncio.wait({client_end, server_end}, return_when=asyncio.FIRST_COMPLETED)
        if not client_end.done():
            # The server ends first when all is well, by a moment; when it died the client may wait for ever.
            await asyncio.wait({client_end}, timeout=LINGER_S)
        abandoned = not client_end.done()
        measured = await client.stop() if abandoned else client_end.result()
        if job.server_ends or measured.returncode:  # a client may notice first that the server's node has died
            await asyncio.wait({server_end}, timeout=FAILED_LINGER_S if measured.returncode else LINGER_S)
        served = await server.stop() if not server_end.done() else server_end.result()
    finally:
        client_end.cancel()
        server_end.cancel()
    doc, wrong = _document(served)
    taken = read(m, job.node, measured, doc)
    if served.fault:
        return read(m, job.server_node, served)
    if served.returncode == EXIT_SSH and doc is None:
        return Taken("unreachable", f"connection to {job.server_node} lost: {_last(served)}", outputs=taken.outputs)
    if abandoned and taken.status == "failed":
        why = doc["error"] if doc and doc["error"] else _last(served)
        taken.error = f"the server on {job.server_node} ended in the middle: {why}"
    if wrong and taken.status == "unparseable":
        taken.error = f"{job.server_node}: {wrong}"
    if _both_ends(m) and taken.status in ("failed", "timeout", "unparseable"):
        name_fault_side(taken, m, doc)
    out, err = (str(doc["stdout"]), str(doc["stderr"])) if doc else _text(served)
    taken.outputs.append((job.server_node, out, err))
    return taken


async def _take_together(m: Measurement, job: Job, launcher: Launcher, running: list[Remote]) -> Taken:
    """Many ends: those that send begin at the same moment, when all that serve are ready. One document of them all."""
    lifetime = m.timeout_s + READY_TIMEOUT_S
    starts = [(seat, _arguments(seat.call, lifetime)) for seat in job.serving]
    starts += [(seat, _arguments(seat.call, m.timeout_s, hold_s=lifetime)) for seat in job.sending]
    made = await asyncio.gather(*(launcher.start(seat.node, words) for seat, words in starts), return_exceptions=True)
    running += [one for one in made if isinstance(one, Remote)]
    for one in made:
        if isinstance(one, BaseException):
            raise one
    servers, clients = running[: len(job.serving)], running[len(job.serving) :]
    hellos = [asyncio.ensure_future(server.first_document()) for server in servers]
    if hellos:  # none where the ends meet by themselves, as in a storage that they share
        await asyncio.wait(hellos, timeout=READY_TIMEOUT_S)
    for server, hello in zip(servers, hellos, strict=True):
        said = hello.result() if hello.done() else None
        if said is None or said.get("ready") is not True:
            for other in hellos:
                other.cancel()
            return _unserved(m, server.node, await server.stop())
    for client in clients:
        client.go()
    measured = await asyncio.gather(*(client.finish() for client in clients))
    bad = any(output.returncode for output in measured)
    linger = FAILED_LINGER_S if bad else LINGER_S
    if servers:
        await asyncio.wait([asyncio.ensure_future(server.finish()) for server in servers], timeout=linger)
    served = await asyncio.gather(*(server.stop() for server in servers))
    return together(m, [*zip(job.serving, served, strict=True)], [*zip(job.sending, measured, strict=True)])


def together(m: Measurement, served: Sequence[tuple[Seat, Output]], sent: Sequence[tuple[Seat, Output]]) -> Taken:
    """One result of many ends: `stdout` of the document is JSON with what each of them printed, by its node.

    Senders first: a receiver whose sender failed was stopped, and says no more than that.
    """
    docs: dict[str, dict[str, ProbeDoc]] = {"sending": {}, "serving": {}}
    for part, ends in (("sending", sent), ("serving", served)):
        for seat, output in ends:
            doc, _ = _document(output)
            if doc is None or output.returncode or doc["error"]:
                return read(m, seat.node, output)
            docs[part][seat.node] = doc
    first, every = docs["sending"][sent[0][0].node], [doc for part in docs.values() for doc in part.values()]
    words = {part: {node: doc["stdout"] for node, doc in found.items()} for part, found in docs.items()}
    whole: ProbeDoc = {
        **first,
        "stdout": json.dumps(words),
        "stderr": "".join(doc["stderr"] for doc in every),
        "facts": {},
        "duration_s": max(doc["duration_s"] for doc in docs["sending"].values()),
    }
    return read(m, m.nodes[0], Output(0, json.dumps(whole).encode(), b""))


def name_fault_side(taken: Taken, m: Measurement, served: ProbeDoc | None) -> None:
    """Add to a failed RDMA measurement which end is at fault, as far as the two ends' words and counters tell."""
    here, there = m.nodes
    found = fault_side(taken.doc, served, taken.status == "unparseable")
    if found is None:
        return
    where = {"client": here, "server": there}.get(found.end, "")
    towards = {"there": there, "back": here}.get(found.end, "")
    words = found.words.format(here=here, there=there) if towards else found.words
    said = words or (taken.failure.words if taken.failure else "")
    taken.failure = Failure(code=found.code, at=where, towards=towards, words=said)
    if towards:
        taken.error = f"{words} ({taken.error})"
    elif words:
        taken.error = f"{where}: {words}" if where else words


def _unserved(m: Measurement, node: str, output: Output) -> Taken:
    """The serving end did not get ready: its own words say why."""
    taken = read(m, node, output)
    if taken.status in ("ok", "unparseable"):
        taken = Taken("failed", f"the server on {node} did not get ready: {_last(output)}", outputs=taken.outputs)
    if taken.failure is not None:
        taken.failure = taken.failure.model_copy(update={"at": node})
    return taken
