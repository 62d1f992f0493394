"""Emulated BMCs with constructed servers, an inventory that declares them, and what the probe reads of them."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from toolkit.lab.bmc.constructed import server
from toolkit.lab.bmc.emulated import EmulatedBmc, Traps
from validation.base.project import ROOT
from validation.probes.controller import INVENTORY

USER, PASSWORD = "acceptance", "S3cr3t-of-the-BMC-7f1c"


def certificate(folder: Path) -> tuple[Path, Path, str]:
    """A certificate for 127.0.0.1, its key, and its SHA-256."""
    cert, key = folder / "bmc.pem", folder / "bmc.key"
    if not cert.exists():
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        words += ["-days", "2", "-subj", "/CN=emulated BMC", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*words, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    der = ssl.PEM_cert_to_DER_cert(cert.read_text())
    return cert, key, hashlib.sha256(der).hexdigest()


@contextmanager
def bmcs(
    folder: Path, names: list[str], traps: Mapping[str, Traps] | None = None, kind: str = "16G"
) -> Iterator[dict[str, EmulatedBmc]]:
    """One emulated BMC for each node, all with one certificate."""
    cert, key, _ = certificate(folder)
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                EmulatedBmc(server(number, kind, name), USER, PASSWORD, cert, key, (traps or {}).get(name))
            )
            for number, name in enumerate(names, 1)
        }


def inventory(folder: Path, there: Mapping[str, EmulatedBmc], **more: Any) -> Path:
    """An inventory that declares them; the password is in the environment."""
    cert, _, _ = certificate(folder)
    hosts = {
        name: {"ansible_host": f"10.9.0.{n}", "fabric_ports": [{"interface": "fab0", "address": f"10.78.0.{n}/24"}],
               "bmc": {"address": "127.0.0.1", "port": bmc.port, "user": USER, "ca": str(cert), **more}}
        for n, (name, bmc) in enumerate(there.items(), 1)
    }  # fmt: skip
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"all": {"children": {"gpu_servers": {"hosts": hosts}}}}))
    return path


def probe(where: Path, names: list[str], deadline_s: float = 20.0, **environment: str) -> dict[str, Any]:
    """The probe's document, as a program of its own; `output` is all that it printed."""
    asked = json.dumps({"nodes": names, "deadline_s": deadline_s})
    env = {**os.environ, INVENTORY: str(where), "ELASTIC_AI_BMC_PASSWORD": PASSWORD, **environment}
    ran = subprocess.run(
        [sys.executable, "-m", "validation.probes", "bmc", asked], cwd=ROOT, env=env, capture_output=True, text=True
    )
    document: dict[str, Any] = json.loads(ran.stdout)
    return {**document, "output": ran.stdout + ran.stderr}
