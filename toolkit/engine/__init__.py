"""The reference engine: the CUDA driver API over TCP or RDMA verbs, and the emulated devices of a lab.

Not for production: it has no CUDA runtime. `toolkit engine build` makes the artefact that the roles install.

Artefact (tar.gz, paths inside):
    engine.json                 {"engine": "reference", "release": R, "protocol": "6", "glibc": "2.34", "machine": ...,
                                 "transports": ["tcp", "verbs"]}
    bin/elastic-ai-refserver    the server
    lib/libcuda.so.1            the client's library

Server, one instance per lease, on the GPU host:
    elastic-ai-refserver --bind ADDR --port N --port-file F --token-file F --allow IP[,IP...]
                         [--memory-limit BYTES] [--context-bytes BYTES] [--idle-timeout S] --report-fd N
                         [--transport tcp|verbs|tcp,verbs]
    --port 0            any free port; --port-file gets it as decimal text and a newline, in one rename
    --token-file        first line is the token, 16 to 255 characters; read once at start, never shown
    --memory-limit      per device, over all connections of this instance; cuMemGetInfo and totalMem show it
    --context-bytes     what a context takes of a device (0; toolkit/lease/machine/ measures it), in that limit
    --idle-timeout      ends by itself (exit 0) after S seconds without any connection
    --report-fd         a JSON line per event: listening {port, pid}, client {peer, pid}, gone {pid, status},
                        refused {peer, why}, broken {peer, op, why}, verbs {peer, pid, device, port}, stopped {why};
                        never blocks the server
    --transport         what clients may have (tcp). With verbs ADDR must be an RDMA port's (RoCE v2), else exit 1
    environment         CUDA_VISIBLE_DEVICES=GPU-uuid,... (and CUDA_MPS_*): the devices it serves. It loads the host's
                        libcuda.so.1 by the ordinary search; with emulated devices CUDA_VISIBLE_DEVICES works as well.
    SIGTERM             ends all connections, removes the port file, exit 0. Exit 2: arguments; 1: anything else.
    sandbox             needs: its port, read of the token file, write of the port file's folder, with emulated devices
                        read-write /dev/shm/elastic-ai-devices and read /etc/elastic-ai-emulated/gpus.json.
                        for verbs read-write /dev/infiniband/uverbs*, /sys and LimitMEMLOCK of 4 MiB and more.
                        Forks one child per connection that shows the token; a child has up to 6 threads beside its
                        own, and dies with its connection, one of its data connections or its parent.

Client, any CUDA driver API program:
    LD_LIBRARY_PATH=/opt/elastic-ai/engine/current/lib
    ELASTIC_AI_SERVERS=host:port[,host:port...]     devices joined in that order
    ELASTIC_AI_TOKEN_FILE=path                      a line per server, or one line for all
    ELASTIC_AI_TRANSPORT=tcp|verbs                  (tcp); by that or not at all
    Errors go to stderr as one sentence, and to the caller as CUDA errors: 803 releases differ; 46 token refused, not
    reachable within 5 s, or connection lost.
    `elasticAiServerInfo(char *json, size_t size)`, exported beside the driver API: what each server reports of itself.

Emulated devices in a lab: /opt/elastic-ai-emulated/lib/{libcuda.so.1,libnvidia-ml.so.1} on GPU servers, found through
ld.so.conf.d, described by /etc/elastic-ai-emulated/gpus.json. Processes and memory of the node: through NVML.
"""
