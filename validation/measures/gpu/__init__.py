"""GPUs: health, copies between them and host memory, load, tools, containers, DCGM."""
