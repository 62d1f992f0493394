"""Fractions of one GPU's memory: all parts of a whole held at a time, each filled to its end, and not one part more.

The server's other GPUs are leased for the while, so that all parts lie on the one that is left.

`facts`: parts, uuids, total_bytes, taken_bytes, codes (CUresult at which filling ended), beyond (what became of one
part too many), memory_mib, reserved_mib (what the driver keeps of it), context_bytes (what a program's context takes,
as measured on the server), server, emulated, engine, engine_release. `stdout`: the same as JSON.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc, remoting, remoting_program
from validation.probes.tool import Ran, document, run_tool

START_S = 90.0  # until a request has its answer
END_S = 30.0  # for a tenant, to end and to give its lease back


@dataclass
class Asked:
    """What is asked of this probe."""

    server: str  # GPU server
    parts: list[str]  # of a whole GPU: 1/2, 1/2
    engine: str = ""  # torch: by a PyTorch program; "": by the driver API and the site's first engine


def _line(tenant: subprocess.Popen[str], key: str) -> dict[str, Any]:
    """The tenant's next answer, which has that key; Unmet with its words where it did not get so far."""
    assert tenant.stdout is not None
    line = tenant.stdout.readline()
    if not line.startswith("{"):
        tenant.terminate()
        _, words = tenant.communicate(timeout=END_S)
        ran = Ran([], tenant.returncode, line, words)
        raise remoting.Unmet(f"a part did not start: {remoting.said(ran)}")
    found: dict[str, Any] = json.loads(line)
    if key not in found:
        raise remoting.Unmet(f"a part could not be used: {found.get('refused') or 'its program did not say why'}")
    return found


def _filled(tenant: subprocess.Popen[str]) -> dict[str, Any]:
    """What a tenant holds that is told to fill its part now."""
    assert tenant.stdin is not None
    with suppress(BrokenPipeError):  # what it said before is read next
        tenant.stdin.write("\n")
        tenant.stdin.flush()
    return _line(tenant, "taken_bytes")


def _let_go(tenant: subprocess.Popen[str]) -> None:
    """The end of its input ends it; what does not listen is told to give its lease back, and killed at last."""
    for last_word in (tenant.terminate, tenant.kill):
        try:
            tenant.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            last_word()
        else:
            return
    tenant.wait()


def measure_parts(server: str, parts: list[str], engine: str = "") -> dict[str, Any]:
    """Facts of one whole, cut into parts."""
    gpus = remoting.pool_of([server])
    context_bytes = max(int(gpu["context_bytes"] or 0) for gpu in gpus)
    if not context_bytes:
        raise remoting.Unmet(f"{server}: what a CUDA context takes of its GPUs is not known; run site.yml again")
    tenants: list[subprocess.Popen[str]] = []
    with ExitStack() as stack:
        if len(gpus) > 1:
            stack.enter_context(remoting.leased("-n", str(len(gpus) - 1), "-l", server))
        try:
            for part in parts:
                command = [*remoting_program.run_words(engine), "-n", "1", "-p", part, "-l", server, "--"]
                tenants.append(remoting.start([*command, *remoting_program.attempt(engine, "fill")]))
            for tenant in tenants:
                _line(tenant, "total_bytes")
            # in turn: two that fill at once without a limit could end with equal shares
            held = [_filled(tenant) for tenant in tenants]
            beyond = run_tool(
                [remoting.COMMAND, "lease", "request", "-p", "1/140", "-l", server, "--no-wait", "--json"], START_S
            )
            state = "refused"
            if beyond.returncode == 0:
                lease = int(json.loads(beyond.stdout)["lease"])
                state = str(remoting.ask("lease", "show", str(lease))["state"])
                remoting.release(lease)
        finally:
            for tenant in tenants:
                _let_go(tenant)
    return {
        "memory_mib": max(gpu["memory_mib"] or 0 for gpu in gpus),
        "reserved_mib": max(gpu["reserved_mib"] for gpu in gpus),
        "context_bytes": context_bytes,
        "emulated": any(gpu["emulated"] for gpu in gpus),
        "parts": parts,
        "uuids": [str(tenant["uuid"]) for tenant in held],
        "total_bytes": [int(tenant["total_bytes"]) for tenant in held],
        "taken_bytes": [int(tenant["taken_bytes"]) for tenant in held],
        "codes": [int(tenant["code"]) for tenant in held],
        "beyond": state,
    }


def probe(args: Asked) -> ProbeDoc:
    """Memory (bytes) that each part has, and what became of one part too many."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server, **remoting.engine(args.engine)}
        try:
            facts |= measure_parts(args.server, args.parts, args.engine)
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), facts, str(fault)
        return Ran([remoting.COMMAND, "run"], 0, json.dumps(facts), ""), facts, None

    return document(
        "remoting-fraction", remoting.COMMAND, measure, lambda _: remoting.engine(args.engine)["engine_release"]
    )
