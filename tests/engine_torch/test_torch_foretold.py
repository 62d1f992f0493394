"""What nobody can foretell of results: torch's FakeTensor for "cuda" against real kernels, and the engine for these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.torch_engine import PROGRAMS, run
from tests.support.torch_sweep import sweep

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

STRIDES = {"fft.hfft2", "fft.rfftn", "linalg.eig", "pca_lowrank", "svd_lowrank"}
"""Those that are foretold with other strides."""
MOST_UNKNOWN = 45  # sizes by values, random and composite functions that look at values
LEAST_SAME = 640


def test_operators_that_cannot_be_foretold_have_the_processors_geometry(
    torch_server: Server, counted: list[str]
) -> None:
    """The engine asks the server about them: sizes, dtypes, values and strides are the real ones."""
    found = run(PROGRAMS / "fake_sweep.py", "native", limit_s=600).result()
    counted.append(
        f"foretold by FakeTensor for cuda: {found['same']} operators as they are, {len(found['strides'])} with other "
        f"strides, {len(found['unknown'])} not at all"
    )
    assert found["same"] >= LEAST_SAME
    assert found["sizes"] == []
    assert set(found["strides"]) == STRIDES
    assert 0 < len(found["unknown"]) <= MOST_UNKNOWN
    swept = sweep("forward", torch_server, "--only", ",".join([*found["strides"], *found["unknown"]]))
    assert set(swept.failed()) <= {"sparse.mm.reduce", "sparse.sampled_addmm", "to_sparse"}
    assert set(swept.results) == STRIDES | set(found["unknown"])
    for name in STRIDES:
        result = swept.results[name]
        assert result["strides"] == result["samples"], f"{name}: strides are not the server's: {result}"
