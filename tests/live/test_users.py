"""Who a job runs as, by who we are and whose work file it is; and what of our environment that user gets."""

import os
import pwd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.live.users import Account, account_of, accounts_of, closed_to, environment_of, work_owner
from gpuloom.work.files import read_owned_work
from gpuloom.work.model import HostNeeds, Job
from gpuloom.work.source import FileOwner

ROOT, ME = 0, 12_345
"""12345 has no account on any host we know; it runs tests in containers."""
SOMEBODY, ANOTHER = [found for found in pwd.getpwall() if found.pw_uid != ROOT][:2]
UNKNOWN = "no-such-user"
ALICE = Account("alice", 1000, 1000, (1000,), "/home/alice", "/bin/zsh")


@given(
    st.sampled_from([None, "root", SOMEBODY.pw_name, ANOTHER.pw_name, UNKNOWN]),
    st.sampled_from([ROOT, SOMEBODY.pw_uid, ANOTHER.pw_uid, ME]),
    st.sampled_from([ROOT, SOMEBODY.pw_uid, ME]),
)
def test_nobody_runs_in_a_name_that_is_not_theirs_to_use(user: str | None, owner_uid: int, euid: int) -> None:
    known = user is None or user in (found.pw_name for found in pwd.getpwall())
    if euid != ROOT:
        allowed = user is None or (known and pwd.getpwnam(user).pw_uid == euid)
    else:
        owner_known = owner_uid != ME
        named = user is not None and known and (owner_uid in (ROOT, pwd.getpwnam(user).pw_uid))
        allowed = named or (user is None and owner_known)
    if not allowed:
        with pytest.raises(InputError, match=r"^user [^\n]*$"):
            account_of(user, owner_uid, euid)
        return
    account = account_of(user, owner_uid, euid)
    assert user is None or account.name == user
    if euid != ROOT:
        assert account.uid == euid
    else:
        assert account.uid == (owner_uid if user is None or owner_uid != ROOT else pwd.getpwnam(user).pw_uid)


@pytest.mark.parametrize(
    ("user", "owner_uid", "euid", "sentence"),
    [
        (SOMEBODY.pw_name, ME, ME, "only root can start processes of others: leave it out, or run gpuloom as root"),
        (UNKNOWN, ROOT, ROOT, f"user is '{UNKNOWN}', but must be an account of this host"),
        (None, ME, ROOT, f"the work file's owner, {ME}, for which this host has no account"),
        ("root", SOMEBODY.pw_uid, ROOT, f"the work file belongs to '{SOMEBODY.pw_name}': only root's may name"),
    ],
)
def test_the_sentence_says_why(user: str | None, owner_uid: int, euid: int, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        account_of(user, owner_uid, euid)
    assert sentence in str(caught.value)


def test_roots_file_may_name_anybody_and_else_is_roots() -> None:
    jobs = [Job("a"), Job("b", host=HostNeeds(user=SOMEBODY.pw_name))]
    accounts = accounts_of(jobs, ROOT, ROOT)
    assert {job_id: account.uid for job_id, account in accounts.items()} == {"a": ROOT, "b": SOMEBODY.pw_uid}
    assert SOMEBODY.pw_gid in accounts["b"].groups
    with pytest.raises(InputError, match="job b: user is"):
        accounts_of(jobs, ANOTHER.pw_uid, ROOT)


def test_a_run_without_an_owner_is_ours() -> None:
    assert accounts_of([Job("a")], None, ME)["a"].uid == ME
    assert accounts_of([Job("a")], None, ROOT)["a"].uid == ROOT


@pytest.mark.parametrize(("mode", "writable"), [(0o600, False), (0o644, False), (0o664, True), (0o646, True)])
def test_whose_work_file_it_is(tmp_path: Path, mode: int, writable: bool) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("jobs: [{name: a}]")
    path.chmod(mode)
    *_, owner = read_owned_work(path)
    assert owner == FileOwner(os.geteuid(), writable)


def test_as_root_a_work_file_that_others_can_write_is_refused() -> None:
    path = Path("jobs.yaml")
    assert work_owner(path, FileOwner(ME, others_write=False), ROOT) == ME
    assert work_owner(path, FileOwner(ME, others_write=True), ME) == ME
    with pytest.raises(InputError, match=r"jobs.yaml can be written by others .* \(chmod go-w\)"):
        work_owner(path, FileOwner(ME, others_write=True), ROOT)


OURS = {
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/sh",
    "XDG_RUNTIME_DIR": "/run/user/0",
    "SUDO_USER": "bob",
    "SSH_AUTH_SOCK": "/run/agent",
    "HF_TOKEN": "hf_secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "HF_HOME": "/root/.cache/hf",
    "TMPDIR": "/root/tmp",
}
OTHERS_SECRETS = {"DATABASE_URL": "postgres://a:b@c", "http_proxy": "http://a:b@c", "GH_PAT": "x", "MY_KEY": "x"}
EVERYBODYS = {"PATH": "/root/venv/bin:/usr/bin", "CUDA_VISIBLE_DEVICES": "GPU-1", "LANG": "C.UTF-8"}


def test_another_user_gets_nothing_that_is_only_ours() -> None:
    given = environment_of(ALICE, OURS | OTHERS_SECRETS | EVERYBODYS, our_euid=ROOT)
    theirs = {"HOME": "/home/alice", "USER": "alice", "LOGNAME": "alice", "SHELL": "/bin/zsh"}
    assert given == EVERYBODYS | theirs


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8)), st.text(max_size=8))
def test_nothing_of_our_home_is_told_and_nothing_is_made_up(environment: dict[str, str], home: str) -> None:
    given = environment_of(ALICE, environment | {"HOME": f"/our{home}", "CACHE": f"/our{home}/cache"}, our_euid=ROOT)
    assert "CACHE" not in given
    assert given["HOME"] == ALICE.home
    assert given.keys() - environment.keys() <= {"HOME", "USER", "LOGNAME", "SHELL"}


def test_we_keep_all_of_ours() -> None:
    assert environment_of(ALICE, OURS | EVERYBODYS, our_euid=ALICE.uid) == OURS | EVERYBODYS


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "passes"),
    [
        (0o700, 7, 7, False),
        (0o711, 7, 7, True),
        (0o710, 7, 7, False),
        (0o710, 7, os.getegid(), True),
        (0o701, 7, os.getegid(), False),
        (0o700, os.geteuid(), 7, True),
        (0o700, ROOT, ROOT, True),
    ],
)
def test_the_wall_on_the_way_is_named(tmp_path: Path, mode: int, uid: int, gid: int, passes: bool) -> None:
    account = Account("x", uid, gid, (gid,), "/", "/bin/sh")
    wall = tmp_path / "wall"
    wall.mkdir()
    tmp_path.chmod(0o755)
    outside = closed_to(account, tmp_path)
    wall.chmod(mode)
    if outside is None:
        assert closed_to(account, wall) == (None if passes else wall)
    else:
        assert closed_to(account, wall) == outside
