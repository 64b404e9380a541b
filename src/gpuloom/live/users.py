"""Who a job runs as, what of our environment that user gets, and which files of the state folder are that user's.

Knows accounts, not how a process changes to one (`launch`), nor what a job is allowed to use. A work file says what is
run in whose name, so as root its owner decides: root's file may name anybody, anybody else's only its owner.
"""

import os
import pwd
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.work.model import Job
from gpuloom.work.source import FileOwner, shown

_EVERYBODYS = (
    ("PATH", "LANG", "LANGUAGE", "TZ", "TERM", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    ("LC_", "CUDA", "NVIDIA_", "NCCL_", "OMP_", "MKL_", "OPENBLAS_", "PYTHON", "CONDA", "GPULOOM_"),
)
"""Variables that another user's job is given of ours, by name and by how they begin. All others may be secrets."""


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def work_owner(path: Path, owner: FileOwner, our_euid: int) -> int:
    """The uid in whose name a work file speaks: as root only if nobody else could have written it."""
    if our_euid == 0 and owner.others_write:
        raise InputError(
            f"{path} can be written by others than its owner, in whose name its commands would be run:"
            " expected a file that only its owner can write (chmod go-w)"
        )
    return owner.uid


def accounts_of(jobs: Iterable[Job], owner_uid: int | None, our_euid: int) -> dict[str, Account]:
    """By job, or InputError. Of a run that was begun before owners were kept (None) the jobs are ours."""
    owner = our_euid if owner_uid is None else owner_uid
    found: dict[str | None, Account] = {}
    accounts: dict[str, Account] = {}
    for job in jobs:
        user = job.host.user
        if user not in found:
            found[user] = account_of(user, owner, our_euid, f"job {job.id}: user")
        accounts[job.id] = found[user]
    return accounts


def account_of(job_user: str | None, work_file_owner_uid: int, our_euid: int, where: str = "user") -> Account:
    """Who a job runs as; InputError, which begins with `where`, if that cannot or must not be."""
    if our_euid != 0:
        return _ourselves(job_user, our_euid, where)
    if job_user is None:
        return _by_uid(work_file_owner_uid, where)
    account = _by_name(job_user, where)
    if work_file_owner_uid not in (0, account.uid):
        owner = shown(_by_uid(work_file_owner_uid, where).name)
        raise InputError(
            f"{where} is {shown(job_user)}, but the work file belongs to {owner}: only root's may name somebody else"
        )
    return account


def _ourselves(job_user: str | None, our_euid: int, where: str) -> Account:
    try:
        found = pwd.getpwuid(our_euid)
    except KeyError:  # in a container; nobody can name us then
        home = os.environ.get("HOME", "/")
        account = Account(str(our_euid), our_euid, os.getegid(), tuple(os.getgroups()), home, "/bin/sh")
    else:
        account = Account(found.pw_name, our_euid, os.getegid(), tuple(os.getgroups()), found.pw_dir, _shell(found))
    if job_user not in (None, account.name):
        raise InputError(
            f"{where} is {shown(job_user)}, but only root can start processes of others:"
            f" leave it out, or run gpuloom as root instead of {shown(account.name)}"
        )
    return account


def _by_name(name: str, where: str) -> Account:
    try:
        return _account(pwd.getpwnam(name))
    except KeyError:
        raise InputError(f"{where} is {shown(name)}, but must be an account of this host") from None


def _by_uid(uid: int, where: str) -> Account:
    try:
        return _account(pwd.getpwuid(uid))
    except KeyError:
        raise InputError(
            f"{where} is that of the work file's owner, {uid}, for which this host has no account:"
            " expected a work file that belongs to one"
        ) from None


def _account(found: pwd.struct_passwd) -> Account:
    groups = tuple(sorted(os.getgrouplist(found.pw_name, found.pw_gid)))
    return Account(found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir, _shell(found))


def _shell(found: pwd.struct_passwd) -> str:
    return found.pw_shell or "/bin/sh"


def environment_of(account: Account, environment: Mapping[str, str], our_euid: int | None = None) -> dict[str, str]:
    """What a job of this account is given of our environment: all if it is ours, else what is everybody's."""
    if account.uid == (os.geteuid() if our_euid is None else our_euid):
        return dict(environment)
    home = environment.get("HOME", "").rstrip("/")
    kept = {name: value for name, value in environment.items() if _is_everybodys(name, value, home)}
    return kept | {"HOME": account.home, "USER": account.name, "LOGNAME": account.name, "SHELL": account.shell}


def _is_everybodys(name: str, value: str, home: str) -> bool:
    names, beginnings = _EVERYBODYS
    if name not in names and not name.startswith(beginnings):
        return False
    # A list of folders may begin in our home and still be needed for the rest.
    return not home or name.endswith("PATH") or not (value == home or value.startswith(f"{home}/"))


def why_not_shared(accounts: Mapping[str, Account]) -> str | None:
    """Why jobs of these accounts cannot share a device: an MPS server serves one user, and others wait for its end."""
    names = sorted({account.name for account in accounts.values()})
    if len(names) <= 1:
        return None
    return f"MPS serves one user at a time, and these jobs are of {', '.join(names)}"


def closed_to(account: Account, folder: Path) -> Path | None:
    """The outermost folder on the way that this account cannot pass through; None if the way is free."""
    for part in (*reversed(folder.parents), folder):
        status = part.stat()
        if account.uid == 0:
            continue
        if status.st_uid == account.uid:
            needed = stat.S_IXUSR
        else:
            needed = stat.S_IXGRP if status.st_gid in (account.gid, *account.groups) else stat.S_IXOTH
        if not status.st_mode & needed:
            return part
    return None
