"""How busy a GPU, or one instance of it, is: NVML's GPM counters, which Hopper and later have. None elsewhere.

A figure is the change between two samples. They are taken about once a second, and those that lie in the stretch that
counts are averaged. Written from NVIDIA's documentation; not yet run on such a GPU.
"""

from contextlib import suppress
from typing import Any

from gpuloom.measure.campaign.activity import Activity, mean_of
from gpuloom.measure.steps import Window

EVERY_S = 1.0

METRICS = {"gract": 1, "smact": 2, "smocc": 3, "drama": 10}
"""NVML's numbers: graphics (compute) engine, SMs, warps in them, memory bandwidth."""


class Gpm:
    def __init__(self, nvml: Any, handle: Any, instance_id: int | None) -> None:
        self._nvml, self._handle, self._instance_id = nvml, handle, instance_id
        self._last: Any = None
        self._last_s = 0.0
        self._seen: list[tuple[float, dict[str, float]]] = []
        self.here = self._is_here()

    def _is_here(self) -> bool:
        if self._handle is None:
            return False
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice)
        except (self._nvml.NVMLError, AttributeError):
            return False

    def look(self, now_s: float) -> None:
        if not self.here or (self._last is not None and now_s - self._last_s < EVERY_S):
            return
        try:
            sample = self._sample()
            if self._last is not None:
                self._seen.append((now_s, self._between(self._last, sample)))
                self._nvml.nvmlGpmSampleFree(self._last)
            self._last, self._last_s = sample, now_s
        except self._nvml.NVMLError:  # it may not be allowed to this user: then there are none
            self.here = False

    def _sample(self) -> Any:
        sample = self._nvml.nvmlGpmSampleAlloc()
        try:
            if self._instance_id is None:
                self._nvml.nvmlGpmSampleGet(self._handle, sample)
            else:
                self._nvml.nvmlGpmMigSampleGet(self._handle, self._instance_id, sample)
        except self._nvml.NVMLError:
            self._nvml.nvmlGpmSampleFree(sample)
            raise
        return sample

    def _between(self, before: Any, after: Any) -> dict[str, float]:
        wish = self._nvml.c_nvmlGpmMetricsGet_t()
        wish.version, wish.numMetrics = self._nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        wish.sample1, wish.sample2 = before, after
        for at, number in enumerate(METRICS.values()):
            wish.metrics[at].metricId = number
        self._nvml.nvmlGpmMetricsGet(wish)
        told = zip(METRICS, wish.metrics[: len(METRICS)], strict=True)
        return {name: float(metric.value) / 100 for name, metric in told if metric.nvmlReturn == 0}

    def figures(self, within: Window | None) -> Activity:
        if within is None:
            return Activity()
        # A figure is of the second before it.
        return mean_of(told for at_s, told in self._seen if within.begin_s + EVERY_S <= at_s <= within.end_s)

    def close(self) -> None:
        if self._last is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlGpmSampleFree(self._last)
            self._last = None
