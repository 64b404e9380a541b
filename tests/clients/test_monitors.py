"""nvitop and gpustat, as they are on PyPI, show what the stand-in's hardware is."""

import json
import re

from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.layouts import parse
from tests.clients.conftest import Client
from tests.standin.hardware import Hardware

A100 = MODELS["A100-40GB"]
CUT = parse(A100, "3g.20gb@4,2g.10gb@0,1g.5gb@2")
MIB = 2**20


def test_nvitop_knows_the_gpus_and_the_mig_devices(hardware: Hardware, client: Client) -> None:
    hardware.install("A100-40GB+mig", "H100-SXM-80GB", "T4-16GB")
    assert hardware.worker().apply(CUT)["reached"]
    with hardware.job(hardware.uuids()["3g.20gb@4"]) as job:
        a100, h100, t4 = json.loads(client("nvitop_devices.py"))
    assert [gpu["uuid"] for gpu in (a100, h100, t4)] == [hardware.show(gpu)["uuid"] for gpu in range(3)]
    assert [gpu["name"] for gpu in (a100, h100, t4)] == ["NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "Tesla T4"]
    assert [gpu["bus_id"] for gpu in (a100, h100, t4)] == [f"00000000:1{gpu}:00.0" for gpu in range(3)]
    assert [gpu["compute_capability"] for gpu in (a100, h100, t4)] == [[8, 0], [9, 0], [7, 5]]
    assert [gpu["mig_mode"] for gpu in (a100, h100, t4)] == ["Enabled", "Disabled", "N/A"]
    assert [gpu["memory_total"] for gpu in (a100, h100, t4)] == [40960 * MIB, 81559 * MIB, 15360 * MIB]
    parts = {f"{part['profile']}@{part['start']}": part["computes"][0]["uuid"] for part in hardware.show()["instances"]}
    assert {part["uuid"] for part in a100["parts"]} == set(parts.values())
    [used] = [part for part in a100["parts"] if part["processes"]]
    assert (used["uuid"], used["processes"]) == (parts["3g.20gb@4"], [job.pid])
    assert used["memory_total"] == A100.by_name["3g.20gb"].mem_mib * MIB
    assert h100["parts"] == t4["parts"] == []


def test_nvitop_on_a_terminal_shows_each_of_them(hardware: Hardware, client: Client) -> None:
    hardware.install("A100-40GB+mig", "T4-16GB")
    assert hardware.worker().apply(CUT)["reached"]
    with hardware.job(hardware.show(1)["uuid"]) as job:
        shown = client("nvitop", "--once")
    assert re.findall(r"(\d)  (\S.*?) +Off │ (\S+) ", shown) == [
        ("0", "A100-SXM4-40GB", "00000000:10:00.0"),
        ("1", "Tesla T4", "00000000:11:00.0"),
    ]
    assert sorted(re.findall(r"(\dg\.\d+gb) @ GI", shown)) == ["1g.5gb", "2g.10gb", "3g.20gb"]
    assert re.search(rf"│ +1 +{job.pid} ", shown)


def test_nvitop_survives_a_gpu_that_is_lost(hardware: Hardware, client: Client) -> None:
    hardware.install("A100-40GB", "T4-16GB")
    hardware.ctl("lose", "0")
    assert "Tesla T4" in client("nvitop", "--once")


def test_gpustat_shows_the_gpus_and_who_is_on_them(hardware: Hardware, client: Client) -> None:
    hardware.install("A100-40GB", "T4-16GB")
    with hardware.job(hardware.show(1)["uuid"]) as job:
        shown = json.loads(client("gpustat", "--json"))
    assert shown["driver_version"] == "580.65.06"
    gpus = shown["gpus"]
    assert [gpu["name"] for gpu in gpus] == ["NVIDIA A100-SXM4-40GB", "Tesla T4"]
    assert [gpu["uuid"] for gpu in gpus] == [hardware.show(0)["uuid"], hardware.show(1)["uuid"]]
    assert [gpu["memory.total"] for gpu in gpus] == [40960, 15360]
    assert [[process["pid"] for process in gpu["processes"]] for gpu in gpus] == [[], [job.pid]]
    # The world does not know what a GPU is like while it runs, and nothing is made up.
    assert {gpu[figure] for gpu in gpus for figure in ("temperature.gpu", "utilization.gpu", "power.draw")} == {None}
