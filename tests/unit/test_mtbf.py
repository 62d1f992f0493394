"""What a soak proves: against published quantiles of chi-square, and the table that everybody can reckon."""

from __future__ import annotations

import pytest

from validation.analysis.mtbf import failures_expected, least_mtbf, proved


@pytest.mark.parametrize(
    ("failures", "chi_square_80", "chi_square_90"),
    # NIST/SEMATECH e-Handbook and any table of chi-square: 2, 4, 6 and 22 degrees of freedom
    [(0, 3.219, 4.605), (1, 5.989, 7.779), (2, 8.558, 10.645), (10, 27.301, 30.813)],
)
def test_the_divisor_is_half_of_chi_square(failures: int, chi_square_80: float, chi_square_90: float) -> None:
    assert 2 * failures_expected(failures) == pytest.approx(chi_square_80, abs=0.001)
    assert 2 * failures_expected(failures, 0.9) == pytest.approx(chi_square_90, abs=0.001)


@pytest.mark.parametrize("failures", [100, 700, 1000, 10752])
@pytest.mark.parametrize(("confidence", "z"), [(0.8, 0.841621), (0.95, 1.644854), (0.05, -1.644854)])
def test_many_failures_too(failures: int, confidence: float, z: float) -> None:
    """Wilson and Hilferty, 1931, by the quantile of the normal distribution: that near for many degrees of freedom."""
    degrees = 2 * failures + 2
    near = degrees * (1 - 2 / (9 * degrees) + z * (2 / (9 * degrees)) ** 0.5) ** 3
    assert 2 * failures_expected(failures, confidence) == pytest.approx(near, rel=2e-5)


@pytest.mark.parametrize(("gpus", "hours", "each"), [(8, 48, 239), (64, 24, 954), (64, 168, 6681), (512, 72, 22905)])
def test_the_usual_soaks(gpus: int, hours: int, each: int) -> None:
    assert least_mtbf(gpus * hours, 0) == pytest.approx(each, abs=0.51)


def test_the_sentence() -> None:
    assert proved(0, 0, 0) == ""
    said = proved(1536, 0, 64)
    assert said.startswith(
        "No failure in 1536 GPU-hours: with a confidence of 80% the mean time between failures of a GPU"
    )
    assert "is 954 hours at least (1536 / 1.61), and of all 64 together 14.9 hours" in said
    assert "1 failure in 8 GPU-hours" in proved(8, 1, 1)
    assert "together" not in proved(8, 1, 1)
