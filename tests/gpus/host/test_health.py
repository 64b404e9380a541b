"""What is held against a GPU: what the driver and the kernel say of it that is new."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuloom.gpus.host.health import Health, Xid, kernel_log, what_is_new, xids_of
from tests.standin.hardware import Hardware

WELL = Health(ecc_errors=0, pages_pending=False, remap_failed=False, recovery=0)
LOG = """\
6,900,1,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65.06
4,901,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
4,902,3,-;NVRM: Xid (PCI:0000:af:00): 13, pid=4711, Graphics Exception
4,903,4,-;NVRM: Xid (PCI:00000000:3B:00): 48, DBE (double bit error)
4,904,5,-;NVRM: Xid (PCI:0001:3b:00): 94, contained
"""


def codes(log: str, bus_id: str) -> list[int]:
    return [xid.code for xid in xids_of(log, bus_id)]


def xids(*codes: int, first: int = 1) -> tuple[Xid, ...]:
    return tuple(Xid(first + number, code) for number, code in enumerate(codes))


def test_xids_are_told_apart_by_the_bus_however_it_is_written() -> None:
    assert codes(LOG, "00000000:3B:00.0") == [79, 48]
    assert codes(LOG, "0000:af:00.0") == [13]
    assert codes(LOG, "00000001:3B:00.0") == [94]
    assert xids_of(LOG, "0000:00:00.0") == xids_of("", "0000:3b:00.0") == xids_of(LOG, "nonsense") == ()


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (WELL, None),
        (Health(), None),
        (replace(WELL, ecc_errors=1), "1 memory error could not be corrected"),
        (replace(WELL, pages_pending=True), "parts of its memory wait to be retired at a reset"),
        (replace(WELL, remap_failed=True), "rows of its memory could not be remapped"),
        (replace(WELL, recovery=1), "the driver says that it has to be reset"),
        (replace(WELL, recovery=99), None),
        (replace(WELL, xids=xids(79)), "the driver reported Xid 79"),
        (replace(WELL, xids=xids(31, 13, 43, 45)), None),
        (replace(WELL, xids=xids(31, 48)), "the driver reported Xid 48"),
    ],
)
def test_what_counts_against_a_gpu_that_was_well(now: Health, why: str | None) -> None:
    assert what_is_new(WELL, now) == why


def test_what_it_came_with_does_not_count() -> None:
    before = Health(ecc_errors=3, pages_pending=True, remap_failed=True, recovery=1, xids=xids(79, 48))
    assert what_is_new(before, before) is None
    assert what_is_new(before, replace(before, ecc_errors=5)) == "2 memory errors could not be corrected"
    assert what_is_new(before, replace(before, xids=xids(79, 48, 92))) == "the driver reported Xid 92"


def test_a_log_that_has_lost_its_beginning_and_a_driver_that_was_loaded_anew_hide_nothing() -> None:
    before = replace(WELL, ecc_errors=5, xids=xids(31, 31, 31))
    assert what_is_new(before, replace(WELL, ecc_errors=5, xids=xids(31, 79, first=3))) == "the driver reported Xid 79"
    assert what_is_new(before, replace(before, ecc_errors=3)) == "3 memory errors could not be corrected"
    assert what_is_new(before, replace(before, ecc_errors=0)) is None


def test_the_log_of_the_kernel_is_read_where_that_may_be(tmp_path: Path) -> None:
    assert kernel_log(tmp_path) == ""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kmsg").write_text(LOG)
    assert codes(kernel_log(tmp_path), "0000:3b:00.0") == [79, 48]


@pytest.mark.parametrize(
    ("model", "ecc_errors", "pages_pending", "remap_failed"),
    [("A100-40GB", 0, False, False), ("T4-16GB", 0, False, None), ("unknown", None, None, None)],
)
def test_each_board_tells_what_it_has(
    hardware: Hardware, model: str, ecc_errors: int | None, pages_pending: bool | None, remap_failed: bool | None
) -> None:
    hardware.install(model)
    told = hardware.worker().ask("health")
    assert (told["ecc_errors"], told["pages_pending"], told["remap_failed"]) == (
        ecc_errors,
        pages_pending,
        remap_failed,
    )


def test_errors_are_seen_as_they_come(hardware: Hardware) -> None:
    hardware.install("A100-40GB", "T4-16GB")
    worker = hardware.worker()
    hardware.ctl("ecc", "0", "2")
    hardware.ctl("retired", "1")
    assert worker.ask("health")["ecc_errors"] == 2
    assert worker.ask("health", gpu=1)["pages_pending"] is True
    hardware.ctl("lose", "0")
    assert "lost" in worker.ask("health")["failed"]
