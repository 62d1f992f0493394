"""What a tenant may not do, tried: beyond its memory, on another's GPU, without a token, from elsewhere, after its end.

Each attempt is made for real, next to a control that shows that it could have worked. An attempt that could not be made
is no pass: the measurement fails and says why. What the lease's engine does not promise to refuse (its adapter says so,
by `toolkit lease env`) is tried all the same, and told.

`facts`: attempts (each with name, breach, promised and words, in their order), gone_s, uuid, total_bytes, server,
elsewhere, emulated, engine, engine_release. `stdout`: the same as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.base.counting import number_of
from validation.probes import PROGRAM_FOLDER, ProbeDoc, remoting, remoting_program
from validation.probes.tool import Ran, document, last_line, run_tool

PART = "1/4"
GONE_S = 30.0  # how long a server may take to go when its lease has ended
TRY_S = 60.0
#: An engine's client that finds no server any more: Lupine's tries for 62 s before it says so.
NO_SERVER_S = 150.0
STRANGER = "nobody"
#: The same user on the server itself, where he may have another name; and Slurm's word for a job that it does not take.
AS_USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
NOT_TAKEN = "Unable to allocate resources"
KEPT = ("kept", "answered")  # ends of a connection that was let in
REFUSED = (2, 75)  # what `toolkit run` ends with where it runs nothing


@dataclass
class Asked:
    """What is asked of this probe."""

    server: str  # GPU server
    elsewhere: str = ""  # another machine of the pool, which Slurm can start a step on
    engine: str = ""  # torch: by PyTorch programs; "": by the driver API and the site's first engine


def code_of(found: dict[str, Any], what: str) -> int:
    """The CUresult of an attempt, 0 where it succeeded; Unmet where no call was made: that is no refusal."""
    code = found.get("code")
    if not isinstance(code, int) or code < 0:
        raise remoting.Unmet(f"{what}: could not be tried: {found.get('refused') or 'its program did not say'}")
    return code


def turned_away(ran: Ran, what: str) -> bool:
    """True where `toolkit run` refused, False where it ran the program; Unmet where it did neither."""
    if ran.returncode not in (0, *REFUSED):
        raise remoting.Unmet(f"{what}: could not be tried: {remoting.said(ran)}")
    return ran.returncode != 0


def way_of(found: dict[str, Any], what: str) -> str:
    """How a connection ended; Unmet where none was tried."""
    how = str(found.get("how") or "")
    if how not in ("kept", "answered", "closed", "dropped", "refused"):
        raise remoting.Unmet(f"{what}: could not be tried: {found.get('why') or 'its program did not say'}")
    return f"{how} ({found['why']})" if found.get("why") else how


def native_end(ran: Ran, what: str) -> str:
    """How a program on the server itself ended: it opened the GPU, could not, or Slurm refused its job; Unmet where
    that cannot be told."""
    last = last_line(ran.stderr)
    if ran.returncode and NOT_TAKEN in last and "contact" not in last and "timed out" not in last:
        return "refused"
    found = remoting.answer(ran, f"{what}: could not be tried")
    if "devices" in found:
        return "opened"
    if code_of(found, what) == 0:
        raise remoting.Unmet(f"{what}: could not be tried: no error, and no devices")
    return "closed"


class Tenant:
    """A lease of a part of a GPU, and attempts in it. `tried` holds them as Attempt."""

    def __init__(self, lease: int, args: Asked) -> None:
        """The lease's number, and what the probe was told."""
        self.lease, self.args = lease, args
        self.tried: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}

    def run(self, *words: str, env: dict[str, str] | None = None) -> Ran:
        """A program in the lease, started also where it would see no GPU: whether it does is what is asked."""
        command = [remoting.COMMAND, "run", "--cpu-ok"] if self.args.engine else list(remoting.RUN)
        command += ["--lease", str(self.lease), "--", *remoting_program.attempt(self.args.engine, *words)]
        return run_tool(command, TRY_S, {**os.environ, **(env or {})})

    def found(self, *words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
        """What a program in the lease printed."""
        return remoting.answer(self.run(*words, env=env), words[0])

    def note(self, attempt: str, through: bool, words: str, promised: bool = True, **shown: int | str | bool) -> None:
        """One attempt, done; `shown` is the one thing that shows how it ended."""
        words = (words or "no words") + ("" if promised else "; not promised by the engine")
        made = {"name": attempt, "breach": through and promised, "words": words, "promised": promised}
        self.tried.append({**made, **shown})

    def note_token(self, attempt: str, seen: dict[str, Any], promised: bool = True) -> None:
        """An attempt with a token, by what its program printed."""
        through = "devices" in seen
        code = 0 if through else code_of(seen, attempt)
        if code == 0 and not through:
            raise remoting.Unmet(f"{attempt}: could not be tried: no error, and no devices")
        words = f"{number_of(len(seen['devices']), 'device')} seen" if through else f"CUDA error {code}"
        self.note(attempt, through, words, promised, cuda=code)

    def control(self) -> None:
        """What the tenant may do, works: without this, no refusal below would mean anything."""
        seen = self.found("device")["devices"]
        if len(seen) != 1:
            raise remoting.Unmet(f"a lease of one part shows {number_of(len(seen), 'device')}")
        self.facts["uuid"] = seen[0]["uuid"]
        self.facts["emulated"] = any(gpu["emulated"] for gpu in remoting.gpus_of([self.args.server]))
        may = self.found("take", "0.9")
        if may["code"]:
            raise remoting.Unmet(f"a tenant cannot take nine tenths of its own part (CUDA error {may['code']})")
        self.facts["total_bytes"] = may["total_bytes"]

    def memory(self, of_lease: bool) -> None:
        """More than the part, at once and in two programs; of_lease: whether the engine adds these up."""
        beyond = self.found("take", "1.1")
        code = code_of(beyond, "memory beyond the part")
        self.note("memory beyond the part", code == 0, f"CUDA error {code}", cuda=code)
        twice = self.found("twice", "0.6")
        if twice.get("first"):
            raise remoting.Unmet(f"the first of two programs got no memory (CUDA error {twice['first']})")
        code = code_of(twice, "memory beyond the part in two programs")
        words = f"CUDA error {code} for the second"
        self.note("memory beyond the part in two programs", code == 0, words, of_lease, cuda=code)

    def others(self) -> None:
        """Devices that are not the lease's."""
        for value in ("", "0,1,2,3", "all"):
            found = self.found("device", env={"CUDA_VISIBLE_DEVICES": value})
            if "devices" not in found:
                code_of(found, f"another's GPU with CUDA_VISIBLE_DEVICES={value!r}")
            seen = found.get("devices", [])
            strange = [gpu["uuid"] for gpu in seen if gpu["uuid"] != self.facts["uuid"]]
            words = f"{number_of(len(seen), 'device')} seen, {len(strange)} not of the lease"
            what = f"another's GPU with CUDA_VISIBLE_DEVICES={value!r}"
            self.note(what, bool(strange), words, strange=len(strange))

    def offer(self, folder: Path) -> dict[str, Any]:
        """What the lease's own programs have, in files and environment: what a thief would have."""
        return remoting.ask("lease", "env", str(self.lease), str(folder))

    def bare(self, offer: dict[str, Any], patience_s: float = TRY_S) -> dict[str, Any]:
        """A program outside `toolkit run`, with the environment that it is given."""
        here = remoting_program.attempt(self.args.engine, "device")
        return remoting.answer(run_tool(here, patience_s, {**os.environ, **offer["environment"]}), "device")

    def tokens(self, offer: dict[str, Any], folder: Path) -> None:
        """Wrong tokens; the right one works, in the same way of calling."""
        if "devices" not in self.bare(offer):
            raise remoting.Unmet("the lease's own token is refused, so that a refusal of another says nothing")
        for name, text in (("no token", ""), ("a wrong token", "0" * 64)):
            wrong = self.offer(folder / name.replace(" ", "-"))
            if wrong["secret"]:
                Path(wrong["secret"]).write_text(text + "\n", encoding="utf-8")
            variable = wrong.get("secret_variable")
            if variable:
                wrong["environment"][variable] = text
            self.note_token(name, self.bare(wrong), promised=bool(wrong["secret"] or variable))

    def stranger(self) -> None:
        """Another user of the same machine."""
        program = remoting_program.attempt(self.args.engine, "device") if self.args.engine else ["true"]
        command = [*remoting.RUN, "--lease", str(self.lease), "--", *program]
        ran = run_tool(["setpriv", f"--reuid={STRANGER}", "--regid=nogroup", "--clear-groups", *command], TRY_S)
        what = "another user of the same machine"
        self.note(what, not turned_away(ran, what), remoting.said(ran), status=ran.returncode)

    def elsewhere(self, server: str) -> None:
        """Another machine of the pool, by a step of Slurm there."""
        host, _, port = server.rpartition(":")
        program = (PROGRAM_FOLDER / "remoting_attempts.py").read_text(encoding="utf-8")
        step = ["srun", "--quiet", "-p", "all", "-w", self.args.elsewhere, "-n1", "--mem=50", "python3"]
        ran = run_tool([*step, "-c", program, "connect", host, port], TRY_S)
        found = remoting.answer(ran, f"no attempt from {self.args.elsewhere}")
        words = way_of(found, "a connection from elsewhere")
        what, how = f"a connection from {self.args.elsewhere}", found["how"]
        self.note(what, how in KEPT, words, connection=how)

    def natively(self) -> None:
        """An ordinary user's program on the server itself: in the lease's own job, and in a job of his beside it."""
        text = (PROGRAM_FOLDER / "remoting_attempts.py").read_text(encoding="utf-8")
        program, common = ["python3", "-c", text, "device"], ["--quiet", "-n1", "--chdir=/", "--mpi=none"]
        step = ["srun", *common, f"--jobid={self.lease}", "--overlap", "--mem=0"]
        job = ["srun", *common, "-p", "all", "-w", self.args.server, "--mem=50", "--time=2", "--oversubscribe"]
        job += ["--gres=shard:1"]
        tries = {
            "the GPU by a step in the lease's job": ([*step, *program], [*step, *AS_USER, *program]),
            "the GPU by a native job": ([*job, *program], [*AS_USER, *job, *program]),
        }
        for what, (control, tried) in tries.items():
            ran = run_tool(control, TRY_S)
            if native_end(ran, what) != "opened":
                raise remoting.Unmet(f"{what}: could not be tried: root has no GPU there: {remoting.said(ran)}")
            ran = run_tool(tried, TRY_S)
            how = native_end(ran, what)
            self.note(what, how == "opened", f"{how} ({remoting.said(ran)})", native=how)

    def crash(self) -> None:
        """Another tenant of the same server works on while this one's program dies in the middle."""
        command = [*remoting_program.run_words(self.args.engine), "-n", "1", "-p", PART, "-l", self.args.server, "--"]
        works = ["elastic-ai-copybench", "--json", "--bytes", "4M", "--repeat", "200"]
        if self.args.engine:
            works = remoting_program.attempt(self.args.engine, "work", "4000")
        other = remoting.start([*command, *works])
        try:
            time.sleep(2)
            ran = self.run("crash")
            if ran.returncode == 0:
                raise remoting.Unmet("the program that was to crash did not")
            out, err = other.communicate(timeout=TRY_S)
        except subprocess.TimeoutExpired:
            out, err = "", "it hung"
        finally:
            other.kill()
        right = other.returncode == 0 and remoting.answer(Ran([], 0, out, err), "the neighbour")["verified"] is True
        words = "its data were right" if right else err.strip()[-200:]
        self.note("harm to a neighbour by a crash", not right, words, unharmed=right)
        after = self.found("take", "0.9")
        if after["code"]:
            raise remoting.Unmet(f"after its crash the tenant's own memory is not free (CUDA error {after['code']})")

    def after_the_end(self, offer: dict[str, Any]) -> None:
        """The lease is given back; token and endpoint are tried again until the server is gone."""
        host, _, port = offer["servers"][0].rpartition(":")
        remoting.release(self.lease)
        began = time.monotonic()
        here = [sys.executable, "-m", "validation.probes.remoting_attempts", "connect", host, port]
        what, how, words = "the server after the lease's end", "kept", ""
        while not words or (time.monotonic() - began < GONE_S and how in KEPT):
            found = remoting.answer(run_tool(here, TRY_S), "connect")
            words, how = way_of(found, what), found["how"]
        self.facts["gone_s"] = round(time.monotonic() - began, 2)
        self.note(what, how in KEPT, f"{words}, {self.facts['gone_s']} s", connection=how)
        self.note_token("the token after the lease's end", self.bare(offer, NO_SERVER_S))
        ran, what = self.run("device"), "the lease after its end"
        self.note(what, not turned_away(ran, what), remoting.said(ran), status=ran.returncode)


def attempts(args: Asked) -> Tenant:
    """All attempts, in an order in which the last ones end the lease."""
    with ExitStack() as stack:
        by = ["--engine", args.engine] if args.engine else []
        lease = stack.enter_context(remoting.leased("-n", "1", "-p", PART, "-l", args.server, *by))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elastic-ai-")))
        tenant = Tenant(int(lease["lease"]), args)
        tenant.control()
        offer = tenant.offer(folder / "offered")
        steps: list[Callable[[], None]] = [
            lambda: tenant.memory(offer["holds_memory_of"] == "lease"),
            tenant.others,
            lambda: tenant.tokens(offer, folder),
            tenant.stranger,
            tenant.natively,
            *([lambda: tenant.elsewhere(offer["servers"][0])] if args.elsewhere else []),
            tenant.crash,
            lambda: tenant.after_the_end(offer),
        ]
        for step in steps:
            step()
        return tenant


def probe(args: Asked) -> ProbeDoc:
    """Every attempt with its outcome; `breaches` counts those that got through."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server, "elsewhere": args.elsewhere}
        facts |= remoting.engine(args.engine)
        try:
            tenant = attempts(args)
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), facts, str(fault)
        facts |= tenant.facts
        facts["attempts"] = tenant.tried
        return Ran([remoting.COMMAND, "run"], 0, json.dumps(facts), ""), facts, None

    return document(
        "remoting-isolate", remoting.COMMAND, measure, lambda _: remoting.engine(args.engine)["engine_release"]
    )
