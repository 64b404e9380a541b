"""MPS daemons, on the stand-in for the control tool: its protocol, its limits, and what is left after a kill."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.grant import MOST_SHARERS
from gpuloom.gpus.host.mps import daemon as mps
from gpuloom.gpus.host.mps.daemon import Daemon, Limits, MpsError, NotRunningError, daemon_for
from gpuloom.gpus.layouts import parse
from tests.standin.hardware import Hardware, Worker, connect

pytestmark = pytest.mark.xdist_group("mps")  # one of these looks at every MPS daemon of the host

CUT = parse(MODELS["A100-40GB"], "3g.20gb@4,2g.10gb@0")


@pytest.fixture(scope="module")
def worker(hardware: Hardware) -> Worker:
    return hardware.worker()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a short path, because of the sockets."""
    return tmp_path_factory.mktemp("m")


@pytest.fixture
def daemon(hardware: Hardware, worker: Worker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon, not yet started, for a slice of an A100."""
    for name in ("PATH", "LD_LIBRARY_PATH", "GPULOOM_STANDIN_STATE"):
        monkeypatch.setenv(name, hardware.environment[name])
    hardware.install("A100-40GB+mig")
    worker.apply(CUT)
    daemon = daemon_for(hardware.uuids()["3g.20gb@4"], folder)
    yield daemon
    daemon.stop(timeout_s=1)


def control_pid(daemon: Daemon) -> int:
    return int((daemon.pipe_dir / "nvidia-cuda-mps-control.pid").read_text())


def test_a_daemon_with_limits(daemon: Daemon) -> None:
    assert not daemon.alive()
    daemon.start(share_pct=40, mem_mib=6144)
    assert daemon.limits() == Limits(40.0, 6144)
    assert daemon.servers() == ()
    with connect(daemon.client_environment()) as told:
        assert told == "admitted 40 6144"
        (server,) = daemon.servers()
        assert daemon.ask(f"get_server_status {server}") == "ACTIVE"
        assert daemon.clients(server) == (os.getpid(),)
    assert (daemon.log_dir / "control.log").exists()
    daemon.stop()
    assert not daemon.alive()
    daemon.stop()


def test_a_client_can_only_tighten_its_limits(daemon: Daemon) -> None:
    daemon.start(share_pct=40, mem_mib=6144)
    with connect(daemon.client_environment(25, 2048)) as told:
        assert told == "admitted 25 2048"
    with connect(daemon.client_environment(90, 9000)) as told:
        assert told == "admitted 40 6144"


def test_its_server_is_there_before_the_first_client_if_the_user_is_known(daemon: Daemon) -> None:
    daemon.start(40, uid=os.getuid())
    (server,) = daemon.servers()
    assert daemon.ask(f"get_server_status {server}") == "ACTIVE"
    daemon.start(40, uid=os.getuid())
    assert daemon.servers() == (server,)


def test_what_a_client_has_is_taken_back_by_its_number(daemon: Daemon) -> None:
    daemon.start()
    daemon.terminate_client(os.getpid())  # there is none
    with connect(daemon.client_environment()):
        daemon.terminate_client(os.getpid())
    assert f"terminated client {os.getpid()}" in (daemon.log_dir / "control.log").read_text()


def test_a_daemon_that_hangs_is_replaced_when_somebody_starts_it(daemon: Daemon) -> None:
    daemon.start(40)
    hung = control_pid(daemon)
    os.kill(hung, signal.SIGSTOP)
    assert "does not answer" in (daemon.trouble(timeout_s=0.3) or "")
    daemon.start(30, timeout_s=1)
    assert control_pid(daemon) != hung
    assert daemon.limits().share_pct == 30


def test_who_has_no_share_is_given_a_folder_in_which_nobody_listens(folder: Path) -> None:
    environment = mps.no_daemon(folder / "mps")
    assert list(Path(environment["CUDA_MPS_PIPE_DIRECTORY"]).iterdir()) == []
    assert mps.no_daemon(folder / "mps") == environment


def test_what_a_client_is_given() -> None:
    daemon = Daemon("MIG-1", Path("/run/loom"))
    assert daemon.client_environment(12.5, 6144) == {
        "CUDA_VISIBLE_DEVICES": "MIG-1",
        "CUDA_MPS_PIPE_DIRECTORY": "/run/loom/pipe",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=6G",
    }
    assert daemon.client_environment(mem_mib=1500)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=1500M"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in daemon.client_environment()


def test_new_limits_reach_the_next_client_of_a_running_server(daemon: Daemon) -> None:
    daemon.start()
    with connect(daemon.client_environment()) as told:
        assert told == "admitted 100 0"
        daemon.limit(30, 1024)
        with connect(daemon.client_environment()) as told_next:
            assert told_next == "admitted 30 1024"


def test_starting_twice_keeps_the_daemon(daemon: Daemon) -> None:
    daemon.start(50)
    pid = control_pid(daemon)
    daemon.start(60)
    assert control_pid(daemon) == pid
    assert daemon.limits().share_pct == 60
    # The tool itself refuses a second daemon on the same pipe directory.
    done = daemon._run(["-d"], None, 10)
    assert (done.returncode, done.stdout) == (1, "An instance of this daemon is already running\n")


def test_each_device_has_its_own(daemon: Daemon, hardware: Hardware, folder: Path) -> None:
    other = daemon_for(hardware.uuids()["2g.10gb@0"], folder)
    daemon.start(30)
    other.start(70)
    try:
        assert (daemon.limits().share_pct, other.limits().share_pct) == (30, 70)
        daemon.stop()
        assert other.alive()
    finally:
        other.stop()


def test_a_server_holds_its_instance(daemon: Daemon, hardware: Hardware, worker: Worker) -> None:
    daemon.start()
    daemon.ask(f"start_server -uid {os.getuid()}")
    (server,) = daemon.servers()
    assert hardware.show()["pids"] == [server]
    assert f"process {server} (nvidia-cuda-mps)" in worker.apply((), keep_mig=True)["refused"]
    daemon.stop()
    assert worker.apply((), keep_mig=True)["reached"]


def test_after_kill_9_nothing_is_in_the_way(daemon: Daemon, hardware: Hardware) -> None:
    daemon.start(50)
    daemon.ask(f"start_server -uid {os.getuid()}")
    (server,) = daemon.servers()
    os.kill(control_pid(daemon), signal.SIGKILL)
    assert not daemon.alive()
    assert hardware.show()["pids"] == [server]  # it outlives its daemon and holds the device
    assert (daemon.pipe_dir / "control").exists()
    with pytest.raises(NotRunningError, match="no MPS daemon runs for MIG-"):
        daemon.servers()
    daemon.start(70)
    assert hardware.show()["pids"] == []
    assert daemon.limits().share_pct == 70


def test_stopping_cleans_up_after_a_killed_daemon_too(daemon: Daemon, hardware: Hardware) -> None:
    daemon.start()
    daemon.ask(f"start_server -uid {os.getuid()}")
    os.kill(control_pid(daemon), signal.SIGKILL)
    daemon.stop()
    assert hardware.show()["pids"] == []
    assert list(daemon.pipe_dir.iterdir()) == []


def test_clients_that_do_not_go_are_not_waited_for_without_end(daemon: Daemon, hardware: Hardware) -> None:
    daemon.start()
    with connect(daemon.client_environment()):
        daemon.stop(timeout_s=1)
        assert not daemon.alive()
        assert hardware.show()["pids"] == []


def test_a_daemon_that_hangs(daemon: Daemon) -> None:
    daemon.start()
    os.kill(control_pid(daemon), signal.SIGSTOP)
    with pytest.raises(MpsError, match=r"does not answer within 0\.2 s"):
        daemon.alive(timeout_s=0.2)
    daemon.stop(timeout_s=0.1)
    assert not daemon.alive()


def test_one_user_and_48_clients_to_a_server(daemon: Daemon) -> None:
    daemon.start()
    with ExitStack() as clients:
        for _ in range(MOST_SHARERS):
            assert clients.enter_context(connect(daemon.client_environment())).startswith("admitted")
        assert "too many" in clients.enter_context(connect(daemon.client_environment()))
        assert "another user" in clients.enter_context(connect(daemon.client_environment(), uid=4242))


@pytest.mark.parametrize(
    ("share_pct", "mem_mib", "sentence"),
    [(0, None, "a share of 0 %"), (101, None, "a share of 101 %"), (50, 0, "a memory limit of 0 MiB")],
)
def test_limits_that_make_no_sense(daemon: Daemon, share_pct: float, mem_mib: int | None, sentence: str) -> None:
    with pytest.raises(MpsError, match=sentence):
        daemon.start(share_pct, mem_mib)
    assert not daemon.folder.exists()


def test_devices_are_named_by_uuid(tmp_path: Path) -> None:
    for wrong in ("0", "MIG", "MIG-../../etc"):
        with pytest.raises(MpsError, match="is not the UUID"):
            daemon_for(wrong, tmp_path)
    assert daemon_for("MIG-GPU-1/2/0", tmp_path).folder.parent == tmp_path
    assert daemon_for("GPU-1", tmp_path).folder != daemon_for("GPU-2", tmp_path).folder


def test_a_folder_too_long_for_sockets(tmp_path: Path) -> None:
    daemon = daemon_for("GPU-1", tmp_path / ("deep" * 25))
    with pytest.raises(MpsError, match="too long for sockets"):
        daemon.start()


def test_without_mps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mps.available() is None
    with pytest.raises(MpsError, match="MPS is not installed"):
        daemon_for("GPU-1", tmp_path).start()


def test_a_device_that_is_not_there(daemon: Daemon, worker: Worker) -> None:
    daemon.start()
    worker.apply((), keep_mig=True)
    with connect(daemon.client_environment()) as told:
        assert told == "refused: the server has failed"
