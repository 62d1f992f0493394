"""A sweep (tests/torch_programs/operator_sweep.py, database_sweep.py) to its end, held against a list of failures.

An operator that ends the process, or the session, is one failure; the sweep goes on behind it in a new process.
A list only shrinks: what fails and is not on it is wrong, and what is on it and passes is to be removed.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.torch_engine import PROGRAMS, ROOT, Server, ended, start

LISTS = ROOT / "tests/data/torch"
BAD = ("differs", "error", "late", "crash")
RESTARTS = 12
LIMIT_S = 3600  # of one process of the sweep: what hangs is ended, what is slow is not
REFUSED = "error: NotImplementedError: not on a leased GPU: "


@dataclass(frozen=True)
class Swept:
    """How one way went: operator -> what its last line said."""

    way: str
    results: dict[str, dict[str, object]]
    told: str = ""
    """What it wrote on stderr."""

    def failed(self) -> dict[str, str]:
        """Operator -> why."""
        return {name: f"{r['state']}: {r['text']}" for name, r in self.results.items() if r["state"] in BAD}

    def refused(self) -> set[str]:
        """Those of them that are refused by the sentence for a kind of tensor that is not carried, as is promised."""
        return {name for name, why in self.failed().items() if why.startswith(REFUSED)}

    def ran(self) -> int:
        """Operators that had a sample."""
        return sum(result["state"] != "none" for result in self.results.values())

    def line(self) -> str:
        """The counts, for the end of a test run."""
        counts: Counter[str] = Counter()
        for result in self.results.values():
            counts.update({key: value for key, value in result.items() if isinstance(value, int)})
        whole = sum(r["state"] == "ok" and r.get("bits") == r.get("samples") for r in self.results.values())
        what = "with the same text" if self.way == "errors" else "bit-equal"
        of = self.way if self.way in ("modules", "optimizers") else f"operators, {self.way}"
        return (
            f"{of}: {self.ran() - len(self.failed())} of {self.ran()} passed, "
            f"{len(self.refused())} refused by a sentence, "
            f"{whole} of them {what} throughout; "
            f"{counts['bits']:,} of {counts['samples']:,} samples {what}"
        )


def sweep(way: str, on: Server, *options: str, program: Path = PROGRAMS / "operator_sweep.py", **more: str) -> Swept:
    """The whole of it. AssertionError where the process ends early too often."""
    results: dict[str, dict[str, object]] = {}
    after: list[str] = []
    told = ""
    for _ in range(RESTARTS):
        done = ended(start(program, "remote", on, way, *options, *after, **more), LIMIT_S)
        told += done.err
        begun = ""
        for line in done.out.splitlines():
            said = json.loads(line) if line.startswith("{") else {}
            if "begin" in said:
                begun = said["begin"]
            elif "name" in said:
                results[said["name"]] = said
            elif "end" in said:
                return Swept(way, results, told)
        assert begun, f"the sweep did not begin: {done.err[-3000:]}"
        if begun not in results:
            last = (done.err.strip().splitlines() or [""])[-1]
            results[begun] = {"state": "crash", "text": f"the program ended with {done.code}: {last}"}
        after = ["--after", begun]
    raise AssertionError(f"{way}: {RESTARTS} operators ended the process: {Swept(way, results).failed()}")


def known(path: Path) -> dict[str, str]:
    """Name -> reason, of a list with lines `NAME | REASON`; its order is that of names."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    pairs = [line.partition(" | ") for line in lines if line.strip() and not line.startswith("#")]
    assert all(reason for _, _, reason in pairs), f"{path.name}: a line without a reason"
    names = [name for name, _, _ in pairs]
    assert names == sorted(set(names)), f"{path.name}: not in the order of names, or a name twice"
    return {name: reason for name, _, reason in pairs}


def faults(path: Path, failed: dict[str, str], ran: set[str]) -> list[str]:
    """What the list does not say: new failures, and listed ones that passed or were not there."""
    listed = known(path)
    new = [f"{name} fails and is not in {path.name}: {failed[name]}" for name in sorted(set(failed) - set(listed))]
    over = [f"{name} passes: remove it from {path.name}" for name in sorted(set(listed) & ran - set(failed))]
    gone = [f"{name} was not run: remove it from {path.name}" for name in sorted(set(listed) - ran)]
    return new + over + gone
