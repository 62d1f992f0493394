"""What is done when a program that goes on alone has ended: a command of its user's, a mail."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from email.message import EmailMessage

from toolkit.lease import LeaseError
from toolkit.lease.jobs import slurm
from toolkit.lease.kept.output import Log
from toolkit.lease.kept.record import Order, Status

#: As mail programs take an address on their command line: none that reads like an option, and one alone.
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,63}(?:@[A-Za-z0-9][A-Za-z0-9.-]{0,250})?")
_SENDMAIL_PATH = "/usr/sbin:/usr/lib:/usr/bin"
MAIL_S = 120


def sendmail() -> str | None:
    """The machine's way to send mail."""
    return shutil.which("sendmail", path=_SENDMAIL_PATH)


def refuse_mail(address: str) -> None:
    """LeaseError where no mail can go there."""
    if not _ADDRESS.fullmatch(address):
        raise LeaseError(f"--mail {address[:80]!r}: no address; give one such as alice@example.org")
    if sendmail() is None:
        raise LeaseError("--mail: this machine sends no mail (no sendmail); give a command by --then instead")


def outcome(status: Status) -> str:
    """How it ended, in a few words."""
    if status.code is None:
        return status.why or "its exit code is not known"
    return f"ended with exit code {status.code}{f': {status.why}' if status.why else ''}"


def give_back(status: Status) -> None:
    """Its own lease; one that was there before stays. Nothing where it is gone already: its servers end it without its
    client, too."""
    if status.lease is not None and not status.held:
        with suppress(LeaseError):
            slurm.cancel(status.lease)


def mail(order: Order, status: Status) -> str:
    """Send it; why that failed, "" where it did not."""
    program, message = sendmail(), EmailMessage()
    if program is None:
        return "no sendmail"
    message["To"] = order.mail
    message["Subject"] = f"lease {status.lease} on {order.host}: {outcome(status)}"[:200]
    message.set_content(f"{order.program}\n\n{outcome(status)}\n\ntoolkit logs {status.lease}    (on {order.host})\n")
    try:
        done = subprocess.run(
            [program, "-i", "--", order.mail],
            input=message.as_bytes(),
            capture_output=True,
            timeout=MAIL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return str(fault)
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if done.returncode == 0 else (said or [f"exit code {done.returncode}"])[-1]


def do(order: Order, status: Status, environment: Mapping[str, str], log: Log) -> None:
    """All of it; what fails is the last that its output says."""
    told = dict(environment) | {"ELASTIC_AI_LEASE": str(status.lease or "")}
    told["ELASTIC_AI_EXIT_CODE"] = "" if status.code is None else str(status.code)
    faults = []
    if order.then:
        try:
            done = subprocess.run(
                ["sh", "-c", order.then], cwd=order.directory, env=told, stdin=subprocess.DEVNULL, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            with suppress(OSError):
                log.write(done.stdout[-(1 << 20) :])
            faults += [f"--then ended with exit code {done.returncode}"] if done.returncode else []
        except OSError as fault:
            faults.append(f"--then could not be started: {fault.strerror}")
    why = mail(order, status) if order.mail else ""
    faults += [f"the mail to {order.mail} was not sent: {why}"] if why else []
    with suppress(OSError):
        log.write("".join(f"{fault}\n" for fault in faults).encode())


__all__ = ["do", "give_back", "mail", "outcome", "refuse_mail", "sendmail"]
