"""torch.cuda.Stream and Event. A device's streams are one ordered stream on its server: right, without overlap."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import Any

import torch

from elastic_ai_torch.client import Client
from elastic_ai_torch.refusals import refuse

CUDA = 1  # c10::DeviceType
_HANDLE = "the handle is of the server's process"
_numbers = itertools.count(1)
_current = threading.local()


def current(device: int) -> tuple[int, int, int]:
    """Stream of this thread on the device: its number, device, device type."""
    return getattr(_current, "streams", {}).get(device, 0), device, CUDA


def set_current(stream_id: int, device_index: int, device_type: int = CUDA) -> None:
    """Make it this thread's, and its device the current one, as CUDA does."""
    if not hasattr(_current, "streams"):
        _current.streams = {}
    _current.streams[device_index] = stream_id
    torch._C._cuda_setDevice(device_index)


class Stream(torch.Stream):
    """As torch.cuda.Stream; its number is the client's own."""

    def __new__(
        cls, device: Any = None, priority: int = 0, *, stream_id: int | None = None, device_index: int | None = None,
        device_type: int = CUDA,
    ) -> Stream:  # fmt: skip
        """A new one of the device, or the one with these numbers."""
        torch.cuda._lazy_init()
        if stream_id is None or device_index is None:
            stream_id, device_index = next(_numbers), torch.cuda._utils._get_device_index(device, optional=True)
        made: Stream = super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=device_type)
        return made

    @property
    def cuda_stream(self) -> int:
        """A handle for C: refused."""
        refuse("cuda_stream", _HANDLE)

    _as_parameter_ = cuda_stream

    def __cuda_stream__(self) -> tuple[int, int]:
        """The same for other libraries."""
        refuse("__cuda_stream__", _HANDLE)

    @property
    def priority(self) -> int:
        """All have one."""
        return 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Least and greatest."""
        return 0, 0

    def query(self) -> bool:
        """Wait for all that was asked of the device, which is done then."""
        return bool(super().query())

    def synchronize(self) -> None:
        """Wait for it."""
        torch.cuda.synchronize(self.device)

    def wait_event(self, event: Any) -> None:
        """Nothing to do: what comes later runs later."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing to do: what comes later runs later."""

    def record_event(self, event: Any = None) -> Any:
        """Record the event, or a new one, here."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        """As torch.cuda.stream(self)."""
        self.__dict__.setdefault("_within", []).append(context := torch.cuda.StreamContext(self))
        context.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        """Back to the one before."""
        self.__dict__["_within"].pop().__exit__(*exception)

    def __eq__(self, other: object) -> bool:
        """The same stream of the same device."""
        return isinstance(other, torch.Stream) and (self.stream_id, self.device) == (other.stream_id, other.device)

    def __hash__(self) -> int:
        """By number and device."""
        return hash((self.stream_id, self.device))

    def __repr__(self) -> str:
        """Without an address."""
        return f"<torch.cuda.Stream device={self.device} stream_id={self.stream_id}>"


class ExternalStream(Stream):
    """A stream of another library: refused."""

    def __new__(cls, *_: Any, **__: Any) -> ExternalStream:
        """Refused."""
        refuse("torch.cuda.ExternalStream", _HANDLE)


class Event(torch.Event):
    """As torch.cuda.Event: a time stamp of the server.

    Torch's own elapsed_time takes no class that derives from torch.Event, so a plain one is recorded inside.
    """

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> Event:
        """Not yet recorded."""
        if interprocess:
            refuse("torch.cuda.Event(interprocess=True)")
        torch.cuda._lazy_init()
        made: Event = super().__new__(cls, device="cuda", enable_timing=enable_timing, blocking=blocking)
        made._plain = torch.Event("cuda", enable_timing=enable_timing, blocking=blocking)
        return made

    _plain: Any

    def record(self, stream: Any = None) -> None:
        """Behind all that was asked of the stream's device."""
        self._plain.record(torch.cuda.current_stream() if stream is None else stream)

    def query(self) -> bool:
        """Whether all before it is done; an event that was not recorded is."""
        return bool(self._plain.query())

    def synchronize(self) -> None:
        """Wait for what was asked before it was recorded."""
        self._plain.synchronize()

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds of the server from this one to the other."""
        return float(self._plain.elapsed_time(getattr(end_event, "_plain", end_event)))

    @property
    def device(self) -> Any:
        """Where it was recorded."""
        return self._plain.device

    @property
    def event_id(self) -> int:
        """The client's own number."""
        return int(self._plain.event_id)

    def wait(self, stream: Any = None) -> None:
        """Nothing to do: what comes later runs later."""

    def ipc_handle(self) -> bytes:
        """For another process: refused."""
        refuse("torch.cuda.Event.ipc_handle")

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: Any) -> Event:
        """Of another process: refused."""
        refuse("torch.cuda.Event.from_ipc_handle")

    @property
    def cuda_event(self) -> int:
        """A handle for C: refused."""
        refuse("cuda_event", _HANDLE)

    _as_parameter_ = cuda_event

    def __repr__(self) -> str:
        """Without an address."""
        return f"<torch.cuda.Event device={self.device}>"


def install(client: Client) -> None:
    """Our classes under every name that torch's own modules have given theirs."""
    core = torch._C
    core._cuda_getCurrentStream = current
    core._cuda_getDefaultStream = lambda device: (0, device, CUDA)
    core._cuda_setStream = set_current
    core._cuda_isCurrentStreamCapturing = lambda: False
    torch.cuda.graphs._cuda_isCurrentStreamCapturing = core._cuda_isCurrentStreamCapturing
    for own in (Stream, Event, ExternalStream):
        replace_everywhere(getattr(torch.cuda.streams, own.__name__), own)


def replace_everywhere(theirs: Any, ours: Any) -> None:
    """In torch's modules that are loaded: `from torch.cuda import Stream` was done before us."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and module is not None:
            for public, value in list(getattr(module, "__dict__", {}).items()):
                if value is theirs:
                    setattr(module, public, ours)
