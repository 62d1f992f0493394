"""Groups of a session with others of its lease: torch's own backend among them, gloo on processors and NCCL on GPUs."""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import hmac
import json
import os
import secrets
import socket
import threading
import time
from datetime import timedelta
from typing import Any

from elastic_ai_torchserver.peers import Link, PeerFault, Peers, connect, interface_of, introductions, watch_all

JOIN_S, MOST_TIMEOUT_S, MOST_MEMBERS, PROOF_BYTES = 60.0, 3600.0, 128, 32
FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t
)


def pid_of(member: str) -> int:
    """The session's process; 0 where it is no member's number."""
    try:
        return int(member.partition("-")[0], 16)
    except ValueError:
        return 0


class Groups:
    """Those of one session."""

    def __init__(self, given: argparse.Namespace, port: int, control: socket.socket, token: bytes) -> None:
        """None is there yet. control: from the parent, which hands connections of others over."""
        self._given, self._port, self._token = given, port, token
        self._peers = Peers(given.peers or "")
        self._number = f"{os.getpid():x}-{secrets.token_hex(16)}"
        self._meeting = threading.Condition()
        self._stores: dict[str, Any] = {}  # of the groups that this session is the first of
        self._joined: dict[int, tuple[str, Link | None, Any]] = {}
        self.function = FUNCTION(self._asked)
        if given.peers:
            threading.Thread(target=introductions, args=(control, self._arrived), daemon=True).start()

    def _asked(self, what: bytes, group: int, request: bytes, answer: Any, room: int) -> int:
        """By the session: 0 and what was asked for, or 1 and why not."""
        failed = 0
        try:
            if what == b"member":
                said = json.dumps([self._peers.position(self._given.bind, self._port), self._number])
            elif what == b"join":
                said = self._join(group, json.loads(request))
            else:
                said = self._leave(group)
        except PeerFault as fault:
            failed, said = 1, str(fault)
        except Exception as fault:  # whatever torch and the network say: the client is told
            failed, said = 1, f"the group cannot be made: {str(fault).splitlines()[0] if str(fault) else fault!r}"
        text = said.encode()[: room - 1] + b"\0"
        ctypes.memmove(answer, text, len(text))
        return failed

    def _join(self, group: int, request: dict[str, Any]) -> str:
        peers, members = self._peers.read(), [(int(at), str(number)) for at, number in request["members"]]
        rank, name = int(request["rank"]), str(request["name"])[:64]
        timeout_s = min(max(float(request["timeout_s"]), 1.0), MOST_TIMEOUT_S)
        if not 0 <= rank < len(members) <= MOST_MEMBERS or any(not 0 <= at < len(peers) for at, _ in members):
            raise PeerFault("a member of the group is of no server of this lease")
        if len(set(members)) != len(members):
            raise PeerFault("a session is twice in the group")
        if members[rank][1] != self._number:
            raise PeerFault("this session is not the member that the group has")
        if group in self._joined:
            raise PeerFault("the group's number is in use")
        link = None
        try:
            store = self._first(name) if rank == 0 else None
            if rank:
                at, number = members[0]
                link = connect(peers[at], self._given.bind, self._token, number)
                link.say(name)
                store = linked_store(link)
            # torch's registry keeps no group alive
            self._joined[group] = name, link, self._register(group, store, rank, len(members), timeout_s)
        except BaseException:
            self._forget(name, link)
            raise
        return ""

    def _forget(self, name: str, link: Link | None) -> None:
        with self._meeting:
            self._stores.pop(name, None)
        if link is not None:
            link.close()

    def _register(self, group: int, store: Any, rank: int, size: int, timeout_s: float) -> Any:
        """Torch's backend of the group, by the name that the session looks for."""
        import torch
        import torch.distributed.distributed_c10d as c10d

        on_gpu = self._given.device == "cuda"
        if on_gpu:
            # the only network by which the lease's unit lets the servers meet
            os.environ["NCCL_SOCKET_IFNAME"] = f"={interface_of(self._given.bind)}"
            options = c10d.ProcessGroupNCCL.Options()
            options._timeout = timedelta(seconds=timeout_s)
            backend: Any = c10d.ProcessGroupNCCL(store, rank, size, options)
            try_out(backend, size, "cuda")
        else:
            options = c10d.ProcessGroupGloo._Options()
            options._devices = [c10d.ProcessGroupGloo.create_device(hostname=self._given.bind)]
            options._threads, options._timeout = 2, timedelta(seconds=JOIN_S)
            backend = c10d.ProcessGroupGloo(store, rank, size, options)
            prove(backend, store, rank, size)
            watch_all({address for address, _ in self._peers.read()}, self._port)
            backend._set_default_timeout(timedelta(seconds=timeout_s))
        whole = c10d.ProcessGroup(store, rank, size)
        kind = c10d.ProcessGroup.BackendType.NCCL if on_gpu else c10d.ProcessGroup.BackendType.GLOO
        whole._set_default_backend(kind)
        whole._register_backend(torch.device("cuda" if on_gpu else "cpu"), kind, backend)
        whole._set_group_name(f"eats-{group}")
        torch._C._distributed_c10d._register_process_group(f"eats-{group}", whole)
        return whole

    def _leave(self, group: int) -> str:
        import torch

        if group not in self._joined:
            raise PeerFault("there is no such group")
        name, link, whole = self._joined.pop(group)
        torch._C._distributed_c10d._unregister_process_group(f"eats-{group}")
        self._forget(name, link)
        last = [whole]
        del whole
        # gloo's end waits for what is begun, the group's whole timeout where a rank does not come
        threading.Thread(target=last.clear, daemon=True).start()
        return ""

    def _first(self, name: str) -> Any:
        """The store of a group whose first member is this session."""
        import torch.distributed as dist

        store = dist.HashStore()
        store.set_timeout(timedelta(seconds=JOIN_S))
        with self._meeting:
            self._stores[name] = store
            self._meeting.notify_all()
        return store

    def _arrived(self, member: str, link: Link) -> None:
        if member == self._number:
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()
        else:
            link.close()

    def _serve(self, link: Link) -> None:
        """The store of a group for another of its members, until that goes."""
        try:
            link.say("here")
            name = str(link.read()[0])
            with self._meeting:
                if not self._meeting.wait_for(lambda: name in self._stores, JOIN_S):
                    return
                store = self._stores[name]
            while True:
                what, key, value = link.read()
                if what == "set":
                    store.set(str(key), bytes.fromhex(str(value)))
                    link.say(True)
                elif what == "get":
                    link.say(store.get(str(key)).hex() if store.check([str(key)]) else None)
                elif what == "add":
                    link.say(store.add(str(key), int(str(value))))
                elif what == "delete":
                    link.say(store.delete_key(str(key)))
                else:
                    return
        except (PeerFault, ValueError, RuntimeError):
            return
        finally:
            link.close()


def try_out(backend: Any, size: int, device: str) -> None:
    """A first sum of the group: where it fails all goes by the client. NCCL connects at it. PeerFault where it is
    wrong."""
    import torch
    import torch.distributed.distributed_c10d as c10d

    ones = torch.ones(1, device=device)
    backend.allreduce([ones], c10d.AllreduceOptions()).wait()
    if ones.item() != size:
        raise PeerFault(f"a first sum over {size} sessions was {ones.item():g}")


def prove(backend: Any, store: Any, rank: int, size: int) -> None:
    """That each connection of gloo's is with the member that it should be with: gloo asks nobody for a secret.

    The key goes by the store, which only who has the lease's secret reaches. PeerFault where somebody else has come.
    """
    import torch
    import torch.distributed.distributed_c10d as c10d

    if rank == 0:
        store.set("proof", secrets.token_bytes(PROOF_BYTES).hex())
    key = bytes.fromhex(store.get("proof").decode())

    def proof(of: int, to: int) -> bytes:
        return hmac.new(key, f"{of} to {to}".encode(), hashlib.sha256).digest()

    said = torch.tensor(list(b"".join(proof(rank, to) for to in range(size))), dtype=torch.uint8)
    came = torch.empty_like(said)
    backend.alltoall_base(came, said, [], [], c10d.AllToAllOptions()).wait()
    wanted = b"".join(proof(of, rank) for of in range(size))
    if not hmac.compare_digest(bytes(came.tolist()), wanted):
        raise PeerFault("somebody else than the lease's servers has come to the group")


def linked_store(link: Link) -> Any:
    """The store of the group's first member."""
    import torch.distributed as dist

    class LinkedStore(dist.Store):  # type: ignore[misc]  # torch is not there to be checked
        """Asks for each thing by a line."""

        def __init__(self) -> None:
            super().__init__()
            self._patience_s = JOIN_S

        def set_timeout(self, timeout: timedelta) -> None:
            self._patience_s = timeout.total_seconds()

        @property
        def timeout(self) -> timedelta:
            return timedelta(seconds=self._patience_s)

        def set(self, key: str, value: Any) -> None:
            link.ask("set", key, (value.encode() if isinstance(value, str) else bytes(value)).hex())

        def get(self, key: str) -> bytes:
            return self._wait_for(key, self._patience_s)

        def _wait_for(self, key: str, patience_s: float) -> bytes:
            until, pause = time.monotonic() + patience_s, 0.001
            while True:
                value = link.ask("get", key, "")
                if value is not None:
                    return bytes.fromhex(str(value))
                if time.monotonic() > until:
                    raise RuntimeError(f"the group's members did not all come within {patience_s:.0f} s")
                time.sleep(pause)
                pause = min(2 * pause, 0.05)

        def add(self, key: str, value: int) -> int:
            return int(str(link.ask("add", key, value)))

        def check(self, keys: list[str]) -> bool:
            return all(link.ask("get", key, "") is not None for key in keys)

        def wait(self, keys: list[str], timeout: Any = None) -> None:
            for key in keys:
                self._wait_for(key, self._patience_s if timeout is None else timeout.total_seconds())

        def delete_key(self, key: str) -> bool:
            return bool(link.ask("delete", key, ""))

        def has_extended_api(self) -> bool:
            return False

    return LinkedStore()
