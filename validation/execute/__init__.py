"""Execution: the only part that starts processes on nodes, and the only writer of results.jsonl and raw/."""

from validation.base.errors import RunError
from validation.execute.here import HereLauncher
from validation.execute.remote import Launcher, Output, Remote
from validation.execute.scheduler import Progress, run_plan
from validation.execute.ssh import SshLauncher

__all__ = ["HereLauncher", "Launcher", "Output", "Progress", "Remote", "RunError", "SshLauncher", "run_plan"]
