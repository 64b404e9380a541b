"""A connection to a job's socket: it never waits, and takes nothing from whom it should not."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuloom.live.elastic.link import MOST_BYTES, Link, Lost, Status


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        at = os.open(folder, os.O_PATH)
        sock.bind(f"/proc/self/fd/{at}/elastic")
        os.close(at)
        sock.listen()
        yield folder / "elastic", sock


def test_lines_both_ways(listener: tuple[Path, socket.socket]) -> None:
    path, sock = listener
    link = Link(path, os.geteuid())
    job, _ = sock.accept()
    assert link.receive() == []
    link.send({"op": "status"})
    assert job.recv(100) == b'{"op": "status"}\n'
    job.sendall(b'{"generation": 1}\n\n{"generation"')
    assert link.receive() == [Status(1)]
    job.sendall(b": 2}\n")
    job.close()
    assert link.receive() == [Status(2)]
    with pytest.raises(Lost, match="closed"):
        link.receive()
    link.close()


def test_what_does_not_fit_is_sent_later(listener: tuple[Path, socket.socket]) -> None:
    path, sock = listener
    link = Link(path, os.geteuid())
    job, _ = sock.accept()
    link.send({"long": "x" * (1 << 20)})  # more than the kernel takes at once
    read = b""
    while not read.endswith(b"\n"):
        link.receive()
        read += job.recv(1 << 16)
    assert len(read) > 1 << 20
    link.close()
    job.close()


@pytest.mark.parametrize("rubbish", [b"hello\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n", b"x" * (MOST_BYTES + 1)])
def test_rubbish(listener: tuple[Path, socket.socket], rubbish: bytes) -> None:
    path, sock = listener
    link = Link(path, os.geteuid())
    job, _ = sock.accept()
    job.setblocking(False)
    sent = 0
    for _ in range(1 + len(rubbish) // 1000):
        sent += job.send(rubbish[sent:][:1000])
        lost = _lost(link)
        if lost is not None:
            break
    assert lost in ("what it answers is no message", "it talks without end")
    link.close()
    job.close()


@pytest.mark.parametrize(
    ("told", "understood"),
    [
        (b'{"generation": 3, "done": true, "pause_s": 0.5, "error": null}', Status(3, done=True, pause_s=0.5)),
        (b'{"generation": 3, "finished": true, "workers": ["a"]}', Status(3, finished=True, workers=("a",))),
        (b'{"generation": 3, "error": "bad \\ud800 \\u001b[2J"}', Status(3, error="bad \ufffd \ufffd[2J")),
        (b'{"generation": 3, "workers": ["\\udfff", 4]}', Status(3, workers=("\ufffd", "what is no text"))),
        (b'{"generation": 3, "error": %s}' % (b"9" * 4000), Status(3, error="what is no text")),
        (b'{"generation": 3, "pause_s": 1%s}' % (b"0" * 400), Status(3)),
        (b'{"generation": 3, "pause_s": NaN}', Status(3)),
        (b'{"generation": 3, "pause_s": Infinity, "done": 1}', Status(3)),
        (b'{"generation": %s}' % (b"9" * 4300), None),
        (b'{"generation": true}', None),
        (b'{"generation": -1}', None),
        (b'{"op": "status"}', None),
    ],
)
def test_what_a_job_says_can_be_printed_and_logged(
    listener: tuple[Path, socket.socket], told: bytes, understood: Status | None
) -> None:
    path, sock = listener
    link = Link(path, os.geteuid())
    job, _ = sock.accept()
    job.sendall(told + b"\n")
    assert link.receive() == ([] if understood is None else [understood])
    link.close()
    job.close()


def _lost(link: Link) -> str | None:
    try:
        assert link.receive() == []
    except Lost as reason:
        return str(reason)
    return None


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(Lost, match="does not listen"):
        Link(tmp_path / "elastic", os.geteuid())
    with pytest.raises(Lost, match="does not listen"):
        Link(tmp_path / "nowhere" / "elastic", os.geteuid())


def test_somebody_else(listener: tuple[Path, socket.socket]) -> None:
    path, _ = listener
    with pytest.raises(Lost, match="process of user"):
        Link(path, os.geteuid() + 1)


def test_a_folder_that_is_a_link(listener: tuple[Path, socket.socket], tmp_path: Path) -> None:
    path, _ = listener
    (tmp_path / "link").symlink_to(path.parent)
    with pytest.raises(Lost, match="does not listen"):
        Link(tmp_path / "link" / "elastic", os.geteuid())
