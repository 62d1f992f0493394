"""Where a lease's server is: what is found wrong with it before a program starts."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import lease_forms
from toolkit.lease import LeaseError
from toolkit.lease.endpoint import NoEndpoint, check_devices, check_engine, parse, probe

pytestmark = pytest.mark.engines


def test_other_releases_are_found_out_before_the_program_starts(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text('{"engine": "reference", "release": "r2"}')
    endpoint = lease_forms.endpoint(port=1)
    with pytest.raises(LeaseError, match="gpu1 serves release r1 of the engine reference, this machine has r2"):
        check_engine([endpoint], tmp_path)
    with pytest.raises(LeaseError, match="no remoting engine is installed"):
        check_engine([endpoint], tmp_path / "none")


def test_a_port_that_does_not_answer_is_named_at_once() -> None:
    endpoint = lease_forms.endpoint(port=1)
    with pytest.raises(LeaseError, match=r"gpu1 does not answer on 127\.0\.0\.1:\d+"):
        probe(endpoint)


def test_a_program_that_would_see_fewer_devices_than_its_lease_has_is_not_started(tmp_path: Path) -> None:
    """As where an engine leaves out a server that does not answer."""
    library = tmp_path / "lib" / "libcuda.so.1"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    endpoint = lease_forms.endpoint(address="10.0.0.1", port=7, devices=(lease_forms.leased_gpu(),) * 2)
    check_devices([endpoint], tmp_path, environment)  # an engine without a library is asked nothing
    library.parent.mkdir()
    for code, count, words in (
        (0, 2, ""),
        (0, 1, r"1 device and not 2 of gpu1 \(10\.0\.0\.1:7\)"),
        (100, 0, r"error 100 of gpu1 \(10\.0\.0\.1:7\), and was not started: no RDMA port$"),
    ):
        said = 'write(2, "elastic-ai: no RDMA port\\n", 25);' if code else ""
        source = (
            "#include <unistd.h>\n"
            f"int cuInit(unsigned f) {{ {said} return {code}; }}\n"
            f"int cuDeviceGetCount(int *n) {{ *n = {count}; return 0; }}"
        )
        compiled = ["cc", "-shared", "-o", str(library), "-xc", "-"]
        subprocess.run(compiled, input=source, text=True, check=True)
        with pytest.raises(LeaseError, match=words) if words else contextlib.nullcontext():
            check_devices([endpoint], tmp_path, environment)
    library.write_text("no library")
    with pytest.raises(LeaseError, match="the engine's library does not work here"):
        check_devices([endpoint], tmp_path, environment)


def test_a_lease_that_could_not_start_says_why() -> None:
    with pytest.raises(LeaseError, match="gpu1: no remoting engine") as refused:
        parse(NoEndpoint("no remoting engine is installed here", "gpu1").text())
    assert refused.value.code == 75
