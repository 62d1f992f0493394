"""Programs that use a lease's GPUs by the CUDA driver API alone: `elastic-ai-copybench`, `elastic-ai-train`."""
