"""What nvitop's own interface for programs says of every GPU and MIG device, as JSON."""

import json
from typing import Any

from nvitop import Device


def shown(device: Any) -> dict[str, Any]:
    return {
        "uuid": device.uuid(),
        "name": device.name(),
        "memory_total": device.memory_total(),
        "processes": sorted(device.processes()),
    }


def main() -> None:
    gpus = [
        {
            **shown(gpu),
            "bus_id": gpu.bus_id(),
            "mig_mode": str(gpu.mig_mode()),
            "compute_capability": gpu.cuda_compute_capability(),
            "parts": [shown(part) for part in gpu.mig_devices()],
        }
        for gpu in Device.all()
    ]
    print(json.dumps(gpus))


main()
