"""What GPUs a program needs, as far as that can be told before it runs: PyTorch, the driver API, or more than engines
that send calls can give, so that it belongs on the GPU server.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.lease.before.program_imports import Import, Seen, look
from toolkit.lease.before.program_words import PythonProgram, program_of, unwrapped

Kind = Literal["torch", "tensorflow", "driver-api", "runtime", "any", "unknown"]
#: Packages with CUDA code or a CUDA runtime of their own, and what they are.
RUNTIME = {
    **dict.fromkeys(
        ("jax", "jaxlib", "flax", "haiku", "mxnet", "paddle", "mindspore"), "another framework"
    ),
    **dict.fromkeys(
        ("vllm", "sglang", "tensorrt_llm", "tensorrt", "onnxruntime", "llama_cpp"), "which has an engine of its own"
    ),
    **dict.fromkeys(
        ("cupy", "cudf", "cuml", "cugraph", "rmm", "triton", "warp", "flash_attn", "xformers", "bitsandbytes",
         "deepspeed", "apex", "mamba_ssm", "causal_conv1d", "transformer_engine", "unsloth", "torch_scatter",
         "torch_sparse", "spconv", "pytorch3d", "tinycudann", "gsplat", "fbgemm_gpu", "torchrec", "dgl"),
        "which has CUDA kernels of its own",
    ),
}  # fmt: skip
#: Modules of PyTorch that make or load kernels.
KERNELS = {
    "torch.utils.cpp_extension": "builds CUDA code of its own",
    "torch._inductor": "makes kernels for a GPU here",
    "torch.cuda.CUDAGraph": "records CUDA graphs",
    "torch.cuda.graph": "records CUDA graphs",
    "torch.cuda.make_graphed_callables": "records CUDA graphs",
}
#: Packages that work by PyTorch.
BY_TORCH = (
    "torchvision", "torchaudio", "torchmetrics", "transformers", "diffusers", "accelerate", "lightning",
    "pytorch_lightning", "timm", "ultralytics", "sentence_transformers", "peft", "trl", "ignite", "fastai", "kornia",
    "monai", "stable_baselines3", "torch_geometric", "open_clip", "whisper", "segment_anything",
)  # fmt: skip
#: TensorFlow, and packages that work by it.
BY_TENSORFLOW = (
    "tensorflow", "keras", "tf_keras", "tensorflow_datasets", "tensorflow_hub", "tensorflow_probability", "keras_hub",
    "keras_nlp", "keras_cv", "keras_tuner", "tensorflow_text", "tensorflow_recommenders", "tf_agents", "gpflow",
)  # fmt: skip
#: What of TensorFlow belongs to the machine that has the GPUs.
WITH_ITS_GPUS = {
    "tensorflow.load_op_library": "loads operators of its own",
    **dict.fromkeys(
        [f"tensorflow.distribute.{one}" for one in (
            "MirroredStrategy", "MultiWorkerMirroredStrategy", "TPUStrategy", "experimental.",
        )],
        "has GPUs of one machine work together",
    ),
    **dict.fromkeys(
        ("tensorflow.config.experimental_connect_to_", "tensorflow.distribute.ParameterServerStrategy"),
        "has servers of its own",
    ),
    **dict.fromkeys(
        [f"tensorflow.compat.v1.{one}" for one in (
            "Session", "InteractiveSession", "train.MonitoredTrainingSession", "train.MonitoredSession",
            "disable_eager_execution", "disable_v2_behavior", "estimator.",
        )],
        "is of TensorFlow 1, whose sessions compute where the program is",
    ),
}  # fmt: skip
#: What Keras works by where it is told, and how that is named.
KERAS_BACKEND = "KERAS_BACKEND"
#: Packages that speak the CUDA driver API.
BY_DRIVER = ("pycuda",)
NUMBA = "numba.cuda"
#: What a binary has that links the CUDA runtime, or a library that does.
_RUNTIME_MARKS = (b"libcudart", b"__cudaRegister", b"libcublas", b"libcudnn", b"libnccl", b"libtorch")
_DRIVER_MARK = b"libcuda.so"
ASKS_S = 30
_ASK = r"""
import sys
sys.path[:1] = []
import importlib.util, json, re
from importlib import metadata
spec = importlib.util.find_spec("torch")
version = tensorflow = None
for name in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "intel-tensorflow"):
    try:
        tensorflow = tensorflow or (importlib.util.find_spec("tensorflow") and metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
if spec is not None and spec.origin:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        with open(re.sub(r"__init__\.pyc?$", "version.py", spec.origin)) as text:
            version = re.search(r"__version__ *(?::[^=]*)?= *['\"]([^'\"]+)", text.read())[1]
needing = []
for name in sys.argv[1:]:
    try:
        owners = metadata.packages_distributions().get(name, [])
        needs = [one for owner in owners for one in metadata.requires(owner) or [] if "extra ==" not in one]
    except Exception:
        continue
    if any(re.match(r"torch(?![\w.-])", one) for one in needs):
        needing.append(name)
print(json.dumps({"torch": version, "tensorflow": tensorflow, "needing": needing}))
"""


@dataclass(frozen=True)
class Needs:
    """kind: torch, tensorflow, the CUDA driver API, a CUDA runtime or kernels of its own (`runtime`), what any
    engine gives, or nobody knows. why: a
    sentence's words, "" where nothing is known. python: the interpreter, "" where it is not known. torch: whether it
    imports PyTorch, whatever else; tensorflow: the same."""

    kind: Kind
    why: str = ""
    python: str = ""
    torch: bool = False
    tensorflow: bool = False


@dataclass(frozen=True)
class PythonHas:
    """What an interpreter has. torch, tensorflow: their versions, "" for none. needing: of the packages that were asked
    for those that need PyTorch. known: False where it did not answer."""

    torch: str = ""
    needing: tuple[str, ...] = ()
    known: bool = True
    tensorflow: str = ""


def ask_python(python: str, names: Sequence[str] = ()) -> PythonHas:
    """Ask an interpreter, without an import of PyTorch or TensorFlow."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *names],
            capture_output=True, text=True, check=False, timeout=ASKS_S, stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
        )  # fmt: skip
        told = json.loads(done.stdout.splitlines()[-1])
        return PythonHas(told["torch"] or "", tuple(told["needing"]), tensorflow=told["tensorflow"] or "")
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError, KeyError):
        return PythonHas(known=False)


def _by_kernels(seen: Seen) -> str:
    """Why no engine that sends PyTorch's operators is enough."""
    for one in seen.imports:
        if one.top in RUNTIME:
            return f"{one.where} imports {one.top}, {RUNTIME[one.top]}"
    named = [(one.name, one.where) for one in seen.imports] + list(seen.names.items())
    for name, where in named:
        for start, does in KERNELS.items():
            if name == start or name.startswith(f"{start}."):
                return f"{where} uses {start}, which {does}"
    if seen.compiled:
        return f"{seen.compiled} calls torch.compile with a backend that may make kernels for a GPU here"
    return ""


def _by_driver(seen: Seen) -> str:
    for one in seen.imports:
        if one.top in BY_DRIVER or one.name.startswith(NUMBA):
            return f"{one.where} imports {one.name}, which speaks the CUDA driver API"
    where = next((where for name, where in seen.names.items() if name == NUMBA or name.startswith(f"{NUMBA}.")), "")
    if where:
        return f"{where} uses {NUMBA}, which speaks the CUDA driver API"
    return f"{seen.driver} loads the CUDA driver's library" if seen.driver else ""


def _by_torch(seen: Seen, python: str) -> str:
    one = seen.first("torch")
    if one is not None:
        return f"{one.where} imports torch"
    for one in seen.imports:
        if one.top in BY_TORCH:
            return f"{one.where} imports {one.top}, which works by PyTorch"
    others = list(dict.fromkeys(one.top for one in seen.imports))
    if not others or not python:
        return ""
    needing = ask_python(python, others).needing
    return next(
        (f"{one.where} imports {one.top}, which needs PyTorch" for one in seen.imports if one.top in needing), ""
    )


def _by_tensorflow(seen: Seen) -> str:
    backend = os.environ.get(KERAS_BACKEND, "tensorflow")
    for one in [*seen.imports, *seen.perhaps]:
        if one.top == "keras" and backend != "tensorflow":
            continue
        if one.top in BY_TENSORFLOW:
            return f"{one.where} imports {one.top}" + ("" if one.top == "tensorflow" else ", which works by TensorFlow")
    return ""


def _with_its_gpus(seen: Seen) -> str:
    """Why a program of TensorFlow belongs on the machine that has the GPUs."""
    keras = next((one for one in seen.imports if one.top == "keras"), None)
    if keras and os.environ.get(KERAS_BACKEND, "tensorflow") == "jax":
        return f"{keras.where} imports keras, which works by JAX here ({KERAS_BACKEND}), another framework"
    named = [(one.name, one.where) for one in seen.imports] + list(seen.names.items())
    for name, where in named:
        for start, does in WITH_ITS_GPUS.items():
            if name.startswith(start) or name == start.rstrip("."):
                return f"{where} uses {name}, which {does}"
    return ""


def of_python(program: PythonProgram) -> Needs:
    """Of a Python program."""
    seen = look([program.file] if program.file else program.others, program.module, program.code)
    seen.imports += [Import(name, "its launcher") for name in program.imports]
    found = _judged(seen, program.python)
    if found.kind == "unknown" and program.file and program.others:
        found = _judged(look(program.others), program.python)
    return found


def _judged(seen: Seen, python: str) -> Needs:
    kernels, driver = _by_kernels(seen), _by_driver(seen)
    tensorflow = _by_tensorflow(seen)
    torch = _by_torch(seen, "" if kernels or driver or tensorflow else python)
    if tensorflow and torch and not seen.first("tensorflow") and not seen.first("keras"):
        tensorflow = ""  # a program of PyTorch, which looks whether TensorFlow is there too
    kernels = kernels or (_with_its_gpus(seen) if tensorflow or seen.first("keras") else "")
    if kernels:
        return Needs("runtime", kernels, python, bool(torch), bool(tensorflow))
    both = ", and ".join(filter(None, (torch, tensorflow, driver)))
    if (torch or tensorflow) and both not in (torch, tensorflow):
        return Needs("runtime", both, python, bool(torch), bool(tensorflow))
    if torch:
        return Needs("torch", torch, python, True)
    if tensorflow:
        return Needs("tensorflow", tensorflow, python, tensorflow=True)
    return Needs("driver-api", driver, python) if driver else Needs("unknown", "", python)


def of_binary(path: Path) -> Needs:
    """Of a compiled program, by the libraries that it names."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"\x7fELF":
                return Needs("unknown")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if any(data.find(mark) >= 0 for mark in _RUNTIME_MARKS):
                    return Needs("runtime", f"{path.name} has the CUDA runtime")
                if data.find(_DRIVER_MARK) >= 0:
                    return Needs("driver-api", f"{path.name} loads the CUDA driver's library")
    except (OSError, ValueError):
        pass
    return Needs("unknown")


def needs_of(argv: Sequence[str]) -> Needs:
    """What the program of a command line needs; `unknown` where nothing can be told."""
    program = program_of(argv)
    if program is not None:
        return of_python(program)
    words, _ = unwrapped(argv)
    path = shutil.which(words[0]) if words else None
    return of_binary(Path(path)) if path else Needs("unknown")
