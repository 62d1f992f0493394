"""All commands, by what they are for: what `toolkit --help` prints, without importing any of them.

A command NAME is the attribute NAME of `toolkit.commands.NAME`. Its line here is the first sentence of its own help,
which a test compares. `toolkit --help` fits a screen of 50 lines while there are at most 44 commands.
"""

from __future__ import annotations

COMMANDS: dict[str, dict[str, str]] = {
    "Site": {
        "inventory": "Write an inventory from the nodes, or compare it",
        "deploy": "Provision the nodes of an inventory",
        "status": "Show how a site is, on one screen",
        "check": "Check that the nodes are as the toolkit built them",
        "node": "Add, replace or remove a GPU server of a pool",
        "pool": "Check a pool's policies, or the cluster it joins",
        "switch": "Compare switches with the hosts' RoCE settings",
        "teardown": "Undo a deployment",
    },
    "Measure and judge": {
        "validate": "Measure a site, judge it, and write the report",
        "judge": "Judge a finished run by other rules",
        "compare": "Compare two runs of a site",
        "trend": "Show how the figures of a site change over time",
        "baseline": "Make accepted runs the bounds of later ones",
        "narrow": "Find the nodes at fault in a job that fails",
        "runs": "List runs with their outcome and signatures",
    },
    "Hand over": {
        "handover": "Keep the punch list and papers of a handover",
        "report": "Write the report of a run",
        "sign": "Sign a run with an SSH key",
        "bundle": "Pack a run into one file for the customer",
        "verify": "Verify a run or bundle and its signatures",
        "support": "Pack what a vendor needs to know of a bad part",
    },
    "Use GPUs": {
        "gpus": "Show the GPUs of the pool and who uses them",
        "run": "Run a program with GPUs of the pool",
        "images": "List the images that programs can run in",
        "logs": "Print the output of a detached program",
        "attach": "Follow a detached program until it ends",
        "ssh": "Open a shell where a lease's GPUs are",
        "jupyter": "Serve notebooks with GPUs of the pool",
        "lease": "Keep GPUs for longer than one program",
    },
    "Day two": {
        "upgrade": "Bring a site to another stack release",
        "rollback": "Undo an upgrade, to the versions on record",
        "incidents": "Take out and mend GPU servers that fail",
        "rotate": "Exchange munge key and registry certificates",
        "backup": "Back up the head of a pool, and copy the file here",
        "mirror": "Make a mirror for a hall without internet",
        "restore": "Bring back the head of a pool from a backup",
    },
    "Look up": {
        "fabrics": "List the networks that can be measured",
        "profiles": "List what is owed for which delivery",
        "criteria": "List what must hold, with bound and source",
        "claims": "List the claims of the reference architecture",
    },
    "Lab": {
        "lab": "Build a virtual lab on this machine",
        "engine": "Build the engine for GPUs over the network",
    },
}

HELP = "help"
"""Explains the others, and stands in no group."""
HELP_WORDS = "Explain a command, or the first hour"
START = ("Start here", "lab up · deploy · validate · report (toolkit help first-hour)")


def names() -> list[str]:
    """All commands, in the order of the groups."""
    return [*(name for group in COMMANDS.values() for name in group), HELP]


def words(name: str) -> str:
    """The line of a command."""
    return next((group[name] for group in COMMANDS.values() if name in group), HELP_WORDS)
