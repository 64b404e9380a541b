"""What does this workload do on each slice and share of this device, alone and beside others; and which to choose."""
