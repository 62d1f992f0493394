"""What a test without or with few failures proves of the mean time between failures.

Failures that come at a constant rate are a Poisson process: after T hours with r of them, the mean time between two is
at least 2 T / chi2(C; 2 r + 2) with confidence C (MIL-HDBK-781A, time-terminated test; IEC 60605-4). With none of them
that is T / ln(1 / (1 - C)): T / 1.61 at 80 %.
"""

from __future__ import annotations

from math import exp, lgamma, log

CONFIDENCE = 0.8


def failures_expected(failures: int, confidence: float = CONFIDENCE) -> float:
    """Half of that chi-square: so many failures are to be expected at most. Found by halving."""

    def seen_so_few(mean: float) -> float:
        most = min(failures, int(mean))  # from the largest term on, for e^-mean is 0 above 745
        term = total = largest = exp(most * log(mean) - mean - lgamma(most + 1))
        for k in range(most + 1, failures + 1):
            term *= mean / k
            total += term
        term = largest
        for k in range(most, 0, -1):
            term *= k / mean
            total += term
        return total

    low, high = 0.0, 10.0 * (failures + 1)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if seen_so_few(middle) > 1 - confidence else (low, middle)
    return high


def least_mtbf(hours: float, failures: int, confidence: float = CONFIDENCE) -> float:
    """Hours between failures that a test of so many device-hours proves."""
    return hours / failures_expected(failures, confidence)


def upper_mtbf(hours: float, failures: int, confidence: float = CONFIDENCE) -> float | None:
    """Hours that the mean time is at most with that confidence: 2 T / chi2(1 - C; 2 r). None without a failure."""
    return hours / failures_expected(failures - 1, 1 - confidence) if failures else None


def interval(hours: float, failures: int, confidence: float = 0.9) -> tuple[float, float | None]:
    """Both ends of the exact interval, half of what it may be wrong by on each side (NIST/SEMATECH e-Handbook,
    8.4.5.1; F. Garwood, Biometrika 28, 1936). Without a failure there is a lower bound alone, with all of it there.
    """
    if not failures:
        return least_mtbf(hours, 0, confidence), None
    side = (1 + confidence) / 2
    return least_mtbf(hours, failures, side), upper_mtbf(hours, failures, side)


def proved(hours: float, failures: int, devices: int) -> str:
    """The same as a sentence about GPUs; "" where none was loaded."""
    if not devices or hours <= 0:
        return ""
    least, divisor = least_mtbf(hours, failures), failures_expected(failures)
    count = f"{failures} failures" if failures > 1 else "1 failure" if failures else "No failure"
    together = f", and of all {devices} together {least / devices:.3g} hours" if devices > 1 else ""
    return (
        f"{count} in {hours:.4g} GPU-hours: with a confidence of {CONFIDENCE:.0%} the mean time between failures of a "
        f"GPU is {least:.3g} hours at least ({hours:.4g} / {divisor:.3g}){together}. "
        f"{_between(hours, failures)} More than that it does not prove."
    )


def _between(hours: float, failures: int) -> str:
    low, high = interval(hours, failures)
    where = f"at least {low:.3g} hours" if high is None else f"{low:.3g} to {high:.3g} hours"
    return f"The interval of 90% is {where}."
