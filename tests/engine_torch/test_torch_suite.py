"""Torch's own device-generic tests, where their files are: ELASTIC_AI_TORCH_TESTS, see docs/testing.md."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import torch_suite
from tests.support.torch_suite import FOLDER, WHOLE, Both, Suite, plain

if TYPE_CHECKING:
    from tests.support.torch_engine import Server


@pytest.mark.skipif(FOLDER not in os.environ, reason=f"this machine has no files of torch's own tests ({FOLDER})")
@pytest.mark.parametrize("name", WHOLE)
def test_torchs_own_tests_pass_as_natively(name: str, torch_server: Server, counted: list[str]) -> None:
    """What passes natively passes by the engine, but for what a list names with a reason."""
    file = Path(os.environ[FOLDER]).absolute() / f"{name}.py"
    both = Both(name, torch_suite.run(file, None), torch_suite.run(file, torch_server))
    counted.append(both.row())
    assert not both.faults()


TESTS = """
import os
import pytest

class TestThingsDEVICE:
    def test_passes_DEVICEKIND(self):
        pass
    def test_fails_DEVICEKIND_float32(self):
        assert "DEVICEKIND" == "cpu"
    def test_is_skipped_DEVICEKIND(self):
        pytest.skip("not here")
    def test_ends_the_process_DEVICEKIND(self):
        os._exit(9)
    def test_after_it_DEVICEKIND(self):
        pass
"""


def suite_of(tmp_path: Path, device: str, on: Server | None = None, limit_s: float = 120) -> Suite:
    """Of a file whose tests are named as torch names those of a device."""
    file = tmp_path / f"test_{device}.py"
    file.write_text(TESTS.replace("DEVICEKIND", device).replace("DEVICE", device.upper()))
    return torch_suite.run(file, on, limit_s=limit_s)


def test_tests_are_counted_by_their_name_and_one_that_ends_the_process_has_failed(tmp_path: Path) -> None:
    """The others go on in a new process; both sides have the same names."""
    native, engine = suite_of(tmp_path, "cpu"), suite_of(tmp_path, "cuda")
    assert {name: state for name, (state, _) in native.results.items()} == {
        "TestThings::test_passes": "passed",
        "TestThings::test_fails_float32": "passed",
        "TestThings::test_is_skipped": "skipped",
        "TestThings::test_ends_the_process": "failed",
        "TestThings::test_after_it": "passed",
    }
    assert native.whole
    both = Both("test_nothing", native, engine)
    assert list(both.lost()) == ["TestThings::test_fails_float32"]
    assert [line.split(":")[0] for line in both.faults()] == ["test_nothing TestThings"]
    assert both.row().startswith("| test_nothing.py | 3 | 1 | 1 | 2 | 2 | 1 | 0 | 1 | 0 | ")


def test_a_dtype_that_gpus_alone_take_is_counted_apart() -> None:
    """Where torch does not test it on processors; a test that it has there, or another error, is a failure."""
    why = "NotImplementedError: \"sum_cpu\" not implemented for 'ComplexHalf'"
    failed = {name: ("failed", text) for name, text in (("A::only", why), ("A::other", "ValueError"), ("A::both", why))}
    both = Both("test_nothing", Suite({"A::both": ("passed", "")}, True, 1), Suite(failed, True, 1))
    assert (list(both.no_kernel()), sorted(both.lost())) == (["A::only"], ["A::both", "A::other"])


def test_what_the_time_does_not_allow_is_not_counted(tmp_path: Path) -> None:
    """A file that was not run whole says so."""
    suite = suite_of(tmp_path, "cpu", limit_s=0.01)
    assert (suite.whole, suite.results) == (False, {})
    assert plain("test_x.py::TestXCUDA::test_y_cuda_int8") == "TestX::test_y_int8"
