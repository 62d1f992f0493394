"""What the page is set up with: a file of role pool_page."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from validation.base.errors import ToolkitError

CONF = Path("/etc/elastic-ai/page/page.json")


@dataclass(frozen=True)
class Settings:
    """reading: who can see the page. certificate and key: PEM files of TLS. prometheus: its address, "" where there is
    none. runs: the folder of validation runs, "" where there is none. events: a socket at which starts and ends of jobs
    are announced, "" where systemd passes it. pool_file: what role remoting_client wrote. boards: the folder
    of role monitoring's dashboards."""

    site: str = "Pool of GPUs"
    address: str = "0.0.0.0"  # noqa: S104 - a page is for others to open; the role's variable says where
    port: int = 8443
    reading: Literal["open", "login"] = "login"
    certificate: str = "/etc/elastic-ai/page/tls.crt"
    key: str = "/etc/elastic-ai/page/tls.key"
    prometheus: str = "http://127.0.0.1:9090"
    runs: str = "/var/lib/elastic-ai-revalidate/runs"
    events: str = ""
    login: str = "/run/elastic-ai-login.sock"
    pool_file: str = "/etc/elastic-ai/remoting/pool.json"
    boards: str = "/etc/elastic-ai/monitoring"


def read_settings(path: Path) -> Settings:
    """The file's settings. ToolkitError where it cannot be used."""
    try:
        data = json.loads(path.read_text())
        if not isinstance(data, dict):
            raise ValueError("it is no object")
        known = {field.name: type(field.default) for field in fields(Settings)}
        if isinstance(data.get("port"), str) and data["port"].isdigit():
            data["port"] = int(data["port"])  # as Ansible writes a number that was given on its command line
        for key, value in data.items():
            if key not in known or not isinstance(value, known[key]):
                raise ValueError(f"{key} is {ascii(value)[:40]}")
        if data.get("reading", "login") not in ("open", "login"):
            raise ValueError("reading is neither open nor login")
        return Settings(**data)
    except (OSError, ValueError) as fault:
        raise ToolkitError(f"{path}: {fault}; run site.yml again") from None
