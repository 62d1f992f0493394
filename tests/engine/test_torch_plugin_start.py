"""The plug-in before, at and after the first use of CUDA: what `import torch` does in a lease, and what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import torch_env
from tests.support.torch_engine import Ran, Server, built, run, server, start

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "engine/torch/python"
LOADER = """
import torch, json
from torch.utils.data import DataLoader, Dataset
class Good(Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.tensor([i, torch.cuda._is_in_bad_fork(), torch.cuda.is_initialized()])
class Bad(Good):
    def __getitem__(self, i): return torch.ones(1, device="cuda") * i
x = torch.ones(3, device="cuda")
rows = [batch.tolist() for batch in DataLoader(Good(), num_workers=1, pin_memory=True)]
try:
    list(DataLoader(Bad(), num_workers=1)); said = "nothing"
except RuntimeError as fault:
    said = str(fault)
print(json.dumps([rows, said, x.sum().item()]))
"""
SPAWN = """
import torch, torch.multiprocessing as mp
def child(queue, x): queue.put((x * 2).sum().item())
if __name__ == "__main__":
    context = mp.get_context("spawn"); queue = context.Queue()
    x = torch.arange(4., device="cuda")
    process = context.Process(target=child, args=(queue, x)); process.start()
    print(queue.get(timeout=100)); process.join()
"""
ALONE = """
import os, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
plain = torch.nn.Linear(4, 2).cuda()
model = torch.nn.parallel.DistributedDataParallel(plain, device_ids=[0])
x = torch.arange(12., device="cuda").view(3, 4)
model(x).square().sum().backward()
print("loss", plain.weight.grad.sum().item().hex())
y, z, parts, told = torch.zeros_like(x), torch.zeros_like(x), [torch.zeros_like(x)], [None]
dist.all_reduce(x); dist.broadcast(x, 0); dist.barrier(); dist.all_gather(parts, x)
dist.all_gather_into_tensor(y, x); dist.reduce_scatter_tensor(z, x); dist.all_gather_object(told, {"a": 1})
assert torch.equal(parts[0], x) and torch.equal(y, x) and torch.equal(z, x) and told == [{"a": 1}]
assert dist.get_backend() == "nccl" and dist.all_reduce(x, async_op=True).wait()
dist.destroy_process_group()
"""
PACKED = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
cuda = torch.device("cuda" if torch.cuda.is_available() else "cpu")
for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    for both in (False, True):
        torch.manual_seed(0)
        net = kind(4, 5, 2, bidirectional=both, batch_first=True)
        x = torch.randn(3, 6, 4)
        net, x = net.to(cuda), x.to(cuda)
        packed = pack_padded_sequence(x, torch.tensor([6, 2, 4]), batch_first=True, enforce_sorted=False)
        out, lengths = pad_packed_sequence(net(packed)[0], batch_first=True)
        out.square().sum().backward()
        print(f"{out.sum().item():.4f} {net.weight_hh_l0.grad.sum().item():.3f} {lengths.tolist()}")
"""
CHECKPOINTED = """
import torch
from torch.utils.checkpoint import checkpoint
cuda = "cuda" if torch.cuda.is_available() else "cpu"
from elastic_ai_torch import start
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Dropout(0.5), torch.nn.ReLU()).to(cuda)
x = torch.ones(8, 4, device=cuda, requires_grad=True)
for _ in range(4):  # the shapes of the first ones are learned
    net.zero_grad()
    before = start.statistics()["waits"]
    out = checkpoint(net, x, use_reentrant=False)
    out.sum().backward()
    waits = start.statistics()["waits"] - before
print(waits)
alive = (out.detach() > 0).float().sum(0)
print(bool(((net[0].bias.grad - 2 * alive).abs() < 1e-3).all().item()))
"""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on processors."""
    with server(tmp_path_factory.mktemp("plugin-start")) as running:
        yield running


def away(tmp_path: Path, program: str, limit_s: float = 60, **more: str) -> Ran:
    """The program with a lease whose server is not there: nothing listens at port 1 of loopback."""
    tokens = tmp_path / "tokens"
    tokens.write_text("0123456789abcdef-away\n")
    environment = {
        "ELASTIC_AI_TORCH_SERVERS": "127.0.0.1:1",
        "ELASTIC_AI_TOKEN_FILE": str(tokens),
        "PYTHONPATH": str(built() / "python"),
        **more,
    }
    return run(program, "native", None, limit_s=limit_s, **environment)


def test_without_a_lease_nothing_of_it_is_loaded() -> None:
    program = "import sys, torch; print([m for m in sys.modules if 'elastic' in m], torch.cuda.is_available())"
    done = run(program, "native", None, PYTHONPATH=str(PYTHON))
    assert done.out.split() == ["['elastic_ai_torch']", "False"]
    assert not done.err


def test_an_import_opens_nothing_and_does_not_fail_where_the_server_is_away(tmp_path: Path) -> None:
    program = """
import os, threading, torch
print(len([f for f in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{f}") and
      os.readlink(f"/proc/self/fd/{f}").startswith("socket")]), torch.cuda.is_available(), torch.cuda.device_count(),
      torch.cuda.is_initialized(), torch.version.cuda is not None)
try: torch.zeros(1, device="cuda")
except RuntimeError as fault: print(fault)
"""
    done = away(tmp_path, program)
    first, *rest = done.out.splitlines()
    assert first == "0 True 1 False True"
    assert "127.0.0.1:1" in " ".join(rest)
    assert not done.err


def test_an_import_makes_no_session(one: Server) -> None:
    before = one.children()
    with start("import sys, torch; print(1, flush=True); sys.stdin.read()", "remote", one) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert one.children() == before
        process.communicate()


@pytest.mark.parametrize(
    ("listed", "expected"),
    [("", "0 False"), ("0", "1 True"), ("1,0", "2 True"), ("-1", "0 False"), ("0,0", "0 False"), ("0,9", "1 True"),
     ("1gpu", "1 True"), ("2", "0 False"), (" 1 , 0 ", "2 True")],
)  # fmt: skip
def test_cuda_visible_devices_is_honoured(tmp_path: Path, listed: str, expected: str) -> None:
    program = "import torch; print(torch.cuda.device_count(), torch.cuda.is_available())"
    more = {"ELASTIC_AI_TORCH_SERVERS": "127.0.0.1:1,127.0.0.1:1", "CUDA_VISIBLE_DEVICES": listed}
    assert away(tmp_path, program, **more).out.strip() == expected


def test_visible_devices_may_be_set_after_the_import_and_before_the_first_use(one: Server) -> None:
    program = """
import os, torch
os.environ["CUDA_VISIBLE_DEVICES"] = ""
print(torch.cuda.device_count())
try: torch.zeros(1, device="cuda")
except RuntimeError as fault: print(fault)
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
print(torch.cuda.device_count(), torch.ones(2, device="cuda").sum().item())
"""
    lines = run(program, "remote", one).out.splitlines()
    assert lines[0] == "0"
    assert "CUDA_VISIBLE_DEVICES" in lines[1]
    assert lines[2] == "1 2.0"


def test_visible_devices_by_uuid_are_refused_by_a_sentence(tmp_path: Path) -> None:
    program = """
import torch
try: torch.zeros(1, device="cuda")
except RuntimeError as fault: print(fault)
"""
    assert "by number" in away(tmp_path, program, CUDA_VISIBLE_DEVICES="GPU-0123").out


def test_another_release_of_torch_is_one_sentence_and_never_the_processor(tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    (engine / "lib").mkdir(parents=True)
    (engine / "lib/libelastic_ai_torch-1.13.so").touch()
    (engine / "python").symlink_to(PYTHON)
    copied = tmp_path / "copied"
    copied.mkdir()
    subprocess.run(["cp", "-r", str(PYTHON), str(copied / "python")], check=True)
    (copied / "lib").symlink_to(engine / "lib")
    program = """
import torch
print(torch.cuda.is_available())
try: torch.zeros(1).cuda()
except RuntimeError as fault: print(fault)
"""
    done = away(tmp_path, program, PYTHONPATH=str(copied / "python"))
    assert len(done.err.splitlines()) == 1
    assert "the lease's engine is for 1.13" in done.err
    assert done.out.splitlines()[0] == "False"
    assert "no leased GPU: this is PyTorch" in done.out


def test_a_lost_file_of_tokens_is_said_by_the_first_use(tmp_path: Path) -> None:
    program = """
import torch
try: torch.zeros(1, device="cuda")
except RuntimeError as fault: print(fault)
"""
    done = away(tmp_path, program, ELASTIC_AI_TOKEN_FILE=str(tmp_path / "gone"))
    assert str(tmp_path / "gone") in done.out
    assert "toolkit run" in done.out


def test_kernels_of_others_on_the_key_cuda_are_taken_out_and_checked(one: Server) -> None:
    program = """
import torch
import torch._native.registry as registry
from elastic_ai_torch import start
torch.zeros(1, device="cuda")
enabled = registry._filter_state.check_enabled
print([key for key, graph in registry._graphs.items() if key[1] == "CUDA" and enabled(graph[0])])
print([name for name in start._client.library.foreign() if name.startswith("aten::")])
library = torch.library.Library("aten", "IMPL")
library.impl("sin", lambda x: x, "CUDA", allow_override=True)
print([name for name in start._client.library.foreign() if name.startswith("aten::")])
"""
    lines = run(program, "remote", one).out.splitlines()
    assert lines[:2] == ["[]", "[]"]
    assert "sin" in lines[2]


def test_workers_of_a_loader_say_bad_fork_and_send_nothing(one: Server) -> None:
    rows, said, total = run(LOADER, "remote", one).result()
    assert rows == [[[i, 1, 0]] for i in range(4)]
    assert "Cannot re-initialize CUDA in forked subprocess" in said
    assert total == 3.0


def test_a_tensor_goes_to_a_spawned_process_as_a_copy(one: Server, tmp_path: Path) -> None:
    program = tmp_path / "spawn.py"
    program.write_text(SPAWN)
    done = run(program, "remote", one)
    assert done.out.split() == ["12.0"]
    assert "as a copy" in done.err


def test_a_process_group_of_one_and_ddp(one: Server) -> None:
    plain = ALONE[: ALONE.index("dist.destroy")].replace("cuda", "cpu").replace("nccl", "gloo")
    plain = plain.replace("device_ids=[0]", "").replace('dist.get_backend() == "gloo" and ', "")
    native = run(plain, "native")
    remote = run(ALONE, "remote", one)
    assert native.losses == remote.losses


def test_packed_recurrent_networks(one: Server) -> None:
    native, remote = run(PACKED, "native", None), run(PACKED, "remote", one)
    assert len(native.out.splitlines()) == 6
    assert native.out == remote.out


def test_checkpointing_keeps_the_random_state_without_a_wait(one: Server) -> None:
    waits, right = run(CHECKPOINTED, "remote", one).out.split()
    assert right == "True"
    assert int(waits) == 0


def test_torch_compile_with_a_backend_for_other_machines_says_one_sentence(one: Server) -> None:
    program = (
        "import torch\nfor backend in ('tvm', 'onnxrt', 'inductor'):\n"
        "    print(torch.compile(torch.nn.ReLU(), backend=backend)(torch.ones(1, device='cuda')).item())"
    )
    done = run(program, "remote", one)
    assert done.out.split() == ["1.0"] * 3
    assert done.err.count("makes nothing for a leased GPU") == 1


def test_printing_copies_the_values_once(one: Server) -> None:
    program = """
import torch
from elastic_ai_torch import start
x = torch.arange(2000., device="cuda").view(50, 40); str(x)
before = start.statistics()["waits"]
text = str(x)
print(start.statistics()["waits"] - before)
print(text == str(x.cpu()).replace(")", ", device='cuda:0')").replace("\\n       ", "\\n       "))
"""
    waits, _ = run(program, "remote", one).out.split()
    assert int(waits) <= 1


def test_a_machine_with_a_gpu_of_its_own_keeps_it_without_the_word(tmp_path: Path) -> None:
    """A wheel for processors has no GPU to lose: the names of CUDA are put into torch._C before the plug-in looks."""
    program = """
import os, sys
sys.path.insert(0, os.environ["PLUGIN"])
lease = os.environ.pop("ELASTIC_AI_TORCH_SERVERS")
import torch
os.environ["ELASTIC_AI_TORCH_SERVERS"] = lease
torch._C._cuda_getDeviceCount = lambda: 1
from elastic_ai_torch import start
start.OWN_GPU = __file__ if "__file__" in globals() else sys.executable
import elastic_ai_torch
elastic_ai_torch.load()
print(start._client is None, torch._C._cuda_getDeviceCount())
"""
    done = away(tmp_path, program, PLUGIN=str(built() / "python"))
    assert done.out.split() == ["True", "1"]
    assert "a GPU of its own" in done.err
    assert len(done.err.splitlines()) == 1
    told = away(tmp_path, program, PLUGIN=str(built() / "python"), ELASTIC_AI_TORCH_ONLY_LEASED="1")
    assert told.out.split() == ["False", "1"]
    assert "a GPU of its own" not in told.err


def test_the_plug_in_is_read_by_every_python_that_torch_has() -> None:
    """Python 3.10 is the oldest that PyTorch 2.9 runs on: the sources must compile there."""
    import ast

    for source in sorted((PYTHON / "elastic_ai_torch").glob("*.py")):
        ast.parse(source.read_text(encoding="utf-8"), feature_version=(3, 10))


def test_metadata_names_the_entry_point() -> None:
    ask = """
import json, importlib.metadata
print(json.dumps([str(e.value) for e in importlib.metadata.entry_points(group="torch.backends")]))
"""
    done = subprocess.run(
        [torch_env.python(), "-c", ask], env={**os.environ, "PYTHONPATH": str(PYTHON)}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == ["elastic_ai_torch:load"]
