"""What happens in a step: who computes which samples, and how their gradients become one."""
