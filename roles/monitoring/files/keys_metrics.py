#!/usr/bin/python3
"""Keys and certificates for Prometheus: days until their end and since they were made, as node-exporter serves them.

    keys_metrics.py --output FILE.prom [--interval S] [--once] [--root /]

Runs on the head, as root: others cannot see when the munge key was made. Nothing is read of a private key.
"""

import json
import os
import ssl
import subprocess
import time
from pathlib import Path

from textfile import run_command

ROOT = Path(os.environ.get("ELASTIC_AI_KEYS_ROOT", "/"))  # / but in tests
DAY_S = 86400.0
HELP = {
    "elastic_ai_certificate_days_left": "Days until a certificate's end, negative after it.",
    "elastic_ai_munge_key_age_days": "Days since the munge key of this head was made.",
    "elastic_ai_pool_leavers": "Users who left a class: held are those whose jobs end, unsure those not known to have.",
    "elastic_ai_rotation_open": "1 where a rotation of a key was begun and is not finished.",
}
CERTIFICATES = {
    "registry authority": "etc/elastic-ai/registry/ca.crt",
    "registry": "etc/elastic-ai/registry/server.crt",
    "registry client": "etc/elastic-ai/registry/client.crt",
    "pool page": "etc/elastic-ai/page/tls.crt",
}
LEAVING = "etc/elastic-ai/slurm/leavers.json"
LEAVERS = {"held": "held", "unsure": "since"}
MUNGE_KEY = "etc/elastic-ai/slurm/munge.key"
ROTATIONS = {
    "munge-key": "etc/elastic-ai/slurm/rotation/rotation.json",
    "registry": "etc/elastic-ai/registry/rotation/rotation.json",
}


def end_of(path):
    """When a certificate ends, in seconds since 1970; of a file with several the first. ValueError where it is none."""
    done = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
    )
    if done.returncode != 0 or not done.stdout.startswith("notAfter="):
        raise ValueError(f"{path} is no certificate that openssl reads")
    return ssl.cert_time_to_seconds(done.stdout.strip().split("=", 1)[1])


def leavers(path):
    """Samples of what elastic-ai-pool-sync keeps of users who leave; none where it keeps nothing."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return [("elastic_ai_pool_leavers", {"state": state}, len(kept[key])) for state, key in LEAVERS.items()]
    except FileNotFoundError:
        return [("elastic_ai_pool_leavers", {"state": state}, 0) for state in LEAVERS] if path.parent.is_dir() else []


def read(root=ROOT):
    """(samples, what went wrong or None)."""
    samples, fault, now = [], None, time.time()
    for name, path in CERTIFICATES.items():
        if (root / path).exists():
            try:
                days = (end_of(root / path) - now) / DAY_S
                samples.append(("elastic_ai_certificate_days_left", {"certificate": name}, round(days, 2)))
            except (OSError, ValueError) as problem:
                fault = str(problem)
    if (root / MUNGE_KEY).exists():
        age = (now - (root / MUNGE_KEY).stat().st_mtime) / DAY_S
        samples.append(("elastic_ai_munge_key_age_days", {}, round(age, 2)))
    for name, path in ROTATIONS.items():
        if (root / path).parent.parent.is_dir():
            samples.append(("elastic_ai_rotation_open", {"key": name}, int((root / path).exists())))
    try:
        samples += leavers(root / LEAVING)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        fault = f"{root / LEAVING}: {problem}"
    return samples, fault


if __name__ == "__main__":
    raise SystemExit(run_command(__doc__, HELP, read))
