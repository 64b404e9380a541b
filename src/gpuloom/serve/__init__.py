"""From a provisioning plan to running Triton servers: deploy, watch, correct, take down; and the load to test it."""
