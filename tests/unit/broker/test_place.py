# SPDX-License-Identifier: Apache-2.0
"""The directory, the lock and the socket: which users may enter, which process is the broker."""

import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmnd.broker import access
from shmnd.broker.access import Access, is_one_user
from shmnd.broker.place import Place, namespace_name, place_of, root_of, runtime_dir
from shmnd.status import NdError, Status


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHMND_RUNTIME_DIR", "XDG_RUNTIME_DIR", "SHMND_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


# --- names ---


def test_the_namespace_is_the_argument_the_variable_or_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert namespace_name(None) == "default"
    monkeypatch.setenv("SHMND_NAMESPACE", "from.environment")
    assert namespace_name(None) == "from.environment"
    assert namespace_name("mine-1_") == "mine-1_"
    assert namespace_name("x" * 64) == "x" * 64


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 65, "a\n", "a\0"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="namespace") as caught:
        place_of(name, str(tmp_path))
    assert isinstance(caught.value, NdError)
    assert caught.value.status is Status.INVALID_PARAMETER
    assert list(tmp_path.iterdir()) == []


# --- where ---


def test_an_argument_or_variable_names_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path / "variable"))
    assert runtime_dir("n") == tmp_path / "variable" / "n"
    assert runtime_dir("n", str(tmp_path / "argument")) == tmp_path / "argument" / "n"


def test_the_users_runtime_directory_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_dir() == tmp_path / "shmnd" / "default"
    assert mode(tmp_path / "shmnd") == 0o700


@pytest.mark.parametrize("xdg", ["", "relative", "/no/such/directory"])
def test_without_it_one_directory_for_any_tmpdir(
    xdg: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmnd.broker.place._COMMON", (Path("/no/such"), tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", xdg)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "other"))
    directory = runtime_dir("n")
    assert directory == tmp_path / f"shmnd-{os.geteuid()}" / "n"
    assert mode(directory) == mode(directory.parent) == 0o700


def test_a_full_directory_for_temporary_files_is_still_the_one_where_all_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmnd.broker.place._COMMON", (tmp_path, Path("/dev/shm")))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # as if the disk were full
    try:
        root = root_of()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert root == tmp_path / f"shmnd-{os.geteuid()}"


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    for umask in (0, 0o277):
        old = os.umask(umask)
        try:
            place = place_of(f"n{umask}", str(tmp_path))
            lock = place.try_lock()
        finally:
            os.umask(old)
        assert lock is not None
        os.close(lock)
        assert mode(place.directory) == 0o700
        assert mode(place.lock) == 0o600


# --- users ---


def refusal(tmp_path: Path) -> str:
    with pytest.raises(PermissionError) as caught:
        place_of("n", str(tmp_path))
    assert isinstance(caught.value, NdError)
    assert caught.value.status is Status.ACCESS_VIOLATION
    return str(caught.value)


@pytest.mark.parametrize("wide", [0o750, 0o701, 0o777, 0o704])
def test_a_directory_open_to_others_is_refused_by_name(tmp_path: Path, wide: int) -> None:
    directory = tmp_path / "n"
    directory.mkdir()
    directory.chmod(wide)
    text = refusal(tmp_path)
    assert str(directory) in text
    assert f"{wide:04o}" in text
    assert "0700" in text
    assert mode(directory) == wide


only_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory away; only root can")


@only_root
def test_a_directory_of_another_user_is_refused_by_name(tmp_path: Path) -> None:
    directory = tmp_path / "n"
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, -1)
    text = refusal(tmp_path)
    assert str(directory) in text
    assert "12345" in text


def test_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "n").symlink_to(tmp_path / "elsewhere")
    assert "not a directory" in refusal(tmp_path)
    (tmp_path / "n").unlink()
    (tmp_path / "n").write_text("")
    assert "not a directory" in refusal(tmp_path)


def test_a_base_where_others_could_swap_directories_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert "not sticky" in refusal(tmp_path)
    tmp_path.chmod(0o1777)
    place_of("n", str(tmp_path))


@only_root
def test_the_runtime_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, 12345, -1)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(PermissionError, match="inherited from another user"):
        place_of("n")
    os.chown(tmp_path, 0, -1)


def test_a_base_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NdError, match="No such file") as caught:
        place_of("n", str(tmp_path / "no" / "such"))
    assert caught.value.status is Status.DEVICE_NOT_READY
    with pytest.raises(NdError) as caught:
        place_of("n", "/proc/shmnd")
    assert "/proc/shmnd" in str(caught.value)


def test_a_relative_base_in_a_removed_directory_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    with pytest.raises(NdError, match="'here' is relative, and the working directory") as caught:
        place_of("n", "here")
    assert caught.value.status is Status.DEVICE_NOT_READY
    assert place_of("n", str(tmp_path)).directory == tmp_path / "n"


# --- lock ---


def test_one_has_the_lock(place: Place) -> None:
    lock = place.try_lock()
    assert lock is not None
    assert place.try_lock() is None
    assert place.holds(lock)
    assert mode(place.lock) == 0o600
    os.close(lock)
    again = place.try_lock()
    assert again is not None
    os.close(again)


def test_a_lock_file_that_was_removed_is_not_the_lock(place: Place) -> None:
    lock = place.try_lock()
    assert lock is not None
    place.lock.unlink()
    assert not place.holds(lock)
    other = place.try_lock()
    assert other is not None
    assert place.holds(other)
    assert not place.holds(lock)
    with pytest.raises(OSError, match="not the lock"):
        place.adopt(lock)
    os.close(lock)
    os.close(other)


def test_the_last_holder_removes_the_place(place: Place) -> None:
    lock = place.try_lock()
    assert lock is not None
    place.listen().close()
    assert place.remove(lock)
    os.close(lock)
    assert not place.directory.exists()


@pytest.mark.parametrize("when", ["opened the lock", "made its lock", "found the directory"])
def test_a_newcomer_meets_a_removal(
    place: Place, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it has done when the place is removed, it holds the lock that others find."""
    leaving = place.try_lock()
    assert leaving is not None
    newcomer = Place(place.directory, place.access)
    really = Access.open_lock
    removed: list[bool] = []

    def remove() -> None:
        removed.append(place.remove(leaving))
        os.close(leaving)

    def open_lock(self: Access, path: Path) -> int:
        monkeypatch.setattr(Access, "open_lock", really)
        if when == "opened the lock":
            fd = really(self, path)
            remove()
            return fd
        if when == "made its lock":
            place.lock.rename(place.lock.with_name("aside"))
            fd = really(self, path)
            remove()
            return fd
        remove()
        return really(self, path)

    monkeypatch.setattr(Access, "open_lock", open_lock)
    lock = newcomer.try_lock()
    assert lock is not None
    assert newcomer.holds(lock)
    assert removed == [when != "made its lock"]
    assert Place(place.directory, place.access).try_lock() is None, "two have the lock"
    os.close(lock)


def test_a_lock_is_adopted_only_by_its_heir(place: Place) -> None:
    lock = place.try_lock()
    assert lock is not None
    os.set_inheritable(lock, True)
    assert place.adopt(lock) == lock
    assert not os.get_inheritable(lock)
    stranger = os.open(place.lock, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        place.adopt(stranger)
    os.close(stranger)
    os.close(lock)


def test_a_lock_that_is_a_link_is_refused(place: Place, tmp_path: Path) -> None:
    place.lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NdError, match="lock"):
        place.try_lock()
    assert not (tmp_path / "elsewhere").exists()


# --- socket ---


@pytest.fixture
def listening(place: Place) -> Iterator[socket.socket]:
    with place.listen() as sock:
        yield sock


def test_a_missing_broker_is_none(place: Place) -> None:
    assert place.connect() is None
    place.listen().close()  # a stale one
    assert place.socket.exists()
    assert place.connect() is None


def test_a_stale_socket_is_replaced(place: Place) -> None:
    place.listen().close()
    with place.listen():
        assert mode(place.socket) == 0o600
        sock = place.connect()
        assert sock is not None
        sock.close()


def test_a_broker_that_accepts_no_client_is_none(place: Place, listening: socket.socket) -> None:
    listening.listen(0)
    socks = []
    while (sock := place.connect()) is not None:
        socks.append(sock)
        assert len(socks) < 100
    assert socks, "it takes some, until its queue is full"
    for sock in socks:
        sock.close()


def test_paths_of_any_length(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True, mode=0o700)
    place = place_of("z" * 64, str(deep))
    with place.listen():
        assert place.socket.exists()
        sock = place.connect()
        assert sock is not None
        sock.close()


def test_a_socket_of_another_type_is_reported(place: Place) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.bind(str(place.socket))
        stream.listen(1)
        with pytest.raises(NdError, match=r"broker\.sock"):
            place.connect()


@pytest.mark.parametrize(
    ("mapped", "one"),
    [("0 0 4294967295", True), ("0 1000 1", False), ("0 100000 65536", False), ("", False)],
)
def test_a_number_that_many_users_have_is_not_one_users(
    mapped: str, one: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a user namespace that does not map all users, the kernel shows the others as 65534."""
    (tmp_path / "uid_map").write_text(mapped)
    monkeypatch.setattr(access, "_UID_MAP", tmp_path / "uid_map")
    assert is_one_user(65534) is one
    assert is_one_user(1000)


def test_a_place_that_is_only_sought_and_cannot_be_reached_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ("n" * 300)
    with pytest.raises(NdError, match=f"{folder}.* cannot be reached: File name too long; .*names"):
        place_of("sought", str(folder), make=False)
    assert place_of("sought", str(tmp_path), make=False).directory == tmp_path / "sought"
    assert not (tmp_path / "sought").exists()
