"""A machine with leases, for the tests of `toolkit/lease`; a file whose machine is another has a fixture of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lease_host import FakeHost
from toolkit.lease.server_conf import ServerConf


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(folder=tmp_path)


@pytest.fixture
def conf(host: FakeHost) -> ServerConf:
    """The machine as a GPU server."""
    return host.serve()
