"""The steps of an incident, in their order."""

from __future__ import annotations

from typing import Literal

Step = Literal["drain", "support", "empty", "reset", "reboot", "accept", "resume", "waits", "done"]
STEPS: tuple[Step, ...] = ("drain", "support", "empty", "reset", "reboot", "accept", "resume")
"""In this order; each is written down before it begins, and can be done again."""
OPTIONAL: tuple[Step, ...] = ("drain", "support", "reset", "reboot", "accept")
"""What an administrator allows; `empty` waits for jobs, `resume` follows an acceptance."""
