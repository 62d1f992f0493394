"""The lease's GPUs, as a program asks TensorFlow for them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from elastic_ai_tensorflow.lease import Lease


def show(tensorflow: ModuleType, lease: Lease) -> None:
    """In `tf.config` and `tf.test`. A program sees no GPU of this machine."""
    from tensorflow.python.eager import context

    gpus = [context.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(len(lease.gpus))]
    _show_physical(context.Context, gpus, lease)
    _show_logical(context, lease)
    if lease.emulated:
        _give_processor(context)
    tensorflow.test.gpu_device_name = lambda: "/device:GPU:0"
    tensorflow.test.is_gpu_available = lambda cuda_only=False, min_cuda_compute_capability=None: True


def _show_physical(kind: Any, gpus: list[Any], lease: Lease) -> None:
    """What can be asked and set before a server is there: settings of memory are the server's, which takes memory as it
    is needed, up to the lease's part."""
    physical, visible, details = kind.list_physical_devices, kind.get_visible_devices, kind.get_device_details
    set_visible, set_logical = kind.set_visible_devices, kind.set_logical_device_configuration
    set_growth, get_growth, memory = kind.set_memory_growth, kind.get_memory_growth, kind.get_memory_info

    def cpus(found: list[Any]) -> list[Any]:
        return [one for one in found if one.device_type != "GPU"]

    def listed(found: list[Any], device_type: str | None) -> list[Any]:
        return [*cpus(found), *gpus] if device_type in (None, "GPU") else found

    def get_device_details(self: Any, device: Any) -> dict[str, Any]:
        if device not in gpus:
            return dict(details(self, device))
        gpu = lease.gpus[gpus.index(device)]
        major, _, minor = gpu.capability.partition(".")
        capability = {"compute_capability": (int(major), int(minor))} if major.isdigit() and minor.isdigit() else {}
        return {"device_name": gpu.name, **capability}

    def set_visible_devices(self: Any, devices: Any, device_type: str | None = None) -> None:
        wanted = list(devices) if isinstance(devices, (list, tuple)) else [devices]
        chosen = [one for one in wanted if one in gpus]
        if chosen not in ([], gpus):
            raise ValueError("a lease's GPUs are visible all together; ask for fewer with `toolkit run -n`")
        if not chosen or cpus(wanted):
            set_visible(self, cpus(wanted), device_type)

    def set_logical_device_configuration(self: Any, dev: Any, virtual_devices: Any) -> None:
        if dev in gpus:
            raise ValueError("a lease's GPU is not divided by the program; ask for a part with `toolkit run -p` or -m")
        set_logical(self, dev, virtual_devices)

    def get_memory_info(self: Any, dev: str) -> Any:
        if "GPU" in dev.upper():
            raise ValueError("TensorFlow tells no memory of a GPU of another machine; nvidia-smi shows the lease's")
        return memory(self, dev)

    kind.list_physical_devices = lambda self, device_type=None: listed(physical(self, device_type), device_type)
    kind.get_visible_devices = lambda self, device_type=None: listed(visible(self, device_type), device_type)
    kind.get_device_details = get_device_details
    kind.set_visible_devices = set_visible_devices
    kind.set_logical_device_configuration = set_logical_device_configuration
    kind.set_memory_growth = lambda self, dev, enable: None if dev in gpus else set_growth(self, dev, enable)
    kind.get_memory_growth = lambda self, dev: True if dev in gpus else get_growth(self, dev)
    kind.get_memory_info = get_memory_info


def _show_logical(context: Any, lease: Lease) -> None:
    """What a server has: its GPUs, and not its processor, which a program takes for its own. Where its TensorFlow
    computes on a processor, that is shown as the lease's GPU."""
    from elastic_ai_tensorflow.placing import WORKER

    before = context.Context._initialize_logical_devices

    def initialize(self: Any) -> None:
        before(self)
        own = [one for one in self._logical_devices if not one.name.startswith("/job:worker")]
        there = [f"{WORKER}/device:GPU:{i}" for i in range(len(lease.gpus))]
        self._logical_devices = [*own, *(context.LogicalDevice(name, "GPU") for name in there)]

    context.Context._initialize_logical_devices = initialize


def _give_processor(context: Any) -> None:
    """A device scope of a GPU is the server's processor."""
    from tensorflow.python.framework import device as names

    before = context._EagerDeviceContext.__init__

    def start(self: Any, ctx: Any, device_name: Any) -> None:
        before(self, ctx, processor_for(names, device_name))

    context._EagerDeviceContext.__init__ = start
    from tensorflow.python.framework import ops

    in_graph = ops.Graph.device

    def device(self: Any, name: Any) -> Any:
        return in_graph(self, processor_for(names, name))

    ops.Graph.device = device


def processor_for(names: Any, device: Any) -> Any:
    """/GPU:0 as /CPU:0; what is no such name as it is."""
    if not isinstance(device, str) or "gpu" not in device.lower():
        return device
    try:
        spec = names.DeviceSpec.from_string(device)
    except ValueError:
        return device
    return spec.replace(device_type="CPU", device_index=0).to_string() if spec.device_type == "GPU" else device
