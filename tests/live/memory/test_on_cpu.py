"""On a CPU device, for real: what jobs showed in one run is what the next one is told, and it does not probe."""

import json

from tests.live.test_cpu_run import Box
from tests.live.test_cpu_run import box as box


def test_the_second_run_does_not_probe(box: Box) -> None:
    for name in "abc":
        box.work(name, 60)
    box.run("static:3,2,2")
    (row,) = json.loads((box.hardware.folder / "state" / "memory" / "memory.json").read_text())["seen"]
    (device,) = box.cpu_driver().devices
    assert row["model"] == device.model.name
    assert {*row["rates"]} == {"2c", "3c"}
    assert row["workload"].endswith("work.py 60"), "a command has no other name"
    first, box.state = box.state, box.folder / "second"
    box.run("miso", level_s=20.0)
    (told,) = box.events("SeenEarlier")
    assert [{*one["rates"]} for one in told["seen"]] == [{"2c", "3c"}]
    assert box.events("GpuProbed") == []
    box.state, box.options = box.folder / "third", ["--memory", "none"]
    box.run("miso", level_s=20.0)
    assert box.events("GpuProbed")
    box.state = first
    box.check_left_as_found()
