"""Handover day in a lab, whatever its nodes are: from a first fault, which becomes a point, to papers with a last day
and a second look by stock tools."""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from validation.base.project import ROOT

BIN = Path(sys.executable).parent
WHO = "A. Example, Integrator"
LAST = "2027-06-30"
RACKS = {"rack1": ("head", "gpu1"), "rack2": ("client1", "gpu2")}
SUITES = ("preflight", "as-built", "storage", "recovery", "witness")
MUST_PASS = ("st.seen", "st.flock", "rc.reboot", "rc.dead", "rc.back", "rc.head")
WITNESSED = ("wt.seen", "wt.lost", "wt.back")
#: Without a BMC nobody sees that one feed is off.
TESTS = {"psu-feed": "not-measured", **dict.fromkeys(("cable-out", "leaf-off", "node-off", "power-back"), "pass")}
#: What a person does at a test, and undoes.
Hand = tuple[Callable[[], object], Callable[[], object]]


class Lab(Protocol):
    """A lab, as far as it is needed here."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def inventory(self) -> Path:
        """Where its inventory is."""

    def ssh(self, node: str, *command: str) -> str:
        """What the command said on the node."""


@dataclass(frozen=True)
class Day:
    """`hands`: what a person does, test by test. `planted`: a fault, and the suite and criterion that find it.
    `limit_s`: of a run; `quiet_s`: how long a list may say nothing."""

    lab: Lab
    folder: Path
    hands: Sequence[Hand]
    planted: tuple[str, str, str] = ("few-files", "as-built", "pf.asbuilt")
    limit_s: float = 1800
    quiet_s: float = 300

    @property
    def runs(self) -> Path:
        """Where its runs are."""
        return self.folder / "runs"

    def said(self, *words: str | Path, codes: Sequence[int] = (0,)) -> str:
        """All that `toolkit` said, which ended with one of these codes."""
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(
            [BIN / "toolkit", *words], cwd=ROOT, env=env, text=True, capture_output=True, timeout=self.limit_s,
            check=False,
        )  # fmt: skip
        text = done.stdout + done.stderr
        assert done.returncode in codes, f"exit {done.returncode}: {text[-6000:]}"
        return text

    def measured(self, *words: str, codes: Sequence[int] = (0, 1, 3)) -> Path:
        """The run of a validation."""
        began = time.monotonic()
        where = ("-i", self.lab.inventory, "--runs-dir", self.runs, "--fabric", "tcp10")
        text = self.said("validate", *where, *words, codes=codes)
        print(f"{text[-1500:]}\nvalidate {' '.join(words)}: {(time.monotonic() - began) / 60:.1f} minutes")
        return max(self.runs.iterdir())

    def points(self, run: Path, *codes: int) -> None:
        """The punch list is brought up to date by a run."""
        where = ("-i", self.lab.inventory, "--runs-dir", self.runs)
        self.said("handover", "update", run, "--owner", WHO, *where, codes=codes)


def racks(hosts: Path) -> str:
    """An inventory names two units; its text as it was."""
    before = hosts.read_text()
    inventory = yaml.safe_load(before)
    for rack, names in RACKS.items():
        inventory["all"]["children"][rack] = {"hosts": {name: {} for name in names}}
    hosts.write_text(yaml.safe_dump(inventory, sort_keys=False))
    return before


def criteria(run: Path) -> dict[str, dict[str, Any]]:
    """Criterion -> what the verdict has of it."""
    return {one["id"]: one for one in json.loads((run / "verdict.json").read_text())["criteria"]}


def of_each_test(found: Mapping[str, dict[str, Any]], id_: str) -> dict[str, str]:
    """Witnessed test -> what a criterion says of it."""
    return {judged["about"]["op"]: judged["verdict"] for judged in found[id_]["judgements"]}


def led(day: Day, run: Path) -> str:
    """`toolkit handover witness` with a person who does what is asked; all that it said."""
    words = [str(BIN / "toolkit"), "handover", "witness", str(run), "-i", str(day.lab.inventory)]
    todo = [act for hand in day.hands for act in hand]
    said, seen = "", 0
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while select.select([process.stdout], [], [], day.quiet_s)[0]:
            chunk = os.read(process.stdout.fileno(), 4096).decode("utf-8", "replace")
            if not chunk:
                break
            said += chunk
            asked = said[seen:].rpartition("\n")[2]
            if not asked.endswith((": ", "? ")):
                continue
            seen = len(said)
            if "Press Enter" not in asked:
                answer = WHO if "witness" in asked else "no BMC here" if "hy" in asked else "as expected"
            elif "write skip" in asked and "one power cable" in asked:
                answer = "skip"
            else:
                todo.pop(0)()
                answer = ""
            process.stdin.write(f"{answer}\n".encode())
            process.stdin.flush()
        process.kill() if process.poll() is None and not said else process.wait(timeout=day.quiet_s)
    assert process.returncode in (0, 1, 3), said
    assert not todo, said
    return said


def power(lab: Lab, node: str) -> Hand:
    """A node's power goes, and comes back."""

    def fault(*words: str) -> None:
        done = subprocess.run(
            [BIN / "toolkit", "lab", "fault", *words, "--name", lab.name], cwd=ROOT, text=True, capture_output=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return lambda: fault("set", node, "dead-node"), lambda: fault("clear", node)


def a_fault_becomes_a_point(day: Day) -> None:
    """A first run finds what was planted; then it is mended."""
    day.runs.mkdir()
    fault, suite, criterion = day.planted
    day.said("lab", "fault", "set", "--name", day.lab.name, "gpu2", fault)
    suites = dict.fromkeys(("preflight", suite))
    first = day.measured(*(word for one in suites for word in ("--suite", one)), codes=(1,))
    day.points(first, 1)
    assert criterion in (day.lab.inventory / "punch.yml").read_text()
    day.said("lab", "fault", "clear", "gpu2", "--name", day.lab.name)


def all_of_it(day: Day) -> Path:
    """The second run has every suite of a handover, and closes the point."""
    run = day.measured(*(word for suite in SUITES for word in ("--suite", suite)), "--reboots", "2")
    began = time.monotonic()
    print(led(day, run)[-3000:], f"\nwitnessed list: {(time.monotonic() - began) / 60:.1f} minutes")
    found = criteria(run)
    for id_ in MUST_PASS:
        print(id_, *(f"\n  {judged['verdict']}: {judged['reason']}" for judged in found[id_]["judgements"]))
    assert {id_: found[id_]["verdict"] for id_ in MUST_PASS} == dict.fromkeys(MUST_PASS, "pass")
    assert {id_: of_each_test(found, id_) for id_ in WITNESSED} == dict.fromkeys(WITNESSED, TESTS)
    listed = {one["id"]: one for one in json.loads((run / "verdict.json").read_text())["points"]}
    assert listed
    assert all(one["state"] == "closed" and one["closed_by"] == run.name for one in listed.values()), listed
    day.points(run, 0)  # else the points would keep the units' runs back
    return run


def papers(day: Day, run: Path) -> None:
    """Papers with a last day, two units with their sum, and a second look."""
    key = day.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signer, inventory = ("--key", key, "--as", WHO), ("-i", day.lab.inventory)
    units = [day.measured("--unit", name, "--suite", "preflight") for name in RACKS]
    for one in (run, *units):
        day.said("sign", one, *signer, "--until", LAST)
    out = day.folder / "sum"
    day.said("handover", "sum", *units, *signer, "--out", out, *inventory)
    assert "NOT INTACT" not in day.said("handover", "check-sum", out, *units, *inventory, codes=(0, 3))
    assert subprocess.run(["sha256sum", "--quiet", "-c", "sum.txt"], cwd=out, check=False).returncode == 0
    text = day.said("verify", run, codes=(0, 1, 3))
    assert "INTACT" in text, text
    assert "NOT INTACT" not in text
    assert LAST in text
    second_look(run)


def second_look(run: Path) -> None:
    """By what every Linux has: sums and signature, without this toolkit."""
    for line in (run / "MANIFEST.sha256").read_text().splitlines():
        sha256, name = line.split(maxsplit=1)
        assert hashlib.sha256((run / name.strip()).read_bytes()).hexdigest() == sha256, name
    assert subprocess.run(["sha256sum", "--quiet", "-c", "MANIFEST.sha256"], cwd=run, check=False).returncode == 0
    (signature,) = (run / "signatures").glob("*.sig")
    statement = signature.with_suffix("")
    assert LAST in statement.read_text()
    sign_off = json.loads((run / "verdict.json").read_text())["sign_off"]
    words = ["ssh-keygen", "-Y", "check-novalidate", "-n", f"elastic-ai-{sign_off.lower()}", "-s", str(signature)]
    with statement.open("rb") as text:
        done = subprocess.run(words, stdin=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
