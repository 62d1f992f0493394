"""The running configuration of a switch over ssh: one command that changes nothing, by paramiko.

Host keys are checked before anybody logs in, and nothing is sent to a switch whose key is not known.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import paramiko

from toolkit.errors import UsageFault
from toolkit.scan.known_key import Unknown, fingerprint, policy, wrong_key
from toolkit.switches.config import Switch
from toolkit.switches.keys import System
from toolkit.switches.lines import SwitchFault
from toolkit.switches.read import LIMIT_BYTES, read_text
from toolkit.switches.wanted import Reached

PASSWORD = "TOOLKIT_SWITCH_PASSWORD"  # noqa: S105  # the name of a variable
COMMANDS: dict[System, tuple[str, ...]] = {
    "sonic": ('sonic-cli -c "show running-configuration | no-more"', "show running-configuration | no-more"),
    "os10": ("show running-configuration | no-more", "show running-configuration"),
}
"""What is run, in this order until one gives a configuration: a login of SONiC is bash or its command line."""
CONNECT_S, LOGIN_S, DEADLINE_S = 10.0, 20.0, 120.0
AT_ONCE = 16
_CHUNK_BYTES = 1 << 16

logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)  # its exceptions say the same


def password(of_vault: str | None) -> str | None:
    """From the environment, else the vault's; None where keys are to be used."""
    return os.environ.get(PASSWORD) or of_vault


def collect(switches: Mapping[str, Reached], secret: str | None, known_hosts: Path) -> list[Switch | SwitchFault]:
    """Every switch, several at once; for one that cannot be read why, and the others go on."""

    def one(entry: tuple[str, Reached]) -> Switch | SwitchFault:
        try:
            return _one(*entry, secret, known_hosts)
        except SwitchFault as fault:
            return fault

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, switches.items()))


def _one(name: str, reached: Reached, secret: str | None, known_hosts: Path) -> Switch:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(policy())
    until = time.monotonic() + DEADLINE_S
    try:
        if known_hosts.is_file():
            client.load_system_host_keys(str(known_hosts))
        client.connect(
            reached.address, port=reached.port, username=reached.user, password=secret, allow_agent=secret is None,
            look_for_keys=secret is None, timeout=CONNECT_S, banner_timeout=LOGIN_S, auth_timeout=LOGIN_S,
            channel_timeout=LOGIN_S,
        )  # fmt: skip
        fault = SwitchFault(f"{name}: gave no configuration")
        for command in COMMANDS[reached.system]:
            text = _run(client, command, name, until)
            try:
                found = read_text(text, name, name)
            except SwitchFault as why:
                fault = why
                continue
            if found.system != reached.system:
                raise SwitchFault(f"{name}: `switches` has system {reached.system}, and the switch is {found.system}")
            found.name = name
            return found
        raise fault
    except Unknown as unknown:
        add = f"ssh-keyscan -p {reached.port} {reached.address} >> {known_hosts}"
        raise SwitchFault(f"{name}: its host key {fingerprint(unknown.key)} is not known, so nothing was sent; compare "
                          f"it at the switch's console, then: {add}") from None  # fmt: skip
    except SwitchFault:
        raise
    except Exception as fault:  # paramiko raises what sockets and parsers raise
        raise SwitchFault(f"{name}: {_explain(fault, reached, secret, known_hosts)}") from None
    finally:
        client.close()


def _run(client: Any, command: str, name: str, until: float) -> str:
    channel = client.get_transport().open_session(timeout=LOGIN_S)
    channel.set_combine_stderr(True)
    channel.exec_command(command)
    held = bytearray()
    try:
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            channel.settimeout(left)
            part = channel.recv(_CHUNK_BYTES)
            if not part:
                return held.decode("utf-8", "replace")
            held += part
            if len(held) > LIMIT_BYTES:
                raise SwitchFault(f"{name}: printed more than {LIMIT_BYTES >> 20} MiB, which no configuration has")
    except TimeoutError:
        raise SwitchFault(f"{name}: did not print its configuration within {DEADLINE_S:.0f} s; hand over a file "
                          "instead") from None  # fmt: skip
    finally:
        channel.close()


def _explain(fault: Exception, reached: Reached, secret: str | None, known_hosts: Path) -> str:
    if isinstance(fault, paramiko.BadHostKeyException):
        return wrong_key(known_hosts, reached.address, reached.port, "replaced")
    if isinstance(fault, socket.gaierror):
        return f"{reached.address} does not resolve; write its address"
    if isinstance(fault, paramiko.AuthenticationException) or "No authentication methods" in str(fault):
        what = "password" if secret is not None else "keys"
        return f"refuses the {what} for user {reached.user}; set {PASSWORD}, or `user` in the inventory's switches"
    if isinstance(fault, paramiko.ssh_exception.NoValidConnectionsError):
        fault = next(iter(fault.errors.values()))
    if isinstance(fault, OSError):
        return f"does not answer at {reached.address} port {reached.port} ({fault.strerror or 'timed out'})"
    return f"could not be read ({type(fault).__name__}: {str(fault)[:120]})"


def known(switches: Mapping[str, Reached]) -> None:
    """UsageFault where the inventory has no switch to collect from."""
    if not switches:
        raise UsageFault("name files with the output of show running-configuration, or give the inventory `switches`: "
                         "leaf1: {address: 192.0.2.11, system: sonic}")  # fmt: skip
