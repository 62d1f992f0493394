"""The names of the files of a run directory."""

from __future__ import annotations

RUN, TOPOLOGY, PLAN, RESULTS, VERDICT = "run.json", "topology.json", "plan.json", "results.jsonl", "verdict.json"
FABRIC, CRITERIA, INVENTORY = "fabric.yml", "criteria", "inventory.json"
REFERENCE = "reference"
"""Folder of the claims of the reference architecture that the criteria point to."""
BUILT = "built.json"
"""How the site was built, by the record of the machine that provisioned it; not every run has it."""
ACCEPTED = "accepted.json"
"""What the site trained at when it was accepted; not every run has it."""
PROFILE, WAIVERS = "profile.yml", "waivers.yml"
"""What of a run's rules not every run has: the acceptance profile that was agreed on, and what was waived."""
PUNCH = "punch.yml"
"""The site's punch list when the run began, or when it was taken into the run; not every run has it."""

TIED = (TOPOLOGY, PLAN, FABRIC, INVENTORY, BUILT, ACCEPTED, PROFILE, WAIVERS, PUNCH)
"""Documents that a run begins with, beside criteria and claims: run.json holds the SHA-256 of each that is there."""
