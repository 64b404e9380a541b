"""Models behind Triton servers, measured: asked at shares, batches and beside each other; what becomes a profile."""
