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
_BATCHES_LEFT = (
    "stopped between two batches because `--budget` is used up, or by this machine (a full disk, another deployment "
    "that does not end), with the batch's nodes drained; run the same command to continue"
)
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
    "inventory cables": {
        Exit.OK: "the map was printed, with every port that was looked at",
        Exit.USAGE: f"{_USAGE}: a CSV with a fault, or a run that did not look at cables",
        Exit.INCOMPLETE: "the map was printed without a port that heard no switch, or several; it is named",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "check": {
        Exit.OK: "every check that concerns a node passed on it, and no part is another than the signed one",
        Exit.FAILED: "a check failed, or a part is not the one that was signed, or not where it was",
        Exit.USAGE: f"{_USAGE}; nothing was checked",
        Exit.INCOMPLETE: "no check failed, and one could not be run: a node not reached, a check that is gone, "
        "a signed part that was not read; or the signed paper has ended: its last day, or firmware or driver changed",
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
        "those of a release and nobody said that they were agreed on (`--rules`), or its last day has passed",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "handover points": {
        Exit.OK: "the points were listed, and no blocking one is open",
        Exit.FAILED: "the points were listed; a blocking one is open",
        Exit.USAGE: f"{_USAGE}: a fault in the list, with its line",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "handover update": {
        Exit.OK: "the list is as the run leaves it, and no blocking point is open",
        Exit.FAILED: "the list is as the run leaves it; a blocking point is open",
        Exit.USAGE: f"{_USAGE}: a fault in the list, a run that was not judged, or nobody named for a new point; "
        "nothing was written",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "handover open": {
        Exit.OK: "the point is in the list",
        Exit.USAGE: f"{_USAGE}; nothing was written",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "handover close": {
        Exit.OK: "the point is closed in the list",
        Exit.USAGE: f"{_USAGE}; nothing was written",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "handover sum": {
        Exit.OK: "the page was written and signed",
        Exit.USAGE: f"{_USAGE}, or runs that make up no sum: unsigned, changed, expired, not passed, with a node in "
        "common, or measured by other criteria; nothing was written",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "handover evidence": {
        Exit.OK: "both files were written",
        Exit.USAGE: f"{_USAGE}, or a run that is unsigned or changed; nothing was written",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "handover witness": {
        Exit.OK: "the list came to its end, and nothing failed",
        Exit.FAILED: "the list came to its end; something failed",
        Exit.USAGE: f"{_USAGE}: a fault in witness.yml, with its line, or a run without such tests",
        Exit.INCOMPLETE: "the list came to its end; something was not measured",
        Exit.INTERRUPTED: "broken off; called again it goes on with the step at which it was",
    },
    "handover check-sum": {
        Exit.OK: "the page is as it was signed, and the sum of the runs that were named",
        Exit.FAILED: "something is not as it was signed, or the runs come to another sum; it is named",
        Exit.USAGE: f"{_USAGE}, or runs that make up no sum",
        Exit.INCOMPLETE: "the page is as it was signed; its runs were not named, or what follows from its inventory or "
        "machine is otherwise here, or its last day has passed",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "support": {
        Exit.OK: "the file was written; what single tools could not read is listed in it",
        Exit.USAGE: f"{_USAGE}: an unknown node or part, a file that is there already, or a full disk; nothing was "
        "written",
        Exit.INCOMPLETE: "the file was written without the node, a part of its answer, or the BMC that the inventory "
        "names; it is printed which, and why",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; nothing was written, and nothing is left on the node",
    },
    "compare": {
        Exit.OK: "no criterion got worse, and no part that both runs read is another",
        Exit.FAILED: "a criterion got worse: its verdict, or a figure beyond noise; or a part is another one",
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
    "upgrade": {
        Exit.OK: "every node has the release and passed its validation (--dry-run: the plan was printed)",
        Exit.FAILED: "a batch is bad: a node failed, waits for a reboot, or does not hold what the site was accepted "
        "with; its nodes stay drained, later batches are untouched",
        Exit.USAGE: f"{_USAGE}; a refusal before anything was changed is reported as such",
        Exit.INCOMPLETE: _BATCHES_LEFT,
        Exit.INTERRUPTED: f"{_INTERRUPTED}; run the same command to continue",
    },
    "rollback": {
        Exit.OK: "every node has the versions on record before the upgrade, and passed its validation, or the last "
        "upgrade was taken back before: nothing to do (--dry-run: the plan was printed)",
        Exit.FAILED: "a batch is bad; its nodes stay drained, later batches are untouched",
        Exit.USAGE: f"{_USAGE}, or something cannot go back; nothing was changed",
        Exit.INCOMPLETE: _BATCHES_LEFT,
        Exit.INTERRUPTED: f"{_INTERRUPTED}; run the same command to continue",
    },
    "incidents": {
        Exit.OK: "no server fails, or each that did is mended and takes work again",
        Exit.FAILED: "a server fails: it is drained and waits for a person, or would be drained (dry run); it is named",
        Exit.USAGE: f"{_USAGE}, or `--do accept` without an accepted run; nothing was changed",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; the same command goes on where each server is",
    },
    "status": {
        Exit.OK: "everything that was looked at is well; a line may be marked NOTE",
        Exit.FAILED: "something is bad; each is named",
        Exit.USAGE: f"{_USAGE}; nothing was looked at",
        Exit.INCOMPLETE: "nothing is bad, and something could not be read; it is named",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "rotate": {
        Exit.OK: "all is exchanged and tried on every node, or nothing was to do (--dry-run: the plan was printed)",
        Exit.FAILED: "a node or Slurm failed: all have the old key again, or the rotation is open and the same command "
        "goes on; each node is named, and it is said where no job starts meanwhile",
        Exit.USAGE: f"{_USAGE}, or a node does not answer or has another key; nothing was changed",
        Exit.INCOMPLETE: "all is exchanged, and a node was left out (`--without`), or a job ended meanwhile or "
        "could not be read",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; what was begun was taken back, or was at its end, or the next call ends it",
    },
    "mirror plan": {
        Exit.OK: "the plan was printed, and the repositories have all that the roles install",
        Exit.FAILED: "the plan was printed, and no repository has a package that a role installs; it is named",
        Exit.USAGE: f"{_USAGE}, or apt, dnf or a repository could not be asked",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "mirror build": {
        Exit.OK: "the mirror has all of the plan, and is signed",
        Exit.FAILED: "no repository has a package that a role installs; it is named, and nothing was built",
        Exit.USAGE: f"{_USAGE}, or a medium is full, a server stopped or a file is not the planned one; what came "
        "stays, and the mirror is not signed",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; what came stays, and the same command goes on",
    },
    "mirror verify": {
        Exit.OK: "the signature is good, and every file is the signed one",
        Exit.FAILED: "a file is damaged, missing, added or of another release, the signature is not good, or it "
        "is older than the last mirror of its site; each is named",
        Exit.USAGE: f"{_USAGE}, or the folder is no mirror, or one that was not finished",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "mirror serve": {
        Exit.OK: "served until it was ended",
        Exit.USAGE: f"{_USAGE}, a mirror that nobody signed, or an address that cannot be listened at",
    },
    "backup": {
        Exit.OK: "the backup was made, read back and copied, and every one that the head keeps can be read",
        Exit.FAILED: "none was made, or one that the head keeps cannot be read; it is named",
        Exit.USAGE: f"{_USAGE}, or the head makes no backups; nothing was made",
        Exit.RETRY: "another backup is being made; try again",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; nothing was copied",
    },
    "restore": {
        Exit.OK: "the head has the backup's state, and what happened to each job is printed (--dry-run: the plan was)",
        Exit.FAILED: "the head refused its part, or the deployment failed on a node; run the same command to continue",
        Exit.USAGE: f"{_USAGE}: a backup that is damaged, of another head, cluster or form, or of a "
        "newer Slurm, or a head that has something already; nothing was changed",
        Exit.INCOMPLETE: "the head is back, and a GPU server could not be asked what ran there; it is named",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; run the same command to continue",
    },
    "pool": {
        Exit.OK: "the policies were compared, or a cluster that the pool joins has what leases need; nothing was "
        "applied",
        Exit.FAILED: "a cluster that the pool joins lacks something that leases need; each is printed with what to add",
        Exit.USAGE: f"{_USAGE}: a fault in the file, with its line, a head that does not answer, or another cluster "
        "than slurm_pool.join names",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "switch check": {
        Exit.OK: "hosts and switches agree on every port that was compared",
        Exit.FAILED: "they differ; each difference is printed with the host's line and the switch's",
        Exit.USAGE: f"{_USAGE}: a fault in the inventory, or a file that is cut or of another system",
        Exit.INCOMPLETE: "no difference was found, and a port or switch could not be compared; it is named",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "switch render": {
        Exit.OK: "the configuration was printed; nothing was sent to a switch",
        Exit.USAGE: f"{_USAGE}: no such switch in the map of cables, or hosts that differ in their RoCE variables",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "gpus": {
        Exit.OK: "done",
        Exit.USAGE: f"{_USAGE}, or a request that the pool can never meet",
        Exit.RETRY: "Slurm did not answer; try again",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "run": {
        Exit.OK: "the program's own exit code, 128 + number where a signal ended it",
        Exit.USAGE: "the request cannot be met; no program was started",
        Exit.RETRY: "the lease did not start, or ended before its program; try again",
    },
    "logs": {
        Exit.OK: "the output was printed; with `-f` the program's own exit code, 128 + number where a signal ended it",
        Exit.USAGE: "no program of yours goes on alone under that lease on this machine",
        Exit.RETRY: "with `-f`: nobody knows the program's exit code, because its machine was started again or what "
        "kept it was killed",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; the program goes on",
    },
    "attach": {
        Exit.OK: "the program's own exit code, 128 + number where a signal ended it",
        Exit.USAGE: "no program of yours goes on alone under that lease on this machine",
        Exit.RETRY: "nobody knows the program's exit code, because its machine was started again or what kept it was "
        "killed",
        Exit.INTERRUPTED: f"{_INTERRUPTED}; the program goes on",
    },
    "ssh": {
        Exit.OK: "the exit code of the command or shell there, 255 where ssh itself failed",
        Exit.USAGE: "there is no such lease of yours, a port is in use, or ssh is missing here",
        Exit.RETRY: "the lease does not run, or Slurm did not answer; try again",
        Exit.INTERRUPTED: _INTERRUPTED,
    },
    "jupyter": {
        Exit.OK: "the notebook server has ended, by Ctrl-C or from its own menu; with `--detach` it goes on alone",
        Exit.USAGE: "the request cannot be met, a port is in use, or no notebook server is installed; nothing started",
        Exit.RETRY: "the lease did not start, or ended before the notebook server; try again",
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
