"""What the tests of leases on the lab do there: users, their commands, and what leases left."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol


class Lab(Protocol):
    """A lab, as far as it is needed here."""

    def ssh(self, node: str, *command: str) -> str:
        """What the command said on the node."""


SERVERS = ("gpu1", "gpu2")
#: An image of what the node itself has.
IMAGE = """
tar -C / -ch usr/bin/dash usr/bin/id usr/bin/ls usr/bin/cat usr/bin/sleep $(ldd /usr/bin/dash /usr/bin/ls |
    grep -o '/[^ :]*' | grep -v '^/usr/bin' | sort -u | sed 's#^/##') |
    docker import --change 'ENV PATH=/usr/bin' - elastic-ai-test:1
"""
#: Shell on a GPU server: everything that a lease could leave. Nothing when nothing is left.
LEFT = """
ls /run/elastic-ai/leases; ls /run/elastic-ai/gpu-users 2>/dev/null
systemctl list-units --plain --no-legend 'elastic-ai-lease@*'
nft list set inet elastic_ai_lease allowed | grep elements
pgrep -fa 'elastic-ai-refserver|elastic-ai-torchserver|elastic-ai-tfserver|lease-server/bin/agent'
ss -Htln 'sport >= :21000 and sport <= :23999'
ls -d /run/elastic-ai-lease-* /run/private/elastic-ai-lease-* 2>/dev/null
python3 -c "import json; [print(g) for g in json.load(open(0))['gpus'] if g['used_mib']]" \
    < <(/usr/lib/elastic-ai/lease-server/bin/inventory)
true
"""
#: What a command said that `hold` began, on its node.
HELD = "/tmp/held"
#: Shell on a GPU server: nothing more goes between it and client1 on the fabric, as with a dead switch.
CUT = """
peer=$(getent ahostsv4 client1 | awk '{print $1; exit}'); peer=${peer/10.77./10.78.}
nft -f - <<< "table inet cut {
  chain in { type filter hook input priority -20; ip saddr $peer drop; }
  chain out { type filter hook output priority -20; ip daddr $peer drop; }
}"
"""


def put(lab: Lab, node: str, path: Path) -> str:
    """Bring a program to a node; its path there."""
    text = base64.b64encode(path.read_bytes()).decode()
    lab.ssh(node, f"echo {text} | base64 -d > /root/{path.name}")
    return f"/root/{path.name}"


def shell(lab: Lab, node: str, script: str) -> str:
    """Run a script with bash."""
    return lab.ssh(node, f"echo {base64.b64encode(script.encode()).decode()} | base64 -d | bash")


def on_each(lab: Lab, nodes: Sequence[str], script: str) -> dict[str, str]:
    """Run a script with bash on several nodes at the same time; what each said."""
    with ThreadPoolExecutor(len(nodes)) as workers:
        return dict(zip(nodes, workers.map(lambda node: shell(lab, node, script), nodes), strict=True))


def until(what: Callable[[], Any], wanted: Any, limit_s: float = 60) -> None:
    """Wait for a value."""
    end = time.monotonic() + limit_s
    while True:
        seen = what()
        if seen == wanted:
            return
        assert time.monotonic() < end, f"{seen!r}, and not {wanted!r}, after {limit_s} s"
        time.sleep(0.5)


def left(lab: Lab) -> dict[str, str]:
    """What leases left on the servers, by server."""
    return {node: said.strip() for node, said in on_each(lab, SERVERS, LEFT).items() if said.strip()}


def run_as(lab: Lab, user: str, command: str, node: str = "client1") -> tuple[int, str]:
    """Exit code, and stdout and stderr together."""
    script = f"cd /; runuser -u {user} -- {command} 2>&1; code=$?; echo; echo exit $code"
    lines = shell(lab, node, script).rstrip().splitlines()
    end = max(number for number, line in enumerate(lines) if re.fullmatch(r"exit \d+", line))
    said = lines[: end - 1] if end and not lines[end - 1] else lines[:end]
    later = lines[end + 1 :]  # of what outlives a command that was killed for a moment
    return int(lines[end].split()[1]), "\n".join([*said, *later])


def hold(lab: Lab, node: str, user: str, command: str) -> None:
    """Begin a command of the user's that goes on when this returns; `held` tells of it."""
    shell(
        lab,
        node,
        f"""
        cd /; rm -f {HELD} {HELD}.over
        (runuser -u {user} -- {command} > {HELD} 2>&1; echo "exit $?" > {HELD}.over) < /dev/null > /dev/null 2>&1 &
        disown -a
        """,
    )


def held(lab: Lab, node: str) -> bool:
    """True while the command that `hold` began goes on; what it said as a failed assertion when it has ended."""
    over = shell(lab, node, f"if [ -e {HELD}.over ]; then cat {HELD} {HELD}.over; fi")
    assert not over, f"it has ended already: {over}"
    return True


def json_in(text: str) -> Any:
    """The JSON document among other lines."""
    return json.JSONDecoder().raw_decode(text[re.search(r"^\{", text, re.M).start() :])[0]  # type: ignore[union-attr]
