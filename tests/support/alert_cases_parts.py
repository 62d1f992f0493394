"""The same of ports, memory and file systems, whose figures are node-exporter's own."""

from __future__ import annotations

from tests.support.alert_cases import MANY, Case, steady

PORT = '{node="gpu1",device="fab0"}'
OF_PORT = {"node": "gpu1", "device": "fab0"}
OF_RDMA = {"node": "gpu1", "device": "mlx5_0", "port": "1"}
OF_NFS = {"node": "gpu1", "device": "head:/home", "fstype": "nfs4", "mountpoint": "/home"}
RDMA = '{node="gpu1",device="mlx5_0",port="1"}'
NFS = '{node="gpu1",device="head:/home",fstype="nfs4",mountpoint="/home"}'
SENSOR = '{node="gpu1",chip="coretemp",sensor="temp1"}'

PARTS = [
    Case(
        "LinkDown",
        {f"node_network_carrier{PORT}": f"1 1 1 0x{MANY}"},
        # never up, and a container's that went
        {
            f"node_network_carrier{PORT}": steady(0),
            'node_network_carrier{node="gpu1",device="veth1a"}': f"1 0x{MANY}",
        },
        4,
        OF_PORT,
        "fab0 of gpu1 has lost its link; look at cable, optic and switch port",
    ),
    Case(
        "LinkFlaps",
        {f"node_network_carrier_down_changes_total{PORT}": f"0x14 3x{MANY}"},
        {f"node_network_carrier_down_changes_total{PORT}": f"0x14 2x{MANY}"},
        16,
        OF_PORT,
        "fab0 of gpu1 has lost its link 3 times in 15 minutes; look at cable, optic and switch port",
    ),
    Case(
        "RdmaPortDown",
        {f"node_infiniband_state_id{RDMA}": f"4 4 4 1x{MANY}"},
        {f"node_infiniband_state_id{RDMA}": steady(1)},
        4,
        OF_RDMA,
        "Port 1 of mlx5_0 on gpu1 is no longer active; ibstat there, and the subnet manager",
    ),
    Case(
        "RdmaPortErrors",
        {
            f"node_infiniband_link_downed_total{RDMA}": f"0x9 1x{MANY}",
            f"node_infiniband_link_error_recovery_total{RDMA}": steady(0),
        },
        {
            f"node_infiniband_link_downed_total{RDMA}": steady(7),
            f"node_infiniband_link_error_recovery_total{RDMA}": steady(3),
        },
        11,
        OF_RDMA,
        "Port 1 of mlx5_0 on gpu1 went down or recovered from errors in the last hour; look at cable and optic",
    ),
    Case(
        "TcpRetransmissions",
        {
            'node_netstat_Tcp_RetransSegs{node="gpu1"}': f"0+12000x{MANY}",
            'node_netstat_Tcp_OutSegs{node="gpu1"}': f"0+600000x{MANY}",
        },
        {
            'node_netstat_Tcp_RetransSegs{node="gpu1"}': f"0+3000x{MANY}",
            'node_netstat_Tcp_OutSegs{node="gpu1"}': f"0+600000x{MANY}",
            # one of ten segments an idle machine sends
            'node_netstat_Tcp_RetransSegs{node="gpu2"}': f"0+1x{MANY}",
            'node_netstat_Tcp_OutSegs{node="gpu2"}': f"0+10x{MANY}",
        },
        11,
        {"node": "gpu1"},
        "gpu1 sends 2% of its TCP segments again",
    ),
    Case(
        "MountSilent",
        {f"node_filesystem_device_error{NFS}": steady(1)},
        {
            f"node_filesystem_device_error{NFS}": steady(0),
            'node_filesystem_device_error{node="gpu1",fstype="fuse.portal",mountpoint="/run/user/0"}': steady(1),
        },
        1,
        OF_NFS,
        "/home of gpu1 (head:/home) does not answer; what reads there hangs",
    ),
    Case(
        "FileSystemReadOnly",
        {f"node_filesystem_readonly{NFS}": f"0 0 1x{MANY}"},
        {f"node_filesystem_readonly{NFS}": steady(1)},
        3,
        OF_NFS,
        "/home of gpu1 can only be read since today; dmesg there says why",
    ),
    Case(
        "MemoryUncorrected",
        {'node_edac_uncorrectable_errors_total{node="gpu1",controller="0"}': f"0 0 2x{MANY}"},
        {'node_edac_uncorrectable_errors_total{node="gpu1",controller="0"}': steady(0)},
        3,
        {"node": "gpu1", "controller": "0"},
        "gpu1 has 2 uncorrectable errors of its memory since it was booted; its BMC names the module",
    ),
    Case(
        "MemoryCorrected",
        {'node_edac_correctable_errors_total{node="gpu1",controller="0"}': f"0x59 60x{MANY}"},
        {'node_edac_correctable_errors_total{node="gpu1",controller="0"}': f"0x59 10x{MANY}"},
        61,
        {"node": "gpu1", "controller": "0"},
        "gpu1 has corrected 60 errors of its memory in an hour; its BMC names the module",
    ),
    Case(
        "SensorHot",
        {
            f"node_hwmon_temp_celsius{SENSOR}": steady(101),
            f"node_hwmon_temp_crit_celsius{SENSOR}": steady(100),
        },
        {
            f"node_hwmon_temp_celsius{SENSOR}": steady(99),
            f"node_hwmon_temp_crit_celsius{SENSOR}": steady(100),
        },
        1,
        {"node": "gpu1", "chip": "coretemp", "sensor": "temp1"},
        "temp1 of coretemp on gpu1 has 101 degrees Celsius, more than its maker allows",
    ),
    Case(
        "OutOfMemory",
        {'node_vmstat_oom_kill{node="gpu1"}': f"0x9 1x{MANY}"},
        {'node_vmstat_oom_kill{node="gpu1"}': steady(4)},
        11,
        {"node": "gpu1"},
        "gpu1 ended a program for want of memory; journalctl -k there names it",
    ),
    Case(
        "NodeRebooted",
        {'node_boot_time_seconds{node="gpu1"}': f"1000x19 5000x{MANY}"},
        {'node_boot_time_seconds{node="gpu1"}': f"1000x19 1001x{MANY}"},  # the clock was set right by a second
        21,
        {"node": "gpu1"},
        "gpu1 was booted in the last minutes; last -x there says how it went down",
    ),
]
