"""How fast does an elastic job progress with so many GPUs and that batch: what is measured, learned and chosen."""
