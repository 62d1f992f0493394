"""Requests for programs on a GPU server, and the prolog of their job."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.support.lease_host import FakeHost
from tests.support.lease_texts import COMMENT, slurm_job
from toolkit.commands import run
from toolkit.lease import endpoint
from toolkit.lease.client import placement
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.server import hooks

THERE = COMMENT[:-1] + ',"where":"server"}'


def prolog(host: FakeHost, monkeypatch: pytest.MonkeyPatch, gres: str, comment: str = THERE, **more: Any) -> int:
    host.slurm.said = [slurm_job(41, gres=gres, comment=comment, uid=os.getuid() or 1001, **more)]
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    return hooks.prolog(host)


def reached(host: FakeHost) -> None:
    """The host reaches one server of the pool."""
    host.pool_conf.write_text(json.dumps({"servers": {"gpu1": {"address": "10.78.1.13"}}}))
    host.network.routes["10.78.1.13"] = "10.78.1.12"


def asked(*words: str) -> RunRequest:
    """As the command has it of its options, for a program on the server."""
    context = run.run.make_context("run", ["--where", "server", *words, "--", "true"])
    return RunRequest.checked(**context.params)


def planned(host: FakeHost, *words: str) -> placement.There:
    request = asked(*words)
    return placement.plan_there(host, request, request.how_there(), lambda _words: None)


def end_of(host: FakeHost) -> endpoint.LeaseEndpoint:
    return endpoint.parse(json.dumps(host.endpoint(41)))
