"""The shipped figures: what they say, and that anyone can compute them again."""

import runpy
from pathlib import Path

import pytest

from gpuloom.work.measured.figures import SHIPPED, SLICE_MEM_MIB, figures_from_csv, load_figures
from gpuloom.work.measured.share_figures import SHIPPED as SHIPPED_SHARES
from gpuloom.work.measured.share_figures import load_share_figures

ROOT = Path(__file__).resolve().parents[3]


def test_figures_from_a_measurement(sample_path: dict[str, Path]) -> None:
    figures = figures_from_csv(sample_path["miso"] / "mig_batch_latency.csv").workloads
    resnet = figures["resnet 128"]
    assert (resnet.model, resnet.batch, resnet.batch_s, resnet.mem_mib, resnet.restart_s) == (
        "resnet",
        128,
        0.1,
        4864,
        9.0,
    )
    assert resnet.speeds == pytest.approx({"1g.5gb": 0.25, "3g.20gb": 0.625, "7g.40gb": 1.0})
    assert figures["bert 4"].mem_mib == 9856
    assert figures["gizmo 1"].restart_s == 10.0  # nobody measured it


def test_shipped_figures_hang_together() -> None:
    figures = load_figures()
    assert load_figures() is figures
    assert figures.gpu == "A100-40GB"
    assert "MIT" in figures.source
    assert len(figures.workloads) == 32
    for name, workload in figures.workloads.items():
        assert name == workload.name == f"{workload.model} {workload.batch}"
        assert workload.speeds["7g.40gb"] == 1.0
        assert set(workload.speeds) == {p for p, mem_mib in SLICE_MEM_MIB.items() if mem_mib >= workload.mem_mib}
        assert all(0 < speed <= 1.05 for speed in workload.speeds.values())
        assert workload.batch_s > 0
        assert workload.restart_s > 0
    assert sum(figures.mix.values()) == 100
    assert set(figures.mix) <= set(figures.workloads)
    assert set(figures.durations) == {"miso", "philly"}


def test_the_script_gives_the_shipped_file(data_dir: Path) -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "make_figures.py"))
    assert script["make"](data_dir) == SHIPPED.read_text(encoding="utf-8")


def test_shipped_figures_equal_the_measured_ones(data_dir: Path) -> None:
    measured = figures_from_csv(data_dir / "miso" / "mig_batch_latency.csv").workloads
    shipped = load_figures().workloads
    assert list(measured) == list(shipped)
    for name, workload in measured.items():
        assert shipped[name].batch_s == workload.batch_s
        assert shipped[name].speeds == pytest.approx(workload.speeds, abs=5e-5)
        assert (shipped[name].mem_mib, shipped[name].restart_s) == (workload.mem_mib, workload.restart_s)


def test_the_script_gives_the_shipped_shares(data_dir: Path) -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "make_figures.py"))
    assert script["make_shares"](data_dir) == SHIPPED_SHARES.read_text(encoding="utf-8")
    assert all(0 < of["14"] <= of["50"] <= 1.05 for of in load_share_figures().values())
