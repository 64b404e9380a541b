"""Services with latency promises: which GPUs, shares, batches and replicas keep them, at least cost."""
