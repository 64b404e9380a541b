"""Files that outlive their writer and are shared by several: written whole or not at all, locked while one is at work.

They are ours alone. Whoever else could have put a link, a pipe or a file of their own into its place would otherwise
write through us, or have us wait. So nothing here follows a link, and what is not a plain file of ours (or root's) is
refused. A lock is the kernel's (flock): it is let go when the last descriptor is closed, however its holder ended; and
as anybody who can read a file can lock it, nobody else can read it. Two scripts that run without gpuloom, `live.keeper`
and the job's own `train.job`, write whole files by themselves.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path

_LOOK_AGAIN_S = 0.005
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""No link is followed, no pipe is waited for, no child inherits it."""
_NOT_PLAIN = "is not a plain file of gpuloom's: look who put it there, then remove it"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotOursError(OSError):
    """Somebody else has put this there, or could change it. The text says what, and what to do."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(errno.EPERM, problem, str(path))

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


class Lock(IntEnum):
    """How a file is held: by one alone, or by all who hold it in the same way."""

    ALONE = fcntl.LOCK_EX
    TOGETHER = fcntl.LOCK_SH


def open_own(path: Path, flags: int, also_uid: int = 0) -> int:
    """A descriptor of a plain file that belongs to us, to root or to one other. One that is created is ours alone."""
    assert not flags & os.O_TRUNC, "it would be emptied before anybody had looked whose it is"
    try:
        descriptor = os.open(path, flags | _SAFELY, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a pipe or a socket
            raise NotOursError(path, _NOT_PLAIN) from None
        raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid in (os.geteuid(), 0, also_uid):
        os.set_blocking(descriptor, True)  # as whoever inherits it expects
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise NotOursError(path, f"belongs to user {status.st_uid}: look who put it there, then remove it")
    raise NotOursError(path, _NOT_PLAIN)


def read_own(path: Path, most_bytes: int = 1 << 30) -> bytes:
    """All of a file of ours."""
    return _read(open_own(path, os.O_RDONLY), path, most_bytes)


def is_still_at(path: Path, descriptor: int) -> bool:
    """Whether what was opened there has not been removed, moved away or replaced since."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def read_anyones(path: Path, most_bytes: int) -> bytes:
    """All of a plain file, whoever wrote it; OSError for anything else, which is never opened, and for a larger one."""
    if not stat.S_ISREG(path.lstat().st_mode):  # without opening it: to open a device may do things
        raise NotOursError(path, "is not a plain file")
    descriptor = os.open(path, os.O_RDONLY | _SAFELY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # another has been put there since
        os.close(descriptor)
        raise NotOursError(path, "is not a plain file")
    return _read(descriptor, path, most_bytes)


def _read(descriptor: int, path: Path, most_bytes: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size <= most_bytes:
            return file.read(size)  # what is appended meanwhile is not ours to wait for
    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))


def write_whole(path: Path, text: str) -> None:
    """The file has all of the text or what it had before, whoever is killed when, and whenever the machine stops."""
    data = text.encode()
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)  # of one that was killed, or a trap
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """The new name is on disk, too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def own_folder(path: Path) -> None:
    """A folder that is ours and that nobody else can look into: made, or shut if others could only read it.

    One that lets others pass without looking (0711) stays so.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(0o700)
    descriptor = _open_folder(path)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise NotOursError(path, f"belongs to user {status.st_uid}: name a folder of your own")
        if status.st_mode & _OTHERS_WRITE:
            raise NotOursError(
                path, "can be written by others: name another folder, or look what is in it and then `chmod go-w` it"
            )
        if stat.S_IMODE(status.st_mode) not in (0o700, 0o711):
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def give_folder(path: Path, uid: int, gid: int, mode: int = 0o700) -> None:
    """A folder that belongs to somebody, inside one of ours: made, and handed over if it is still ours."""
    with suppress(FileExistsError):
        path.mkdir(0o700)
    descriptor = _open_folder(path)
    try:
        owner = os.fstat(descriptor).st_uid
        if owner not in (uid, os.geteuid()):
            raise NotOursError(path, f"belongs to user {owner}, not to user {uid}")
        if owner != uid:
            os.fchown(descriptor, uid, gid)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _open_folder(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            what = "is a symbolic link" if path.is_symlink() else "is not a folder"
            raise NotOursError(path, f"{what}: name a folder of your own") from None
        raise


def exposed_by(path: Path) -> Path | None:
    """The nearest folder above in which somebody other than us or root could put another into this one's place."""
    for parent in path.parents:
        try:
            status = parent.stat()
        except FileNotFoundError:  # it will be ours
            continue
        theirs = status.st_uid not in (0, os.geteuid())
        if theirs or (status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX):
            return parent
    return None


def open_lock(path: Path) -> int:
    """A descriptor to lock. The file is never removed: between removing and creating, two could hold "the" lock."""
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    status = os.fstat(descriptor)
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o600:
        os.fchmod(descriptor, 0o600)  # of an earlier version, which let everybody read it
    return descriptor


def try_lock(descriptor: int, lock: Lock, patience_s: float = 0.0) -> bool:
    """Whether it was to be had in that time."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_LOOK_AGAIN_S)


def is_locked(path: Path) -> bool:
    """Whether somebody holds it. Whoever tries to lock it at this very moment finds it held: have some patience."""
    if not path.exists():
        return False
    descriptor = open_lock(path)
    try:
        return not try_lock(descriptor, Lock.ALONE)
    finally:
        os.close(descriptor)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One at a time; the others wait."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
