"""What a leased GPU cannot have: one sentence that says what and what then, at the line that asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.torch_engine import Server, built, run, server
from tests.support.torch_env import ROOT

INSTEAD = "toolkit run --where server"
BEGIN = """
import json, torch
x = torch.rand(4, 4, device="cuda")
told = []
def line(what):
    try:
        what()
        told.append(["", "nothing was raised"])
    except Exception as fault:
        told.append([type(fault).__name__, str(fault)])
"""
END = "\nprint(json.dumps([told, x.sum().item() > 0]))"


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose PyTorch lacks some operators: all that begin so are not on its list."""
    folder = tmp_path_factory.mktemp("torch-lacking")
    lines = (built() / "lib/torch-operators.txt").read_text().splitlines(keepends=True)
    left = [one for one in lines if not one.startswith(("aten::erfinv", "aten::nonzero", "aten::trace"))]
    assert len(left) < len(lines)
    (folder / "operators").write_text("".join(left))
    with server(folder, "--operators", str(folder / "operators")) as one:
        yield one


def said(program: str, on: Server) -> list[list[str]]:
    """Class and text of what its lines raised; the device is there afterwards."""
    told, goes_on = run(BEGIN + program + END, "remote", on).result()
    assert goes_on
    return [list(one) for one in told]


def test_an_operator_that_the_server_lacks_is_said_at_its_line(lacking: Server) -> None:
    """Functions, methods, in place, `out=`, those whose results are the server's to tell, and gradients; each time."""
    lines = said(
        """
line(lambda: torch.erfinv(x))
line(lambda: torch.erfinv(x))
line(lambda: x.erfinv_())
line(lambda: torch.erfinv(x, out=torch.empty(4, 4, device="cuda")))
line(lambda: torch.nonzero(x))
line(lambda: torch.trace(x))
""",
        lacking,
    )
    for (kind, words), name in zip(
        lines, ("erfinv", "erfinv", "erfinv_", "erfinv.out", "nonzero", "trace"), strict=True
    ):
        assert kind == "NotImplementedError", (name, words)
        assert f"not on a leased GPU: aten::{name}; the GPU server 127.0.0.1:{lacking.port}" in words
        assert words.count("\n") == 0
        assert INSTEAD in words


def test_an_operator_of_a_library_that_the_server_has_not(torch_server: Server) -> None:
    """One that a program or a package registered: named by its own name."""
    lines = said(
        """
library = torch.library.Library("mine", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
library.impl("twice", lambda x: torch.empty_like(x), "Meta")
line(lambda: torch.ops.mine.twice(x))
assert torch.ops.mine.twice(torch.ones(2)).tolist() == [2, 2]
""",
        torch_server,
    )
    [(kind, words)] = lines
    assert kind == "NotImplementedError"
    assert "not on a leased GPU: mine::twice; the GPU server" in words
    assert INSTEAD in words


INDICES = "torch.zeros(2, 1, dtype=torch.int64)"
#: Kind, and what would make such a tensor on the device or move one there.
KINDS = [
    ("sparse", "x.to_sparse()"),
    ("sparse", "x.to_sparse_csr()"),
    ("sparse", "torch.eye(3).to_sparse().cuda()"),
    ("sparse", "torch.eye(3).to_sparse_csr().to('cuda') @ x[:3]"),
    ("sparse", f"torch.sparse_coo_tensor({INDICES}, torch.ones(1), (2, 2), device='cuda')"),
    ("sparse", f"torch.sparse_coo_tensor({INDICES}.cuda(), torch.ones(1).cuda(), (2, 2))"),
    ("sparse", "torch.zeros(2, 2, layout=torch.sparse_coo, device='cuda')"),
    ("sparse", "torch.empty(2, 2, layout=torch.sparse_csr, device='cuda')"),
    ("sparse", "torch.nn.Embedding(9, 2, sparse=True).cuda()(torch.tensor([1], device='cuda')).sum().backward()"),
    ("quantised", "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)"),
    ("quantised", "torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8).cuda()"),
    ("quantised", "torch.quantize_per_channel(x, torch.ones(4).cuda(), torch.zeros(4).cuda(), 0, torch.qint8)"),
    ("nested", "torch.nested.nested_tensor([x, x])"),
    ("nested", "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).cuda()"),
    ("nested", "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device='cuda')"),
]


def test_a_tensor_of_a_kind_that_is_not_carried(torch_server: Server) -> None:
    """Where it would be made, or moved to the device."""
    program = "import warnings; warnings.simplefilter('ignore')\n"
    lines = said(program + "\n".join(f"line(lambda: {makes})" for _, makes in KINDS), torch_server)
    wrong = [
        f"{makes}: {name}: {words}"
        for (kind, makes), (name, words) in zip(KINDS, lines, strict=True)
        if name not in ("NotImplementedError", "RuntimeError")
        or "leased GPU" not in words or kind not in words.lower() or INSTEAD not in words or "\n" in words
    ]  # fmt: skip
    assert not wrong, "\n".join(wrong)


def test_cuda_code_of_the_programs_own(torch_server: Server) -> None:
    """Compiled at run time: refused before a compiler is looked for; C++ alone is the program's affair."""
    lines = said(
        """
from torch.utils.cpp_extension import load, load_inline
import torch.utils.cpp_extension as module
line(lambda: load_inline("mine", "int f();", "__global__ void k() {}", functions=["f"]))
line(lambda: load_inline(name="mine", cpp_sources="", cuda_sources=["__global__ void k() {}"]))
line(lambda: module.load("other", ["a.cpp", "kernels.cu"]))
line(lambda: module.load(name="third", sources="absent.cpp", with_cuda=True))
line(lambda: module.load(name="fourth", sources=["/absent.cpp"]))
""",
        torch_server,
    )
    for (kind, words), name in zip(lines[:4], ("mine", "mine", "other", "third"), strict=True):
        assert kind == "RuntimeError"
        assert f"{name})" in words
        assert INSTEAD in words
    assert "leased GPU" not in lines[4][1]


def test_a_session_that_never_began_has_lost_nothing(tmp_path: Path) -> None:
    """A server whose device does not start refuses, says why, and nobody is sent to a checkpoint."""
    with server(tmp_path, "--device", "cuda") as broken:
        ran = run("import torch; torch.ones(1, device='cuda')", "remote", broken, check=False)
    assert ran.code == 1
    last = ran.err.splitlines()[-1]
    assert "refused this session: the server's device does not start" in last
    assert "checkpoint" not in ran.err


def test_a_full_part_is_told_in_its_words() -> None:
    """The first memory of a session is asked for before its program asks for any."""
    text = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from elastic_ai_torchserver.session import why_not
print(why_not(torch, torch.OutOfMemoryError("CUDA out of memory. See documentation")))
print(why_not(torch, RuntimeError("no driver")))
"""
    full, other = run(text, "native", None, str(ROOT / "engine/torch/server")).out.splitlines()
    assert full.startswith("no memory of the GPU is left for it: other programs of this lease use the whole part")
    assert other == "the server's device does not start: no driver"
