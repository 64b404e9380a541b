"""The self-test's small parts: what is hidden from a transcript, how calls are written down, where the file goes."""

import ctypes
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuloom.errors import InputError
from gpuloom.gpus.host.selftest.privacy import Pseudonyms, names_here
from gpuloom.gpus.host.selftest.recording import RecordedNvml, Recorder
from gpuloom.gpus.host.selftest.transcript import Place, write_elsewhere

GPU = "GPU-8a2b3c4d-1111-2222-3333-0123456789ab"
MIG = "MIG-8a2b3c4d-1111-2222-3333-0123456789ab"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"{GPU} and {MIG}, {GPU}", "GPU-1 and MIG-1, GPU-1"),
        (f"of MIG-{GPU}/1/0 then {GPU}", "of MIG-1 then GPU-1"),
        ("process 4711 (bob's (job)) runs on 3g.20gb@4", "process pid-1 runs on 3g.20gb@4"),
        ("process 4711 and process 12, process 4711", "process pid-1 and process pid-2, process pid-1"),
        ("/var/lib/gpuloom/mps/gpu-12ab/pipe is 3 bytes too long", "(a path) is 3 bytes too long"),
        ("ask atlas.lab or atlas: ada has it, /home/ada/x.", "ask (a name) or (a name): (a name) has it, (a path)"),
        ("stop dcgm-exporter (process 9), then run it", "stop process pid-1, then run it"),
        ("NVIDIA's mig-parted is running (process 77)", "NVIDIA's mig-parted is running (process pid-1)"),
        ("sms/memory of 1/0, adapter", "sms/memory of 1/0, adapter"),
    ],
)
def test_what_a_sentence_must_not_tell(text: str, hidden: str) -> None:
    names = Pseudonyms(("atlas", "atlas.lab", "ada"))
    assert names.sentence(text) == hidden
    assert names.sentence(hidden) == hidden


def test_process_ids_in_an_answer_of_words() -> None:
    names = Pseudonyms()
    names.pid(4711)
    assert names.words("get_server_status 4711") == "get_server_status pid-1"
    assert names.words("47110\n4711\n") == "47110 pid-1"


def test_names_that_everybody_has_are_no_secret() -> None:
    assert "root" not in names_here({"USER": "root", "SUDO_USER": "ada", "LOGNAME": ""})
    assert "ada" in names_here({"USER": "root", "SUDO_USER": "ada"})


class NvmlError(Exception):
    value = 19


class Info(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("id", ctypes.c_uint),
        ("busId", ctypes.c_char * 8),
        ("name", ctypes.c_char * 96),
    )


class struct_c_nvmlDevice_t(ctypes.Structure):  # noqa: N801 (as in pynvml)
    pass


def in_use(*_: object) -> None:
    raise NvmlError


def fill(_: object, count: Any) -> None:
    count._obj.value = 3


def test_calls_are_written_down_as_json_without_handles() -> None:
    handle = ctypes.cast(0x1234, ctypes.POINTER(struct_c_nvmlDevice_t))
    module = SimpleNamespace(
        NVMLError=NvmlError,
        NVML_COUNT=18,
        nvmlFill=fill,
        nvmlInfo=lambda _, version=1: Info(7, version, b"0:17", GPU.encode()),
        nvmlList=lambda _: [SimpleNamespace(pid=77, usedGpuMemory=None)],
        nvmlDestroy=in_use,
    )
    recorder = Recorder(Pseudonyms())
    nvml = RecordedNvml(module, recorder)
    assert nvml.NVML_COUNT == 18
    nvml.nvmlFill(handle, ctypes.byref(ctypes.c_uint(0)))
    assert nvml.nvmlInfo(handle, version=2).id == 2
    nvml.nvmlList(handle)
    for _ in range(2):
        recorder.will_repeat(since=3)
        with pytest.raises(NvmlError):
            nvml.nvmlDestroy(handle)
    calls = recorder.take()
    assert [(call.call, call.args, call.code, call.answer, call.waiting) for call in calls] == [
        ("nvmlFill", ["<Device>", 3], 0, None, False),
        ("nvmlInfo", ["<Device>", 2], 0, {"id": 2, "name": "GPU-1"}, False),
        ("nvmlList", ["<Device>"], 0, [{"pid": "pid-1", "usedGpuMemory": None}], False),
        ("nvmlDestroy", ["<Device>"], 19, None, True),
        ("nvmlDestroy", ["<Device>"], 19, None, False),
    ]
    assert recorder.take() == []
    json.dumps([call.args for call in calls])


def test_a_full_disk_at_the_end_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "room"))
    (tmp_path / "room").mkdir()
    place = Place(tmp_path / "t.json")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, place._descriptor)
    os.close(full)
    where = place.write("all of it")
    assert where is not None
    assert (where.parent, where.read_text()) == (tmp_path / "room", "all of it")
    assert not (tmp_path / "t.json").exists()
    assert write_elsewhere("all of it", (tmp_path / "no", tmp_path / "t.json")) is None


def test_a_file_that_cannot_be_made_is_refused_before(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        Place(tmp_path / "nowhere" / "t.json")


def test_a_place_is_new_and_is_given_up(tmp_path: Path) -> None:
    place = Place(tmp_path / "t.json")
    with pytest.raises(InputError, match="is there already"):
        Place(tmp_path / "t.json")
    place.give_up()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError):
        Place(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
