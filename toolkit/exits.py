"""Exit codes of all commands: docs/reference/exit-codes.md, a table of docs/how-to/acceptance.md, each --help.

Standard library only: machines of the pool import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERNAL = 70  # EX_SOFTWARE of sysexits.h
    RETRY = 75  # EX_TEMPFAIL of sysexits.h
    INTERRUPTED = 130  # 128 + SIGINT, as a shell has it


_USAGE = "usage or input error"
_INTERRUPTED = "interrupted"
_FIRST = re.compile(r"[;,:]| \(|, which")
#: What every command can end with, whatever else its codes mean.
ANY = {Exit.INTERNAL: "an error of the toolkit itself, independent of what was to be done or judged"}
_OTHERS = {Exit.OK: "done", Exit.USAGE: _USAGE, Exit.INTERRUPTED: _INTERRUPTED}
#: command -> code -> meaning. A command that is not listed ends with 0, 2 or 130, or one of `ANY`.
MEANINGS: dict[str, dict[Exit, str]] = {
    "validate": {
        Exit.OK: "accepted (a waiver may have lifted what failed), or rehearsed or inspected (`--here`) with all "
        "judged criteria passing",
        Exit.FAILED: "a criterion failed (of several fabrics: of any of them); the suspect node, port or link is named",
        Exit.USAGE: f"{_USAGE}; nothing was judged",
        Exit.INCOMPLETE: "incomplete: a planned measurement is missing, or an owed criterion could not be judged",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; finished measurements are kept, and `--resume RUN` continues there",
    },
    "deploy": {
        Exit.OK: "every node is in the wanted state (--check: could be brought there)",
        Exit.FAILED: "a node failed, could not be reached, or is unfit",
        Exit.USAGE: f"{_USAGE}, or Ansible ended early or reached no node",
        Exit.INCOMPLETE: "no node failed, and one waits for a reboot to which nobody consented (`-- -e "
        "reboot=if_needed`), or `--skip-unfit` left out nodes that preflight refused; each is named",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; run the same command to continue",
    },
    "teardown": {
        Exit.OK: "everything that the roles did was taken back on every node (--check: could be)",
        Exit.FAILED: "a node failed or could not be reached, or something was not taken back; it is named",
        Exit.USAGE: f"{_USAGE}, nobody consented, or Ansible ended early or reached no node",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; run the same command to continue",
    },
    "inventory init": {
        Exit.OK: "every node was read, and the inventory was written",
        Exit.USAGE: f"{_USAGE}, or no node could be read; nothing was written",
        Exit.INCOMPLETE: "the inventory was written without a node that could not be read or used; it is named",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; nothing was written but confirmed host keys",
    },
    "inventory scan": {
        Exit.OK: "every node is as the inventory says",
        Exit.FAILED: "a node differs from the inventory, or is not in it",
        Exit.USAGE: _USAGE,
        Exit.INCOMPLETE: "no difference was found, and a node could not be read",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "check": {
        Exit.OK: "every check that concerns a node passed on it",
        Exit.FAILED: "a check failed",
        Exit.USAGE: f"{_USAGE}; nothing was checked",
        Exit.INCOMPLETE: "no check failed, and one could not be run: a node that was not reached, a check that is gone",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "report": {
        Exit.OK: "everything that was asked for was written, whatever the verdict is",
        Exit.USAGE: f"{_USAGE}, a format that was named cannot be made here (PDF without its libraries), "
        "runs that do not fit into one campaign, or with `--trace` no such job, no trace of it, or a raw log that "
        "changed",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "sign": {
        Exit.OK: "signed, whatever the verdict is",
        Exit.USAGE: f"{_USAGE}: an unusable key, a run that changed since it was signed, a verdict that does not "
        "follow from the results, or a possible secret",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "bundle": {
        Exit.OK: "the bundle was written, whatever the verdict is",
        Exit.USAGE: f"{_USAGE}: a run that changed since it was signed, a possible secret, or a full disk",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "verify": {
        Exit.OK: "everything is as it was signed and was checked, and all signatures are good",
        Exit.FAILED: "something changed or does not follow from the data, a signature is bad or unknown, or nobody "
        "signed",
        Exit.USAGE: _USAGE,
        Exit.INCOMPLETE: "as it was signed, but something could not be checked on this machine, or the rules are not "
        "those of a release and nobody said that they were agreed on (`--rules`)",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "compare": {
        Exit.OK: "no criterion got worse",
        Exit.FAILED: "a criterion got worse: its verdict, or a figure beyond noise",
        Exit.USAGE: f"{_USAGE}, or the runs are not comparable",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "trend": {
        Exit.OK: "the trend was written; nothing drifted for the worse",
        Exit.FAILED: "the trend was written; a figure drifted for the worse, and is named",
        Exit.USAGE: f"{_USAGE}: a damaged run, runs that are no series, or a format that cannot be made here",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "baseline": {
        Exit.OK: "the baseline was written",
        Exit.USAGE: f"{_USAGE}: a run that is damaged or was not accepted, or runs that bound nothing together",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "judge": {
        Exit.OK: "by these rules everything that is judged passes; nobody signs that",
        Exit.FAILED: "by these rules a criterion fails",
        Exit.USAGE: f"{_USAGE}: a damaged run, or rules that cannot be used; nothing was written",
        Exit.INCOMPLETE: "by these rules something owed could not be judged, or a planned measurement is missing",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "runs": {
        Exit.OK: "the runs were listed, whatever their verdicts are; a damaged one is a row that names the fault",
        Exit.USAGE: _USAGE,
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "lab status": {
        Exit.OK: "every node answers by ssh",
        Exit.FAILED: "a node does not answer",
        Exit.USAGE: f"{_USAGE}: there is no such lab",
    },
    "lab drill": {
        Exit.OK: "every fault that was planted was found, and nobody was blamed who has none",
        Exit.FAILED: "a fault was not found, somebody was blamed falsely, or a validation came to no verdict",
        Exit.USAGE: f"{_USAGE}: there is no such lab, or a fault could not be planted or cleared",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; what was planted is cleared; run the same command to continue",
    },
    "narrow": {
        Exit.OK: "no part of the job fails by itself",
        Exit.FAILED: "nodes at fault are named, or every job failed, so that what all share is at fault",
        Exit.USAGE: f"{_USAGE}: the command cannot be started or names no nodes, or there is nothing to narrow",
        Exit.INCOMPLETE: "nobody can be named in a group that failed: the fault came and went, or needs several nodes",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; what was running has ended",
    },
    "node": {
        Exit.OK: "the node is in the pool and takes leases, or has left it",
        Exit.FAILED: "the node failed its acceptance and stays drained, or a playbook failed on a node",
        Exit.USAGE: f"{_USAGE}; a refusal before anything was changed is reported as such",
        Exit.INCOMPLETE: "the node was provisioned, stays drained, and waits for a reboot; then run the same command",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; run the same command to continue",
    },
    "run": {
        Exit.OK: "the program's own exit code, 128 + number where a signal ended it",
        Exit.USAGE: "the request cannot be met; no program was started",
        Exit.RETRY: "the lease did not start, or ended before its program; try again",
    },
    "lease": {
        Exit.OK: "done",
        Exit.USAGE: "the request cannot be met",
        Exit.RETRY: "Slurm or the lease's agent did not answer, or the lease ended before it could be used; try again",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; what was requested is given back",
    },
}


def epilogue(command: str) -> str:
    """The last paragraph of `toolkit COMMAND --help`."""
    meanings = {**MEANINGS[command], **ANY}
    return "Exit codes: " + "; ".join(f"{int(code)} {text}" for code, text in sorted(meanings.items())) + "."


def meanings_of(command: str) -> dict[Exit, str]:
    """What a command ends with, as `lease request`: its own codes, those of its group, or those of any command."""
    words = command.split()
    known = (MEANINGS.get(" ".join(words[:n])) for n in range(len(words), 0, -1))
    return {**next((found for found in known if found), _OTHERS), **ANY}


def brief(meanings: Mapping[Exit, str]) -> str:
    """Exit codes in one sentence: of each meaning what stands before the first comma, colon or bracket."""
    words = (f"{int(code)} {_FIRST.split(text)[0]}" for code, text in sorted(meanings.items()))
    return f"Exit codes: {'; '.join(words)}."


#: What `toolkit validate` prints as the state of the sign-off, by its exit code.
SIGN_OFF = {
    Exit.OK: "`ACCEPTED`, `REHEARSAL`, `INSPECTION` or `CONSTRUCTED EXAMPLE`",
    Exit.FAILED: "`REJECTED`, or a rehearsal, inspection or example that would be",
    Exit.INCOMPLETE: "`INCOMPLETE`, or a rehearsal, inspection or example that would be",
}


def verdict_table() -> str:
    """The table of docs/how-to/acceptance.md: what a run of `toolkit validate` ends with."""
    meanings = sorted({**MEANINGS["validate"], **ANY}.items())
    rows = [f"| {int(code)} | {SIGN_OFF.get(code, 'none')} | {text} |" for code, text in meanings]
    return "\n".join(["| exit | sign-off | meaning |", "|---|---|---|", *rows]) + "\n"


def markdown_tables() -> str:
    """The tables of docs/reference/exit-codes.md: what any command can end with, and one for each command."""
    parts = []
    for title, meanings in [("any command", ANY), *((f"`toolkit {name}`", codes) for name, codes in MEANINGS.items())]:
        rows = [f"| {int(code)} | {text[:1].upper()}{text[1:]} |" for code, text in meanings.items()]
        parts.append("\n".join([f"| Code | Meaning of {title} |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"
