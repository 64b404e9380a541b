"""The traces of other managers, on a pretended file system with real sockets; no GPU is involved."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuloom.gpus.host.around.managers import OVERRIDABLE, other_manager

NOTHING: dict[str, str] = {}
PLUGIN = "var/lib/kubelet/device-plugins/nvidia-gpu.sock"


@pytest.mark.parametrize(
    ("trace", "who"),
    [
        ("etc/systemd/system/multi-user.target.wants/nvidia-mig-manager.service", "MIG manager is enabled"),
        ("var/lib/kubelet/device-plugins/nvidia-gpu.sock", "device plugin"),
        ("var/lib/kubelet/plugins/gpu.nvidia.com", "DRA driver"),
    ],
)
def test_traces_of_other_managers(tmp_path: Path, trace: str, who: str) -> None:
    assert other_manager(tmp_path) is None
    (tmp_path / trace).parent.mkdir(parents=True)
    (tmp_path / trace).touch()
    assert who in str(other_manager(tmp_path))


def test_other_managers_that_run(tmp_path: Path) -> None:
    for pid, name in ((10, "python3"), (11, "gpu-kubelet-plu")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/comm").write_text(f"{name}\n")
    assert other_manager(tmp_path) == "the Kubernetes DRA driver is running (process 11)"


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a socket's path has to be."""
    return tmp_path_factory.mktemp("r")


@contextmanager
def listening(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        yield


def process(root: Path, pid: int, comm: str, cmdline: str = "", environ: str = "") -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "cmdline").write_text(cmdline.replace(" ", "\0") + "\0")
    (folder / "environ").write_text(environ + "\0")


def test_a_socket_where_somebody_listens_is_no_stale_trace(short: Path) -> None:
    """Whoever was told of a stale one by name does not step on the plugin once it is back."""
    known = {"GPULOOM_OVERRIDE": "device-plugin"}
    with listening(short / PLUGIN):
        assert str(other_manager(short, known)).startswith("NVIDIA's Kubernetes device plugin hands out")
    # The socket stays behind in the file system, as it does after a plugin that was killed.
    refused = str(other_manager(short, NOTHING))
    assert "where nobody listens now" in refused
    assert refused.endswith("set GPULOOM_OVERRIDE=device-plugin")
    assert other_manager(short, known) is None


def test_what_is_overridden_is_named(short: Path) -> None:
    plugin, driver = short / PLUGIN, short / "var/lib/kubelet/plugins/gpu.nvidia.com"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    driver.mkdir(parents=True)
    assert "GPULOOM_OVERRIDE=dra-driver" in str(other_manager(short, {"GPULOOM_OVERRIDE": "device-plugin"}))
    assert other_manager(short, {"GPULOOM_OVERRIDE": "device-plugin, dra-driver"}) is None
    misspelt = str(other_manager(short, {"GPULOOM_OVERRIDE": "plugin"}))
    assert misspelt == f"GPULOOM_OVERRIDE names plugin; accepted are {', '.join(OVERRIDABLE)}"
    with listening(driver / "dra.sock"):
        both = {"GPULOOM_OVERRIDE": "device-plugin dra-driver"}
        assert "the Kubernetes DRA driver hands out" in str(other_manager(short, both))


@pytest.mark.parametrize(
    ("command", "at_work"),
    [
        ("nvidia-mig-parted apply -f a.yaml -c all-balanced", True),
        ("nvidia-mig-parted", True),
        ("nvidia-mig-parted -d export", False),
        ("nvidia-mig-parted assert -f apply.yaml -c x", False),
    ],
)
def test_mig_parted_at_work_is_believed_whatever_is_overridden(tmp_path: Path, command: str, at_work: bool) -> None:
    process(tmp_path, 31, "nvidia-mig-part", command)
    found = other_manager(tmp_path, {"GPULOOM_OVERRIDE": ",".join(OVERRIDABLE)})
    assert found == ("NVIDIA's mig-parted is running (process 31)" if at_work else None)


GRES = "NodeName=gpu[1-4] Name=gpu Type=a100 File=/dev/nvidia0\n"


@pytest.mark.parametrize(
    ("folder", "command", "environ", "text", "has_gpus"),
    [
        ("etc/slurm", "slurmd -D", "", GRES, True),
        ("etc/slurm", "slurmd -D", "", "autodetect=NVML\n", True),
        ("etc/slurm", "slurmd -D", "", "# AutoDetect=nvml\nName=license Count=3\n", False),
        ("etc/slurm", "slurmd -D", "", "", False),
        ("run/slurm/conf", "slurmd --conf-server head", "", "Name=mps Count=100\n", True),
        ("srv/conf", "slurmd -f /srv/conf/slurm.conf", "", GRES, True),
        ("srv/conf", "slurmd", "SLURM_CONF=/srv/conf/slurm.conf", GRES, True),
        ("srv/conf", "slurmd", "", GRES, False),
    ],
)
def test_slurm_has_the_gpus_where_its_files_say_so(
    tmp_path: Path, folder: str, command: str, environ: str, text: str, has_gpus: bool
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "gres.conf").write_text(text)
    assert other_manager(tmp_path, NOTHING) is None  # nobody reads them
    process(tmp_path, 44, "slurmd", command, environ)
    found = other_manager(tmp_path, NOTHING)
    assert (found is not None) == has_gpus
    if found is not None:
        assert f"(slurmd, process 44; {tmp_path / folder / 'gres.conf'})" in found
        assert other_manager(tmp_path, {"GPULOOM_OVERRIDE": "slurm"}) is None
