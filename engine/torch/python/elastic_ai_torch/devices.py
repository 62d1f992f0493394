"""Properties of the lease's devices: what the server told, nothing made up."""

from __future__ import annotations

from typing import Any

from elastic_ai_torch.client import Client


class DeviceUuid:
    """A GPU's UUID as torch gives it: without GPU-."""

    def __init__(self, text: str) -> None:
        """From text as the driver writes it."""
        self._text = text.removeprefix("GPU-")

    @property
    def bytes(self) -> list[int]:
        """The 16 numbers."""
        return list(bytes.fromhex(self._text.replace("-", "")))

    def __str__(self) -> str:
        """Text without prefix."""
        return self._text

    def __repr__(self) -> str:
        """The same."""
        return self._text

    def __eq__(self, other: object) -> bool:
        """By their text."""
        return isinstance(other, DeviceUuid) and other._text == self._text

    def __hash__(self) -> int:
        """By their text."""
        return hash(self._text)


class _CudaDeviceProperties:
    """What torch.cuda.get_device_properties gives. What the server did not tell is an AttributeError."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    uuid: DeviceUuid

    def __init__(self, told: dict[str, Any]) -> None:
        """From WELCOME's JSON."""
        self.__dict__.update({key: value for key, value in told.items() if key.isidentifier()})
        self.name = str(told["name"])
        self.major, self.minor = (int(number) for number in told["capability"])
        self.total_memory = int(told["total_memory_bytes"])
        self.uuid = DeviceUuid(str(told.get("uuid", "")))

    def __getattr__(self, name: str) -> Any:
        """Whatever the server did not tell."""
        raise AttributeError(f"the server did not tell {name!r} of this device")

    def __repr__(self) -> str:
        """As torch writes it."""
        cache = self.__dict__.get("L2_cache_size")
        rest = f", L2_cache_size={int(cache) >> 20}MB" if cache is not None else ""
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}{rest})"
        )


class Devices:
    """torch.cuda._get_device_properties, kept once told."""

    def __init__(self, client: Client) -> None:
        """Nothing is asked yet."""
        self._client = client
        self._known: dict[int, _CudaDeviceProperties] = {}

    def properties(self, device: int) -> _CudaDeviceProperties:
        """Of the device with this number."""
        if device not in self._known:
            self._known[device] = _CudaDeviceProperties(self._client.properties(self._client.check(device)))
        return self._known[device]

    def same_server(self, one: int, other: int) -> bool:
        """Whether copies between the two stay on one machine."""
        servers = [self._client.properties(self._client.check(d)).get("server") for d in (one, other)]
        return one != other and servers[0] is not None and servers[0] == servers[1]
