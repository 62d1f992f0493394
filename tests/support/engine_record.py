"""What is frozen of the wires of engine/: structures and numbers as a compiler has them, and a session byte by byte.

python -m tests.support.engine_record      writes the record of a version that has none; never over another one
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.engine_kernels import CHECKS, LAUNCHES
from tests.support.engine_run import Client, server
from tests.support.engine_wire import DEVICE_BYTES, HELLO, REPLY, REQUEST, WELCOME
from toolkit.engine import build

WIRE, VERBS = build.SOURCES / "reference/wire.h", build.SOURCES / "shared/verbs/verbs_port.h"
#: A wire: the file that has its version, and where in it.
WIRES = {
    "reference/wire": (WIRE, r"^#define WIRE_PROTOCOL (\d+)$"),
    "devices/host_module": (build.SOURCES / "devices/host_module.h", r"^#define HOST_MODULE_VERSION (\d+)$"),
    "devices/state": (build.SOURCES / "devices/state.c", r"^#define MAGIC 0x454149(\d\d)u$"),
}
FIRST_ADDRESS = 0x300000000000
#: Requests whose replies are another each time: texts, times, addresses of a process, secrets.
VARYING = {"OP_ENVIRONMENT", "OP_EVENT_ELAPSED", "OP_MODULE_GLOBAL", "OP_TICKETS"}
#: Every request that goes by TCP, from a program's calls.
SCRIPT = (
    LAUNCHES
    + """
Z = c_size_t; context = start(); other = c_void_p(); cuda.cuCtxCreate_v2(byref(other), 0, 1)
q = alloc(4096); cuda.cuCtxSetCurrent(context); p = alloc(8 << 20); r = alloc(4096)
elastic = cuda.library.elasticAiServerInfo; elastic(ctypes.create_string_buffer(65536), Z(65536))
info(); b = ctypes.create_string_buffer(bytes(range(256)) * 16, 4096); big = ctypes.create_string_buffer(5 << 20)
cuda.cuMemcpyHtoD_v2(p, b, Z(4096)); cuda.cuMemcpyDtoD_v2(r, p, Z(4096)); cuda.cuMemcpyDtoH_v2(b, r, Z(4096))
cuda.cuMemcpyPeer(q, other, p, context, Z(4096)); cuda.cuMemsetD32_v2(r, 0xabcd, Z(16)); cuda.cuMemsetD8_v2(r, 7, Z(16))
s = c_void_p(); cuda.cuStreamCreateWithPriority(byref(s), 1, -1)
e, f = c_void_p(), c_void_p(); cuda.cuEventCreate(byref(e), 0); cuda.cuEventCreate(byref(f), 0)
cuda.cuEventRecord(e, s); cuda.cuMemcpyHtoDAsync_v2(p, b, Z(512), s); cuda.cuMemcpyDtoHAsync_v2(b, p, Z(512), s)
cuda.cuStreamWaitEvent(s, e, 0); cuda.cuEventRecord(f, s); cuda.cuStreamSynchronize(s); cuda.cuStreamQuery(s)
cuda.cuEventSynchronize(f); cuda.cuEventQuery(f); cuda.cuEventElapsedTime(byref(c_float()), e, f)
module = load(); scale = function(module, "scale"); data = put("f", range(64))
launch(scale, 2, 32, data, c_float(0.5), ctypes.c_uint(64), stream=s); cuda.cuCtxSynchronize()
at, size = c_uint64(), Z(); cuda.cuModuleGetGlobal_v2(byref(at), byref(size), module, b"launches")
cuda.cuFuncSetAttribute(scale, 8, 1024); n = c_int()
cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(n), scale, 128, Z(0))
cuda.cuCtxGetLimit(byref(size), 0); cuda.cuCtxSetLimit(0, Z(2048)); cuda.cuCtxGetStreamPriorityRange(byref(n), byref(n))
cuda.cuMemcpyHtoD_v2(p, big, Z(5 << 20)); cuda.cuMemcpyDtoH_v2(big, p, Z(5 << 20))
cuda.cuModuleUnload(module); cuda.cuEventDestroy_v2(e); cuda.cuEventDestroy_v2(f); cuda.cuStreamDestroy_v2(s)
cuda.cuMemFree_v2(r); cuda.cuCtxDestroy_v2(other); cuda.cuDevicePrimaryCtxRelease_v2(0); said(0)
"""
)


def _plain(path: Path) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(), flags=re.DOTALL)


def _fields(body: str) -> list[tuple[str, str]]:
    """Name and type of each field; the type of a structure inside is its own fields."""
    inside: list[str] = []

    def put_aside(match: re.Match[str]) -> str:
        inside.append(" ".join(match[1].split()))
        return f"inside_{len(inside) - 1}"

    body = re.sub(r"\(\*(\w+)\)\s*\([^()]*\)", r"\1", body)
    body = re.sub(r"\bstruct\s*(\{[^{}]*\})", put_aside, body)
    found = []
    for one in filter(None, (part.strip() for part in body.split(";"))):
        kind = re.match(r"(?:const |volatile |struct )*\w+", one)
        assert kind, one
        known = inside[int(kind[0][7:])] if kind[0].startswith("inside_") else kind[0]
        for name in one[kind.end() :].split(","):
            word = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", name)
            assert word, one
            found.append((word[1], known + " *" * name.count("*")))
    return found


def layout(source: Path, scratch: Path) -> dict[str, str]:
    """C expression -> what it is, for every structure, enumeration and macro that a file declares."""
    text = _plain(source)
    enums = ",".join(re.findall(r"\benum(?: \w+)?\s*\{([^}]*)\}", text))
    wanted = [one.split("=")[0].strip() for one in enums.split(",") if one.strip()]
    wanted += re.findall(r"^#define (\w+) \S", text, re.MULTILINE)
    kinds: dict[str, str] = {}
    for name, body in re.findall(r"\bstruct (\w+)\s*\{((?:[^{}]|\{[^{}]*\})*)\}", text):
        wanted.append(f"sizeof(struct {name})")
        for part, kind in _fields(body):
            wanted += [f"offsetof(struct {name}, {part})", f"sizeof(((struct {name} *)0)->{part})"]
            kinds[wanted[-1]] = kind
    lines = "".join(f'SAY("{one}", ({one}))\n' for one in wanted)
    program = f"""
#include "{source}"
#include <stdio.h>
static void say(const char *name, long long value) {{ printf("%s\\t%lld\\n", name, value); }}
static void says(const char *name, const char *value) {{ printf("%s\\t%.7s\\n", name, value); }}
#define SAY(name, value) _Generic((value), char *: says, default: say)(name, value);
int main(void) {{
{lines}return 0; }}
"""
    (scratch / "layout.c").write_text(program)
    words = ["gcc", "-std=gnu11", "-w", "-pthread", *build.emulated_flags()]
    subprocess.run([*words, "-o", str(scratch / "layout"), str(scratch / "layout.c")], check=True)
    told = subprocess.run([str(scratch / "layout")], check=True, capture_output=True, text=True).stdout
    found = dict(line.split("\t", 1) for line in told.splitlines())
    return {one: f"{value}, {kinds[one]}" if one in kinds else value for one, value in found.items()}


@dataclass
class Heard:
    """What went each way of each connection, in the order in which they came."""

    sent: list[bytearray] = field(default_factory=list)
    came: list[bytearray] = field(default_factory=list)


@contextmanager
def between(port: int) -> Iterator[tuple[int, Heard]]:
    """A port that leads to another one of this machine, and what was heard on the way."""
    heard, ends = Heard(), []
    with socket.create_server(("127.0.0.1", 0)) as door:

        def carry(one: socket.socket, other: socket.socket, to: bytearray) -> None:
            with suppress(OSError):
                while data := one.recv(1 << 16):
                    to += data
                    other.sendall(data)
            with suppress(OSError):
                other.shutdown(socket.SHUT_WR)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client = door.accept()[0]
                    there = socket.create_connection(("127.0.0.1", port))
                    ends.extend((client, there))
                    heard.sent.append(bytearray())
                    heard.came.append(bytearray())
                    for words in ((client, there, heard.sent[-1]), (there, client, heard.came[-1])):
                        threading.Thread(target=carry, args=words, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield door.getsockname()[1], heard
        finally:
            for end in ends:
                end.close()


def _text(data: bytes) -> str:
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()[:16]}" if data else "0"


def session(folder: Path, names: dict[int, str]) -> list[str]:
    """SCRIPT's session by the real client, server and devices: a line for each request with its reply."""
    with (
        server(folder, ELASTIC_AI_EMULATED_ADDRESS=hex(FIRST_ADDRESS)) as s,
        between(s.port) as (port, heard),
    ):
        Client(f"127.0.0.1:{port}", folder).run(SCRIPT)
    sent, came = bytes(heard.sent[0]), bytes(heard.came[0])
    magic, protocol, _, release, _, _ = HELLO.unpack_from(sent)
    lines = [f"hello {magic!r} {protocol} {release.rstrip(bytes(1))!r}"]
    lines += [f"join {bytes(one[:8])!r}" for one in heard.sent[1:]]
    code = CHECKS.with_suffix(".ptx").read_bytes()
    at, back, verdict = HELLO.size, 0, 4
    while verdict == 4:
        magic, protocol, verdict, release, why, _cuda, devices = WELCOME.unpack_from(came, back)
        back += WELCOME.size
        texts = " ".join(repr(text.rstrip(bytes(1))) for text in (magic, release, why))
        lines.append(f"welcome {protocol} {verdict} {devices} {texts}")
    lines.append(f"devices {_text(came[back : back + devices * DEVICE_BYTES])}")
    back += devices * DEVICE_BYTES
    while at < len(sent):
        op, flags, seq, unused, size, context, *arguments = REQUEST.unpack_from(sent, at)
        payload = sent[at + REQUEST.size : at + REQUEST.size + size]
        at += REQUEST.size + size
        words = [names[op], flags, seq, unused, _text(payload.replace(code, b"code")), context]
        line = " ".join([*map(str, words), *(f"{one:x}" for one in arguments)])
        if flags & 1:
            of, status, size, *values = REPLY.unpack_from(came, back)
            data = came[back + REPLY.size : back + REPLY.size + size]
            back += REPLY.size + size
            line += f" -> {of} {status}"
            line += "" if names[op] in VARYING else " ".join(["", _text(data), *(f"{one:x}" for one in values)])
        lines.append(line)
    assert back == len(came)
    return lines


def record_of(wire: str) -> Path:
    """Where the record of a wire's version is."""
    source, pattern = WIRES[wire]
    version = re.search(pattern, source.read_text(), re.MULTILINE)
    assert version, f"{source} does not say its version"
    return build.SOURCES / f"{wire}-{int(version[1])}.json"


def observed(wire: str, scratch: Path) -> dict[str, Any]:
    """What a record of the wire holds, of the sources as they are."""
    found: dict[str, Any] = {"layout": layout(WIRES[wire][0], scratch)}
    if wire == "reference/wire":
        names = {int(number): name for name, number in found["layout"].items() if name.startswith("OP_")}
        verbs = layout(VERBS, scratch)
        found["verbs"] = {name: value for name, value in verbs.items() if "struct verbs_end" in name}
        found["session"] = session(scratch / "session", names)
    return found


def main() -> None:
    """Write what is missing."""
    for wire in WIRES:
        path = record_of(wire)
        if not path.exists():
            with tempfile.TemporaryDirectory() as scratch:
                path.write_text(json.dumps(observed(wire, Path(scratch)), indent=1) + "\n")
            print(path)


if __name__ == "__main__":
    main()
