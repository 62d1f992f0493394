"""What a connection is on the GPU server: a step of the lease's job, in which an sshd of the user's own speaks on the
step's standard streams.

DOOR runs there with Python's standard library alone. Its order comes in the environment, sealed by munge: no other user
can open it, and nobody who reads what srun sends.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from toolkit.lease import LeaseError
from toolkit.lease.client.step import HERE, shape
from toolkit.lease.endpoint import LeaseEndpoint, gpus_text

VARIABLE = "ELASTIC_AI_SSH_ORDER"
#: Seconds that a stranger to the key has; connections of one sshd; seconds after which a client that is gone is missed.
_LIMITS = "LoginGraceTime 30\nMaxAuthTries 3\nMaxSessions 32\nClientAliveInterval 15\nClientAliveCountMax 4\n"
#: Each byte at once: srun hands on lines, if nothing else is said.
_STREAM = ("--unbuffered",)
#: Listens nowhere, has one user, takes one kind of key, and forwards to ports alone that a program of the user's on
#: this server could reach.
SETTINGS = (
    "UsePAM no\nPidFile none\nStrictModes no\nAuthenticationMethods publickey\nPasswordAuthentication no\n"
    "KbdInteractiveAuthentication no\nPermitRootLogin no\nPermitEmptyPasswords no\nPermitUserEnvironment no\n"
    "PermitUserRC no\nPermitTunnel no\nGatewayPorts no\nAllowTcpForwarding local\nAllowStreamLocalForwarding local\n"
    "X11Forwarding no\nAllowAgentForwarding no\nPrintMotd no\nPrintLastLog no\nUseDNS no\nLogLevel ERROR\n"
    f"Subsystem sftp internal-sftp\n{_LIMITS}"
)
#: Arguments: SETTINGS. What sshd reads is in this process's memory, and gone with it.
DOOR = """
import json, os, pwd, signal, subprocess, sys
sealed = os.environ.pop("ELASTIC_AI_SSH_ORDER", "")
name = os.environ.get("SLURMD_NODENAME", "the server")
sshd = next((one for one in ("/usr/sbin/sshd", "/usr/bin/sshd") if os.access(one, os.X_OK)), None)
if sshd is None:
    sys.exit(name + " has no sshd; the administrator installs openssh-server there (its service is not needed)")
done = subprocess.run(["unmunge", "--metadata=/dev/null"], input=sealed.encode(), capture_output=True)
if done.returncode:
    sys.exit(name + ": munge does not open the order: " + done.stderr.decode(errors="replace").strip()[:200])
order = json.loads(done.stdout)
def put(what, text):
    file = os.memfd_create(what)
    os.fchmod(file, 0o600)
    os.write(file, text.encode())
    return "/proc/%d/fd/%d" % (os.getpid(), file)
quoted = lambda text: '"' + text.replace("\\\\", "\\\\\\\\").replace('"', '\\\\"') + '"'
settings = sys.argv[1] + "HostKey " + put("host", order["host_key"])
settings += "\\nAuthorizedKeysFile " + put("authorized", order["user_key"] + "\\n")
settings += "\\nAllowUsers " + pwd.getpwuid(os.getuid()).pw_name
settings += "\\nSetEnv " + " ".join(key + "=" + quoted(value) for key, value in order["variables"].items()) + "\\n"
process = subprocess.Popen([sshd, "-i", "-e", "-f", put("settings", settings)])
for number in ("TERM", "INT", "HUP"):
    signal.signal(signal.Signals["SIG" + number], lambda number, _frame: process.send_signal(number))
code = process.wait()
sys.exit(code if code >= 0 else 128 - code)
"""


@dataclass(frozen=True)
class Order:
    """What the sshd there has: its key, the one key that opens it, and variables of its sessions."""

    host_key: str
    user_key: str
    variables: dict[str, str]

    def sealed(self, uid: int) -> str:
        """For this user alone. LeaseError where munge does not do it."""
        words = ["munge", f"--restrict-uid={uid}"]
        try:
            done = subprocess.run(
                words, input=json.dumps(asdict(self)), capture_output=True, text=True, check=False, timeout=30
            )
        except FileNotFoundError:
            raise LeaseError("munge is not installed here; use toolkit ssh on a machine of the pool") from None
        except subprocess.TimeoutExpired:
            raise LeaseError("munge did not answer within 30 s") from None
        if done.returncode:
            raise LeaseError(f"munge does not seal the connection's keys: {done.stderr.strip()[:200]}")
        return done.stdout.strip()


def variables_of(endpoint: LeaseEndpoint) -> dict[str, str]:
    """What a session knows of the lease, as its program does."""
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in endpoint.devices),
        "ELASTIC_AI_LEASE": str(endpoint.lease),
        "ELASTIC_AI_GPUS": gpus_text([endpoint]),
    }


def command(endpoint: LeaseEndpoint, endpoints: Sequence[LeaseEndpoint]) -> list[str]:
    """srun's command line of the step on one of the lease's servers."""
    options = shape([endpoint], endpoints, HERE, bare=False)
    return [
        "srun",
        f"--jobid={endpoint.job}",
        "-Q",
        "-Q",
        *_STREAM,
        *options,
        "--chdir=/",
        "python3",
        "-I",
        "-c",
        DOOR,
        SETTINGS,
    ]


__all__ = ["DOOR", "SETTINGS", "VARIABLE", "Order", "command", "variables_of"]
