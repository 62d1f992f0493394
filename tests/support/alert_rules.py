"""The alerts of role monitoring, of all its files of rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROLE = Path(__file__).parents[2] / "roles/monitoring"
FILES = sorted((ROLE / "files/rules").glob("*.yml"))
GROUPS: list[dict[str, Any]] = [group for file in FILES for group in yaml.safe_load(file.read_text("utf-8"))["groups"]]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in RULES if "alert" in rule}
