"""Slurm's answers for tests of leases. Constructed from the documentation of 22.05 and 24.11, not recorded."""

COMMENT = (
    '{"elastic-ai-lease":1,"clients":["10.77.1.12","10.78.1.12"],"host":"client1","mode":"run","what":"1/2 GPU",'
    '"ttl_s":0,"memory_mib":0}'
)


def job_text(
    job: int = 41,
    name: str = "elastic-ai-lease",
    comment: str = COMMENT,
    gres: str = "shard:v100:70(IDX:2)",
    node: str = "gpu1",
    state: str = "RUNNING",
    het: str = "",
    workdir: str = "/",
    user: str = "alice(1001)",
    end: str = "2026-11-21T16:00:00",
    limit: str = "01:00:00",
) -> str:
    """`scontrol show job -d` of one job."""
    details = f"     Nodes={node} CPU_IDs=0 Mem=16 GRES={gres}\n" if gres else ""
    nodes = node if gres else "(null)"
    return (
        f"JobId={job} {het}JobName={name}\n"
        f"   UserId={user} GroupId=alice(1001) MCS_label=N/A\n"
        "   Priority=4294901757 Nice=0 Account=(null) QOS=normal\n"
        f"   JobState={state} Reason=None Dependency=(null)\n"
        "   Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n"
        "   DerivedExitCode=0:0\n"
        f"   RunTime=00:00:10 TimeLimit={limit} TimeMin=N/A\n"
        "   SubmitTime=2026-11-21T15:00:00 EligibleTime=2026-11-21T15:00:00\n"
        "   AccrueTime=2026-11-21T15:00:00\n"
        f"   StartTime=2026-11-21T15:00:00 EndTime={end} Deadline=N/A\n"
        "   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-21T15:00:00 Scheduler=Main\n"
        "   Partition=v100 AllocNode:Sid=client1:812\n"
        "   ReqNodeList=(null) ExcNodeList=(null)\n"
        f"   NodeList={nodes}\n"
        f"   BatchHost={node}\n"
        "   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n"
        "   TRES=cpu=1,mem=16M,node=1,billing=70,gres/shard=70\n"
        "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n"
        "   JOB_GRES=shard:v100:70\n"
        f"{details}"
        "   MinCPUsNode=1 MinMemoryNode=16M MinTmpDiskNode=0\n"
        "   Features=(null) DelayBoot=00:00:00\n"
        "   OverSubscribe=YES Contiguous=0 Licenses=(null) Network=(null)\n"
        "   Command=(null)\n"
        f"   WorkDir={workdir}\n"
        f"   Comment={comment} \n"
        "   StdErr=/dev/null\n"
        "   StdIn=/dev/null\n"
        "   StdOut=/dev/null\n"
        "   Power=\n"
        "   TresPerNode=gres:shard:70\n"
        "\n"
    )


def node_text(
    name: str = "gpu1", state: str = "MIXED", gres: str = "gpu:v100:4,shard:v100:560", reason: str = ""
) -> str:
    """`scontrol show node` of one node."""
    why = f"   Reason={reason} [root@2026-11-21T15:00:00]\n" if reason else ""
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=2 \n"
        "   CPUAlloc=1 CPUEfctv=2 CPUTot=2 CPULoad=0.40\n"
        "   AvailableFeatures=(null)\n"
        "   ActiveFeatures=(null)\n"
        f"   Gres={gres}\n"
        f"   NodeAddr=10.77.1.13 NodeHostName={name} Version=22.05.8\n"
        "   OS=Linux 6.1.0 #1 SMP Debian \n"
        "   RealMemory=22784 AllocMem=16 FreeMem=20000 Sockets=1 Boards=1\n"
        f"   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n"
        "   Partitions=all,v100 \n"
        "   BootTime=2026-11-21T14:00:00 SlurmdStartTime=2026-11-21T14:00:10\n"
        f"{why}"
        "\n"
    )
