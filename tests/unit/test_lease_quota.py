"""The share of a processor that a part of an emulated GPU has."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from toolkit.lease import engines
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.machine import quota


def gpu(shards: int, of: int, emulated: bool = True) -> LeasedGpu:
    return LeasedGpu(0, "GPU-1", "V100", 256, shards, of, emulated=emulated)


def test_a_part_has_its_share_of_one_processor_and_a_lease_the_sum() -> None:
    assert quota.share_of("torch", [gpu(140, 420)]) == Fraction(1, 3)
    assert quota.share_of("torch", [gpu(420, 420), gpu(210, 420)]) == Fraction(3, 2)


def test_real_gpus_and_engines_that_do_not_compute_so_are_not_held() -> None:
    assert quota.share_of("torch", [gpu(140, 420, emulated=False)]) is None
    assert quota.share_of("reference", [gpu(140, 420)]) is None


@pytest.mark.parametrize(
    ("share", "quota_us", "period_us"),
    [(Fraction(1), 20_000, 20_000), (Fraction(1, 3), 6_666, 20_000), (Fraction(1, 140), 1_000, 140_000),
     (Fraction(1, 5000), 1_000, 1_000_000)],
)  # fmt: skip
def test_periods_are_short_and_no_quota_is_below_what_the_kernel_takes(
    share: Fraction, quota_us: int, period_us: int
) -> None:
    assert quota.times(share) == (quota_us, period_us)


def processes(root: Path, line: str) -> Path:
    (root / "proc/7").mkdir(parents=True)
    (root / "proc/7/cgroup").write_text(f"2:cpuacct:/\n{line}\n0::/system.slice/elastic-ai-lease@5.service\n")
    return root / "proc"


@pytest.mark.parametrize("line", ["1:cpu,cpuacct:/system.slice/x.service", "3:memory:/"], ids=["v1 by systemd", "v2"])
def test_what_systemd_holds_is_left_to_it(tmp_path: Path, line: str) -> None:
    assert not quota.hold("5", Fraction(1, 3), lambda: [7], tmp_path, processes(tmp_path, line))
    assert not (tmp_path / "cpu").exists()


def test_what_it_does_not_hold_has_a_group_of_the_leases_own(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    assert quota.hold("5", Fraction(1, 3), lambda: [7, 8], tmp_path, processes(tmp_path, "1:cpu:/"))
    group = quota.group_of("5", tmp_path)
    assert (group / "cpu.cfs_quota_us").read_text() == "6666\n"
    assert (group / "cpu.cfs_period_us").read_text() == "20000\n"
    assert (group / "cgroup.procs").read_text() == "8\n", "each by a write of its own"


def test_a_lease_that_has_ended_leaves_no_group(tmp_path: Path) -> None:
    group = quota.group_of("5", tmp_path)
    group.mkdir(parents=True)
    quota.forget("5", tmp_path)
    assert not group.exists()
    quota.forget("5", tmp_path)


def test_seven_sevenths_of_an_emulated_gpu_fit_a_host_that_one_whole_fits() -> None:
    seventh = engines.host_memory_mib("torch", emulated=True, whole=False)
    assert 7 * seventh <= 8192
    assert engines.host_memory_mib("torch", emulated=False, whole=False) == 4096, "a real one has CUDA's libraries"
    assert engines.host_memory_mib("reference", emulated=True, whole=False) == 512
