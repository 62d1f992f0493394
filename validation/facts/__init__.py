"""What a measurement found out that is no sample, as typed objects: one model for each form of facts.

A probe prints these as plain JSON objects, its parser reads them into the model, and everybody after it works with the
model: nobody parses a sentence. `type` in results.jsonl tells which model it is; facts without one are plain scalars.

None means that it is not known, "" or an empty list that it was looked for and is not there. Units are in the names.
"""

from __future__ import annotations

from validation.facts.asbuilt import AsBuiltFacts, CheckOutcome, ConvergedFacts
from validation.facts.burn_in import BurnDevice, BurnFacts
from validation.facts.collectives import (
    CollectiveGap,
    CollectiveOp,
    CollectiveRow,
    CollectivesFacts,
    NcclChannels,
    NcclPath,
)
from validation.facts.compute import ComputeDevice, ComputeFacts, ComputeFigure
from validation.facts.dcgm import DcgmFacts, DcgmResult, DcgmTest
from validation.facts.driver import DriverLibraries
from validation.facts.gpu_container import ContainerGpus, GpuContainerFacts
from validation.facts.gpu_copies import CopyGpu, GpuCell, GpuCopy, GpuCopyFacts, GpuPeer, GpuWait
from validation.facts.gpu_health import GpuHealthFacts, GpuReading, GpuState
from validation.facts.gpu_load import AllAtOnce, GpuLoadFacts, LoadGpu, LoadNode, NodeCopy
from validation.facts.gpu_tools import GpuTool, GpuToolsFacts, ToolCell
from validation.facts.gpu_watch import GpuWatch, Range
from validation.facts.ib_fabric import IbErrors, IbFabricFacts, IbLink, IbPort, IbRate, SubnetManager
from validation.facts.kernel_log import KernelLog, XidLine
from validation.facts.node import (
    COMPONENTS,
    Components,
    Drift,
    FabricPort,
    LibraryEnv,
    NodeFacts,
    OwnedDevice,
    Ports,
    RdmaDevice,
    Setting,
)
from validation.facts.node_state import Address, Busy, FileSystem, NameServer, NodeState
from validation.facts.nvlink import NvGpu, NvLink, joined
from validation.facts.pci import DISTANCES, Distance, NumaNode, PciCard, PciLink, PciPort, Uplink
from validation.facts.pool_use import PoolClass, PoolRequest, PoolUseFacts
from validation.facts.rdma_ports import RDMA_MTUS, Gid, Memlock, Pause, Policy, Qos, RdmaPort, RdmaPortsFacts
from validation.facts.remoting import (
    Attempt,
    CopyDevice,
    CopyFacts,
    CopyPair,
    FractionFacts,
    GpuPart,
    IsolationFacts,
    Remoting,
)
from validation.facts.remoting_infer import InferFacts, InferRun
from validation.facts.remoting_move import MoveFacts
from validation.facts.remoting_neighbours import (
    BootIds,
    NeighbourEnd,
    NeighbourFacts,
    NoRebootFacts,
    PartsChange,
    TenantRun,
)
from validation.facts.remoting_shares import SharesFacts, ShareTurn, TenantRate
from validation.facts.remoting_train import CallCosts, RemoteTrainFacts, TrainRun
from validation.facts.remoting_unchanged import ClientState, UnchangedFacts, WayRun
from validation.facts.remoting_worlds import World, WorldsFacts
from validation.facts.soak_fabric import SoakFabricFacts, SoakSession
from validation.facts.switch_load import SwitchLoadFacts, SwitchPort, SwitchSession
from validation.facts.training import Carrier, TrainingFacts, Turn, TurnsFacts
from validation.facts.training_long import Epoch, LongTrainingFacts
from validation.facts.tuning import Governor, IdleState, ServiceLimit, Sysctl, Tuning

__all__ = [
    "COMPONENTS",
    "DISTANCES",
    "RDMA_MTUS",
    "Address",
    "AllAtOnce",
    "AsBuiltFacts",
    "Attempt",
    "BootIds",
    "BurnDevice",
    "BurnFacts",
    "Busy",
    "CallCosts",
    "Carrier",
    "CheckOutcome",
    "ClientState",
    "CollectiveGap",
    "CollectiveOp",
    "CollectiveRow",
    "CollectivesFacts",
    "Components",
    "ComputeDevice",
    "ComputeFacts",
    "ComputeFigure",
    "ContainerGpus",
    "ConvergedFacts",
    "CopyDevice",
    "CopyFacts",
    "CopyGpu",
    "CopyPair",
    "DcgmFacts",
    "DcgmResult",
    "DcgmTest",
    "Distance",
    "Drift",
    "DriverLibraries",
    "Epoch",
    "FabricPort",
    "FileSystem",
    "FractionFacts",
    "Gid",
    "Governor",
    "GpuCell",
    "GpuContainerFacts",
    "GpuCopy",
    "GpuCopyFacts",
    "GpuHealthFacts",
    "GpuLoadFacts",
    "GpuPart",
    "GpuPeer",
    "GpuReading",
    "GpuState",
    "GpuTool",
    "GpuToolsFacts",
    "GpuWait",
    "GpuWatch",
    "IbErrors",
    "IbFabricFacts",
    "IbLink",
    "IbPort",
    "IbRate",
    "IdleState",
    "InferFacts",
    "InferRun",
    "IsolationFacts",
    "KernelLog",
    "LibraryEnv",
    "LoadGpu",
    "LoadNode",
    "LongTrainingFacts",
    "Memlock",
    "MoveFacts",
    "NameServer",
    "NcclChannels",
    "NcclPath",
    "NeighbourEnd",
    "NeighbourFacts",
    "NoRebootFacts",
    "NodeCopy",
    "NodeFacts",
    "NodeState",
    "NumaNode",
    "NvGpu",
    "NvLink",
    "OwnedDevice",
    "PartsChange",
    "Pause",
    "PciCard",
    "PciLink",
    "PciPort",
    "Policy",
    "PoolClass",
    "PoolRequest",
    "PoolUseFacts",
    "Ports",
    "Qos",
    "Range",
    "RdmaDevice",
    "RdmaPort",
    "RdmaPortsFacts",
    "RemoteTrainFacts",
    "Remoting",
    "ServiceLimit",
    "Setting",
    "ShareTurn",
    "SharesFacts",
    "SoakFabricFacts",
    "SoakSession",
    "SubnetManager",
    "SwitchLoadFacts",
    "SwitchPort",
    "SwitchSession",
    "Sysctl",
    "TenantRate",
    "TenantRun",
    "ToolCell",
    "TrainRun",
    "TrainingFacts",
    "Tuning",
    "Turn",
    "TurnsFacts",
    "UnchangedFacts",
    "Uplink",
    "WayRun",
    "World",
    "WorldsFacts",
    "XidLine",
    "joined",
]
