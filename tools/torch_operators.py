"""Makes engine/torch/server/torch-operators.txt, the operators that a server of engine torch allows.

Run with a Python that has torch: `python tools/torch_operators.py [--check] [--add FILE]`. A line in the list is an
operator with its overload. It has those of ATen whose arguments and results are all of kinds that the wire carries,
less those named below, and what a sweep of programs has called (`--add`: a file with a line each). All else is refused.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import torch

LIST = Path(__file__).parents[1] / "engine/torch/server/torch-operators.txt"
#: Kinds of arguments and results, as schemas write them.
CARRIED = {
    "Tensor", "Optional[Tensor]", "List[Tensor]", "List[Optional[Tensor]]", "int", "Optional[int]", "List[int]",
    "Optional[List[int]]", "SymInt", "Optional[SymInt]", "List[SymInt]", "Optional[List[SymInt]]", "float",
    "Optional[float]", "List[float]", "Optional[List[float]]", "bool", "Optional[bool]", "List[bool]", "number",
    "Optional[number]", "List[number]", "str", "Optional[str]", "Device", "Optional[Device]", "Generator",
    "Optional[Generator]", "complex", "NoneType", "Optional[List[Tensor]]",
}  # fmt: skip
#: What is refused, and why.
REFUSED = {
    r"aten::from_file": "reads files of the server",
    r"aten::(_debug|_print|__?breakpoint|get_gradients|_async_error)": "debugging",
    r"aten::(?!_?fake_quantize).*(quantize|q_(scale|zero|per)|fbgemm|qlinear|_wrapped_)": "quantised tensors",
    r"aten::.*(sparse|coalesce|csr|_coo_|(row|col|crow|ccol)_indices|aten::_indices\b|smm\b|sspaddmm|hspmm)": "sparse",
    r"aten::.*(nested|jagged)": "nested tensors",
    r"aten::.*mkldnn(?!_rnn)": "tensors of another layout",
    r"aten::(record_stream|_?pin_memory|is_pinned|_cuda_getCurrentRawStream|_record_function.*)": "host memory",
    r"aten::(set_|set|set_data|data|_backward|requires_grad_|retain_grad|retains_grad|detach.*|alias|is_leaf|output_nr|"
    r"_version|_fw_primal|_make_dual.*|_unpack_dual|rename.*|align_.*|names|refine_names|lift.*|resize_|resize_as_|"
    r"_resize_output_?|resize.*|_lazy_clone|_cow.*)\b": "the client's own matter",
    r"aten::(_to_cpu|to|cuda|cpu|_copy_from.*|_local_scalar_dense|item)\b": "copies have messages of their own",
    r"aten::(_test_.*|_triton_.*|_dimI|_dimV|_has_.*|_is_.*|is_.*|_use_.*|sym_.*|size|stride|"
    r"storage_offset|dim|numel)\b": "tests, or answers that the client has",
    r"aten::.*(cufft|_plan_cache|_nnpack_available|vulkan|metal|xpu|mps|hip|miopen|mtia).*": "of other devices",
}  # fmt: skip
#: Operators with a text among their arguments: each is a word that its kernel compares with those it knows, an
#: equation that it parses (einsum), or the text of an error.
WORDS = {
    "rounding_mode", "reduce", "reduction", "mode", "indexing", "driver", "ord", "UPLO", "approximate", "side",
    "interpolation", "equation", "api_name", "assert_msg", "padding", "pad_mode",
}  # fmt: skip
KEPT = {"aten::_is_all_true", "aten::_is_any_true", "aten::is_nonzero", "aten::is_same_size",
        "aten::_use_cudnn_ctc_loss", "aten::_use_cudnn_ctc_loss.Tensor",
        "aten::_use_miopen_ctc_loss", "aten::_use_miopen_ctc_loss.Tensor"}  # fmt: skip


def refused(name: str) -> bool:
    """Whether one of the patterns names it."""
    return any(re.match(pattern, name) for pattern in REFUSED)


def plain(kind: str) -> str:
    """A schema's type, without a list's fixed length."""
    return re.sub(r"\[\d+\]", "", kind)


def allowed() -> tuple[list[str], dict[str, list[str]]]:
    """The list, and the operators with texts: name to those texts' names."""
    found, texts = [], {}
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        if not torch._C._dispatch_has_kernel(full) or (refused(schema.name) and full not in KEPT):
            continue
        kinds = [plain(str(one.type)) for one in (*schema.arguments, *schema.returns)]
        if not all(kind in CARRIED for kind in kinds):
            continue
        words = [one.name for one in schema.arguments if plain(str(one.type)) in ("str", "Optional[str]")]
        if set(words) - WORDS:
            continue
        if words:
            texts[full] = words
        found.append(full)
    return sorted(set(found)), texts


def main() -> int:
    """Writes, or compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say what differs, and write nothing")
    parser.add_argument("--add", type=Path, help="what a sweep has called, a line each")
    given = parser.parse_args()
    found, texts = allowed()
    before = LIST.read_text().splitlines() if LIST.exists() else []
    kept = {line for line in before if line and not line.startswith("#")}
    called = set(given.add.read_text().split()) if given.add else set()
    missing = sorted(name for name in called - set(found) if refused(name.split(".")[0]))
    if missing:
        print("called, and refused: " + ", ".join(missing))
    names = sorted(set(found) | {name for name in called if not refused(name.split(".")[0])})
    if given.check:
        for name in sorted(set(names) ^ kept):
            print(("+ " if name in names else "- ") + name)
        return int(set(names) != kept)
    head = f"# Operators that a client may call; made by tools/torch_operators.py from PyTorch {torch.__version__}"
    LIST.write_text("\n".join([head, *names]) + "\n")
    print(
        f"{len(names)} operators, {len(texts)} of them with words: "
        + ", ".join(sorted({w for t in texts.values() for w in t}))
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
