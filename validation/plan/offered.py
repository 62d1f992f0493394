"""What a plan can be asked for, as far as help pages list it: names and lengths. It imports nothing, as they do not.

A new suite adds its name to SUITE_NAMES; all else of it is found (suites.py). A test compares the two.
"""

from __future__ import annotations

SUITE_NAMES = (
    "preflight", "as-built", "transport", "storage", "compute", "burn-in", "training", "remoting", "operations",
    "recovery", "witness",
)  # fmt: skip
"""All suites, in the order in which they are planned."""
#: Measured unless others are named. As-built is for sites that site.yml provisioned; compute and remoting need the
#: nodes to themselves, operations a time of work; recovery reboots, and witness is led by a person.
DEFAULT = ("preflight", "transport", "training")
UNASKED = ("preflight", "transport", "compute")
"""What one machine by itself does, without an inventory, where no suite is named."""
ALONE = (*UNASKED, "burn-in", "training", "remoting")
"""What it can do."""

MINUTES = 15
"""Of burn-in, unless another number is asked for: heat has settled by then (Azure's thermal test takes as long)."""
MOST_MINUTES = 168 * 60
"""A week."""
SOAK_HOURS = {"8h": 8, "24h": 24, "72h": 72, "168h": 168}
"""Lengths of a soak: a night (ClusterMAX), a day, three, and a week; the first is the usual one."""

TORCH, TENSORFLOW = FRAMEWORKS = ("torch", "tensorflow")
"""What a training on processors is made with."""
EPOCHS = 90
"""Of the long test: Dell whitepaper 2019, section 4.1.2."""
LIMIT_HOURS = 168
"""After which a long test is ended."""
IN_MEMORY = "/dev/shm/elastic-ai-train-long"  # noqa: S108 - memory that a node's container shares with the node
"""Where a lab's long test keeps its checkpoints."""
