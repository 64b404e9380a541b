"""How noisy the gradient is, and what a larger batch is therefore worth. Pure.

A gradient over n samples is the true one plus noise: E|g|² = sqr + sigma²/n. From K gradients of n_i samples each
that together are a batch of B, with S = Σ (n_i/B)|g_i|² and |ḡ|² of their weighted mean (the batch's gradient): S -
|ḡ|² has the mean sigma² (K-1)/B. So workers' own gradients tell sigma² without another pass, also if they are uneven.
As in AdaScale and Pollux: `var` is the variance at the initial batch, and a step with s times the initial batch is
worth (var + sqr) / (var/s + sqr) steps of it.
"""

from dataclasses import dataclass

DECAY = 0.98
"""Of the running means, a step."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Running means; `weight` is how much of them has been seen (it undoes the start at zero)."""

    sqr_sum: float = 0.0
    var_sum: float = 0.0
    weight: float = 0.0

    @property
    def sqr(self) -> float | None:
        """Square norm of the true gradient, as estimated; None before anything was seen. Never negative."""
        return max(self.sqr_sum / self.weight, 0.0) if self.weight else None

    @property
    def var(self) -> float | None:
        """Variance of the gradient at the initial batch."""
        return max(self.var_sum / self.weight, 0.0) if self.weight else None

    def seen(self, sqr: float, var: float) -> "Noise":
        rest = 1 - DECAY
        return Noise(DECAY * self.sqr_sum + rest * sqr, DECAY * self.var_sum + rest * var, DECAY * self.weight + rest)


def estimate(parts_sqr: float, whole_sqr: float, parts: int, batch: int, initial: int) -> tuple[float, float]:
    """`sqr` and `var` from a step: Σ (n_i/B)|g_i|², |ḡ|², K, B and the initial batch. Unbiased: either may be < 0."""
    sigma = (parts_sqr - whole_sqr) * batch / (parts - 1)
    return whole_sqr - sigma / batch, sigma / initial


def gain(noise: Noise, scale: float) -> float:
    """What a step with `scale` times the initial batch is worth, in steps of it. 1 as long as nothing was measured."""
    sqr, var = noise.sqr, noise.var
    if sqr is None or var is None or sqr + var <= 0:
        return 1.0
    return (var + sqr) / (var / scale + sqr)
