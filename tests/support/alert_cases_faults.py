"""The same of what the faults of a lab leave behind on a node: modes, libraries, addresses, names, full disks."""

from __future__ import annotations

from tests.support.alert_cases import MANY, Case, inside, steady

MODE = {"node": "gpu1", "gpu": "3", "mode": "ecc"}
PORT = {"node": "gpu1", "device": "fab0"}
TEMPORARY = {"node": "gpu1", "device": "tmpfs", "fstype": "tmpfs", "mountpoint": "/tmp"}
RUN = {**TEMPORARY, "mountpoint": "/run/user/0"}
MEDIUM = {"node": "gpu1", "device": "/dev/sr0", "fstype": "ext4", "mountpoint": "/media"}
CARD = {"node": "gpu1", "device": "mlx5_0", "port": "1"}
AVAIL, SIZE, READONLY = (f"node_filesystem_{what}" for what in ("avail_bytes", "size_bytes", "readonly"))
ADDRESS = "elastic_ai_address"
TWICE = "10.9.0.1 is on fab0 of {} and somewhere else, too; who asks for it reaches the one or the other"


def at(node: str, device: str, address: str) -> str:
    return ADDRESS + inside({"node": node, "device": device, "address": address})


FAULTS = [
    Case(
        "GpuModeOff",
        {
            "elastic_ai_gpu_mode" + inside(MODE): steady(0),
            "elastic_ai_gpu_mode" + inside({**MODE, "gpu": "0"}): steady(1),
        },
        {  # off on all GPUs of the node
            "elastic_ai_gpu_mode" + inside(MODE): steady(0),
            "elastic_ai_gpu_mode" + inside({**MODE, "node": "gpu2"}): steady(1),
            "elastic_ai_gpu_mode" + inside({**MODE, "mode": "shared"}): steady(1),
        },
        1,
        MODE,
        "GPU 3 of gpu1 is other than the node's GPUs are or were today: ecc is off; nvidia-smi -q there",
    ),
    Case(
        "GpuLibraryEmpty",
        {'elastic_ai_libraries_empty{node="gpu1"}': steady(1)},
        {'elastic_ai_libraries_empty{node="gpu1"}': steady(0)},
        1,
        {"node": "gpu1"},
        "1 libraries of the GPU driver are empty on gpu1: programs there do not start; install the driver's packages "
        "again",
    ),
    Case(
        "DiskFullNow",
        {
            AVAIL + inside(TEMPORARY): steady(0),
            SIZE + inside(TEMPORARY): steady(65536),
            READONLY + inside(TEMPORARY): steady(0),
        },
        {  # a medium that can only be read, and a folder of the system's own
            AVAIL + inside(MEDIUM): steady(0),
            SIZE + inside(MEDIUM): steady(65536),
            READONLY + inside(MEDIUM): steady(1),
            AVAIL + inside(RUN): steady(0),
            SIZE + inside(RUN): steady(65536),
            READONLY + inside(RUN): steady(0),
        },
        1,
        TEMPORARY,
        "/tmp of gpu1 is full; what writes there fails",
    ),
    Case(
        "NameServerSilent",
        {'elastic_ai_name_server_answers{node="gpu1"}': f"1 1 0x{MANY}"},
        {'elastic_ai_name_server_answers{node="gpu1"}': steady(0)},  # a hall without any
        3,
        {"node": "gpu1"},
        "No name server of gpu1 answers; /etc/resolv.conf there says which it has",
    ),
    Case(
        "AddressTwice",
        {at("gpu1", "fab0", "10.9.0.1"): steady(1), at("gpu2", "fab0", "10.9.0.1"): f"_ _ _ 1x{MANY}"},
        {at("gpu1", "fab0", "10.9.0.1"): steady(1), at("gpu2", "fab0", "10.9.0.2"): steady(1)},
        4,
        {"node": "gpu1", "device": "fab0", "address": "10.9.0.1"},
        TWICE.format("gpu1"),
        (({"node": "gpu2", "device": "fab0", "address": "10.9.0.1"}, TWICE.format("gpu2")),),
    ),
    Case(
        "MtuLowered",
        {"node_network_mtu_bytes" + inside(PORT): f"9000 9000 1500x{MANY}"},
        {"node_network_mtu_bytes" + inside(PORT): f"1500 1500 9000x{MANY}"},
        3,
        PORT,
        "fab0 of gpu1 has an MTU of 1500 and had a larger one today; large packets of others get lost",
    ),
    Case(
        "RdmaDeviceGone",
        {
            "node_infiniband_state_id" + inside(CARD): f"4 4 4 stale _x{MANY}",
            'up{node="gpu1",job="node"}': steady(1),
        },
        {  # a node that does not answer says nothing of its devices
            "node_infiniband_state_id" + inside(CARD): f"4 4 4 stale _x{MANY}",
            'up{node="gpu1",job="node"}': steady(0),
        },
        4,
        CARD,
        "mlx5_0 of gpu1 was there today and is not there any more; dmesg there says why",
    ),
]
