# SPDX-License-Identifier: Apache-2.0
"""`shmnd doctor`: everything that it can find, provoked."""

import errno
import json
import os
import re
import resource
import sysconfig
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import pytest

from processes.kit import Child, broker_pid, end_process, unshared
from shmnd.broker import observer
from shmnd.broker.place import place_of
from shmnd_tools.checks import (
    broker as check_broker,
)
from shmnd_tools.checks import (
    cores as check_cores,
)
from shmnd_tools.checks import (
    kernel as check_kernel,
)
from shmnd_tools.checks import (
    limits as check_limits,
)
from shmnd_tools.checks import (
    memory as check_memory,
)
from shmnd_tools.checks import (
    services as check_services,
)
from shmnd_tools.checks.cgroup import cpu_limit
from shmnd_tools.checks.finding import Finding, Host, Level
from shmnd_tools.checks.tmpfiles import rule_of
from shmnd_tools.main import main
from shmnd_tools.verbs import doctor

EXAMINED = """
import contextlib, io, resource
from shmnd_tools.main import main
{first}
told = io.StringIO()
with contextlib.redirect_stdout(told):
    code = main(["doctor", "--format", "json"])
say(code, json.loads(told.getvalue()))
"""


def examined(first: str = "", **options: Any) -> tuple[int, dict[str, dict[str, str]]]:
    """Return what the doctor says in a process that did something first: exit code and findings."""
    with Child(EXAMINED.format(first=first), kit=False, **options) as child:
        code, found = child.hear()
        assert child.end() == 0
    return code, {each["check"]: each for each in found}


def mounted(script: str) -> dict[str, Any]:
    """Have a command run after `script` in a mount namespace of its own."""
    return {"wrapper": [*unshared("-m"), "sh", "-c", f'{script} && exec "$@"', "sh"]}


def shm(options: str) -> dict[str, Any]:
    return mounted(f"mount -t tmpfs -o {options} tmpfs /dev/shm")


def only(found: Iterable[Finding], check: str) -> Finding:
    (one,) = (each for each in found if each.check == check)
    assert (one.level is Level.OK) == (not one.meaning) == (not one.remedy)
    return one


def files(root: Path, **texts: str) -> Host:
    """Write files of a host; in their names, `__` stands for `/`."""
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Host(root)


# -- the command --


def finding(level: Level) -> Finding:
    return Finding("thing", level, "found so", "meaning that", "do this")


@pytest.mark.parametrize(
    ("levels", "code", "strict"),
    [
        ([Level.OK], 0, 0),
        ([Level.OK, Level.WARNING], 0, 1),
        ([Level.PROBLEM, Level.WARNING], 1, 1),
    ],
)
def test_the_exit_code_distinguishes_problems_from_warnings(
    levels: list[Level],
    code: int,
    strict: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_: [finding(level) for level in levels])
    assert main(["doctor"]) == code
    assert main(["doctor", "--strict"]) == strict
    capsys.readouterr()
    assert main(["doctor", "--format", "json"]) == code
    assert [each["level"] for each in json.loads(capsys.readouterr().out)] == levels


def test_warnings_are_explained_below_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Finding("air", Level.OK, "fresh"), finding(Level.WARNING)]
    monkeypatch.setattr(doctor, "examine", lambda *_: found)
    main(["doctor"])
    assert capsys.readouterr().out.splitlines() == [
        "level    check  found",
        "-------  -----  --------",
        "ok       air    fresh",
        "warning  thing  found so",
        "",
        "warning: thing: found so",
        "  meaning: meaning that",
        "  remedy:  do this",
    ]


@pytest.mark.slow
def test_the_report_of_this_machine_names_each_check_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--format", "json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    checks = [each["check"] for each in found]
    assert len(checks) == len(set(checks))
    assert {"shared memory size", "private memory of peers", "CPUs", "broker"} <= set(checks)
    for each in found:
        assert each["found"]
        assert (each["level"] == "ok") == (not each["meaning"]) == (not each["remedy"])


@pytest.mark.slow
def test_the_page_names_every_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs" / "guides" / "setting_up.md"
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", page.read_text(), re.M)
    named = [check for row in rows[2:] for check in row.split(", ")]
    (tmp_path / "dev/shm").mkdir(parents=True)
    found = doctor.examine(Host(tmp_path), "doctor")
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    found += doctor.examine(Host(tmp_path), "doctor")
    assert len(named) == len(set(named))
    assert set(named) == {each.check for each in found}


# -- shared memory --


@pytest.mark.parametrize(
    ("limit", "level"), [("4M", "problem"), ("64M", "warning"), ("256M", "ok")]
)
def test_the_size_of_shared_memory(limit: str, level: str, tmp_path: Path) -> None:
    group = files(
        tmp_path,
        proc__meminfo="MemTotal: 9999999 kB\nMemAvailable: 8888888 kB\n",
        proc__self__mountinfo=UNIFIED,
        proc__self__cgroup="0::/app\n",
        **{
            "sys__fs__cgroup__app__memory.max": f"{int(limit[:-1]) << 20}\n",
            "sys__fs__cgroup__app__memory.current": "1048576\n",
        },
    )
    found = only(check_memory.check(group), "shared memory size")
    assert found.level == level
    assert "control group /sys/fs/cgroup/app (memory.max" in found.found


@pytest.mark.slow
def test_a_full_place_of_names_limits_names_alone() -> None:
    first = 'open("/dev/shm/full", "wb").write(bytes(62 << 20))'
    _, found = examined(first, **shm("size=64M,mode=1777"))
    assert found["named shared memory"]["level"] == "warning"
    assert found["shared memory size"]["level"] == "ok"
    assert found["a segment"]["level"] == "ok"


@pytest.mark.slow
def test_the_mode_of_shared_memory() -> None:
    _, found = examined(**shm("size=256M,mode=0755"))
    assert found["named shared memory"]["level"] == "warning"
    assert "0755" in found["named shared memory"]["found"]


def test_no_shared_memory_at_all(tmp_path: Path) -> None:
    found = only(check_memory.check(Host(tmp_path)), "named shared memory")
    assert found.level is Level.WARNING
    assert "No such file" in found.found
    unknown = only(check_memory.check(Host(tmp_path)), "shared memory size")
    assert unknown.level is Level.WARNING
    assert "free memory cannot be read" in unknown.found


@pytest.mark.parametrize(
    ("given", "level"), [("", "ok"), ("64M", "ok"), ("1M", "problem"), ("plenty", "problem")]
)
def test_a_limit_of_ones_own(given: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMND_MEMORY_LIMIT", given)
    assert only(check_memory.check(Host()), "SHMND_MEMORY_LIMIT").level == level


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "level", "segment"),
    [(0, "problem", "problem"), (1 << 19, "problem", "ok"), (1 << 30, "warning", "ok")],
)
def test_the_size_of_files(limit: int, level: str, segment: str) -> None:
    code, found = examined(f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))")
    assert found["RLIMIT_FSIZE"]["level"] == level
    assert found["a segment"]["level"] == segment
    assert code == 1 or level == "warning"


# -- control groups --

UNIFIED = "30 20 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
BOTH = (
    "31 20 0:31 /pod /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 20 0:32 /pod /sys/fs/cgroup/mem rw - cgroup cgroup rw,memory\n"
)


def test_the_least_limit_of_all_groups_above_counts(tmp_path: Path) -> None:
    host = files(
        tmp_path,
        proc__self__mountinfo=UNIFIED,
        proc__self__cgroup="0::/user.slice/shell\n",
        **{
            "sys__fs__cgroup__user.slice__cpu.max": "150000 100000\n",
            "sys__fs__cgroup__user.slice__shell__cpu.max": "max 100000\n",
        },
    )
    assert cpu_limit(host) == 1.5


def test_groups_of_version_one_as_a_container_sees_them(tmp_path: Path) -> None:
    host = files(
        tmp_path,
        proc__self__mountinfo=BOTH,
        proc__self__cgroup="4:memory:/pod/a\n1:cpu,cpuacct:/pod/a\n0::/\n",
        **{
            "sys__fs__cgroup__cpu__cpu.cfs_quota_us": "-1\n",
            "sys__fs__cgroup__cpu__a__cpu.cfs_quota_us": "50000\n",
            "sys__fs__cgroup__cpu__a__cpu.cfs_period_us": "100000\n",
        },
    )
    assert cpu_limit(host) == 0.5


def test_no_groups_no_limits(tmp_path: Path) -> None:
    assert cpu_limit(Host(tmp_path)) == float("inf")


@pytest.mark.parametrize(
    ("quota", "level"), [("100000 100000", Level.WARNING), ("max 100000", Level.OK)]
)
def test_less_than_two_processors_time(quota: str, level: Level, tmp_path: Path) -> None:
    host = files(
        tmp_path,
        proc__self__mountinfo=UNIFIED,
        proc__self__cgroup="0::/\n",
        **{"sys__fs__cgroup__cpu.max": quota},
    )
    assert only(check_cores.check(host), "CPU time").level is level


@pytest.mark.slow
def test_one_processor_alone() -> None:
    _, found = examined("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})")
    assert found["CPUs"]["level"] == "warning"
    assert found["CPUs"]["found"].startswith("1 of ")


def test_two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert only(check_cores.check(Host()), "CPUs").level is Level.OK


# -- limits --


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "level"), [(32, "problem"), (64, "warning"), (256, "ok")])
def test_descriptors(limit: int, level: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < 256:
        pytest.skip(f"only {hard} descriptors are allowed here")
    first = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {hard}))"
    assert examined(first)[1]["RLIMIT_NOFILE"]["level"] == level


@pytest.mark.slow
@pytest.mark.parametrize(("spare", "level"), [(32 << 20, "warning"), (1 << 30, "ok")])
def test_address_space(spare: int, level: str) -> None:
    first = (
        "import shmnd_tools.verbs.doctor\n"  # what it loads has its place already
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        f"limit = pages * resource.getpagesize() + {spare}\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))"
    )
    assert examined(first)[1]["RLIMIT_AS"]["level"] == level


def test_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert {each.level for each in check_limits.check(Host())} == {Level.OK}


# -- kernel and interpreter --


def missing(*_: object) -> NoReturn:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


@pytest.mark.parametrize(
    ("call", "check"), [("pidfd_open", "deaths of peers"), ("eventfd", "waking threads")]
)
def test_a_kernel_without(call: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(check_kernel.check(Host()), check).level is Level.OK
    monkeypatch.setattr(os, call, missing)
    found = only(check_kernel.check(Host()), check)
    assert found.level is Level.PROBLEM
    assert "Function not implemented" in found.found


def test_a_kernel_that_does_not_report_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_kernel, "_SO_PEERGROUPS", 9999)
    found = only(check_kernel.check(Host()), "groups of callers")
    assert found.level is Level.WARNING
    assert "Protocol not available" in found.found


@pytest.mark.slow
def test_private_memory_that_no_other_process_may_read() -> None:
    # A process that is not dumpable, and whose fellows have no rights beyond those of their user.
    program = (
        "import ctypes\n"
        "from shmnd_tools.checks.kernel import check\n"
        "from shmnd_tools.checks.finding import Host\n"
        "os.geteuid() or os.setuid(65534)\n"
        "ctypes.CDLL(None).prctl(4, 0)\n"
        "wanted = 'private memory of peers'\n"
        "say(*next((each.level, each.found) for each in check(Host()) if each.check == wanted))"
    )
    with Child(program, kit=False) as child:
        level, found = child.hear()
    assert level == "warning"
    assert "must not read it (tried)" in found


def test_the_setting_that_forbids_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_kernel, "private_memory_is_reachable", lambda: False)
    host = files(tmp_path, proc__sys__kernel__yama__ptrace_scope="2\n")
    found = only(check_kernel.check(host), "private memory of peers")
    assert found.found.endswith("kernel.yama.ptrace_scope is 2")


def test_an_interpreter_built_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: 0)
    assert only(check_kernel.check(Host()), "interpreter").level is Level.OK
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: 1)
    assert only(check_kernel.check(Host()), "interpreter").level is Level.WARNING


# -- service managers --


@pytest.fixture
def systemd(tmp_path: Path) -> Host:
    """A host on which systemd runs."""
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    return Host(tmp_path)


def use_runtime_dir(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMND_RUNTIME_DIR", folder)


def test_no_service_manager(tmp_path: Path) -> None:
    assert only(check_services.check(Host(tmp_path)), "service manager").level is Level.OK


def test_a_directory_of_a_unit_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_runtime_dir("/tmp/shmnd-1", monkeypatch)
    check = "view of the runtime directory"
    own = "/tmp/systemd-private-0a1b-app.service-Xy/tmp"
    host = files(
        tmp_path,
        proc__self__mountinfo=(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n" + f"2 1 8:1 {own} /tmp rw - ext4 /dev/a rw\n"
        ),
    )
    found = only(check_services.check(host), check)
    assert found.level is Level.WARNING
    assert "PrivateTmp" in found.found
    use_runtime_dir("/run/shmnd", monkeypatch)
    assert only(check_services.check(host), check).level is Level.OK


def test_a_directory_that_goes_at_logout(systemd: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    check = "runtime directory at logout"
    use_runtime_dir("/srv/shmnd", monkeypatch)
    assert only(check_services.check(systemd), check).level is Level.OK
    use_runtime_dir("/run/user/1000/shmnd", monkeypatch)
    monkeypatch.setattr(check_services, "_user", lambda: "ada")
    found = only(check_services.check(systemd), check)
    assert found.level is Level.WARNING
    assert "enable-linger ada" in found.remedy
    files(systemd.root, var__lib__systemd__linger__ada="")
    assert only(check_services.check(systemd), check).level is Level.OK


def test_names_that_are_removed_are_none_of_ours(
    systemd: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = "names at logout"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "RemoveIPC=yes removes names" in only(check_services.check(systemd), check).found
    files(systemd.root, **{"etc__systemd__logind.conf": "[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n"})
    assert "RemoveIPC=no" in only(check_services.check(systemd), check).found
    files(systemd.root, **{"usr__lib__systemd__logind.conf.d__5.conf": "RemoveIPC = yes\n"})
    assert "RemoveIPC=yes" in only(check_services.check(systemd), check).found
    files(systemd.root, **{"etc__systemd__logind.conf.d__5.conf": "\n"})
    assert "RemoveIPC=no" in only(check_services.check(systemd), check).found


def test_a_directory_whose_things_grow_old(systemd: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    check = "age of the runtime directory"
    use_runtime_dir("/tmp/shmnd-1", monkeypatch)
    assert only(check_services.check(systemd), check).level is Level.OK
    files(systemd.root, **{"usr__lib__tmpfiles.d__tmp.conf": "q /tmp 1777 root root 10d\n"})
    found = only(check_services.check(systemd), check)
    assert found.level is Level.WARNING
    assert "in /tmp for 10d" in found.found
    files(systemd.root, **{"etc__tmpfiles.d__shmnd.conf": "x /tmp/shmnd-1\n"})
    assert only(check_services.check(systemd), check).level is Level.OK


@pytest.mark.parametrize(
    ("lines", "age"),
    [
        ("", None),
        ("d /tmp/a 0755 root root 5d", "5d"),
        ("d /tmp 1777 root root 10d\nd /tmp/a - - - 1h", "1h"),
        ("d /tmp 1777 root root -", None),
        ("d /tmp 1777 root root -\nd /tmp 1777 root root 10d", None),
        ("e /tmp/* - - - ~3w # old", "3w"),
        ("D! /tmp 1777 root root 10d", None),
        ("d /other - - - 10d", None),
        ("d %t - - - 10d", None),
        ("f /tmp/a/b - - - 10d", None),
        ('d "/tmp - - - 10d', None),
        ("v /tmp - - - 10d\nx /tmp/a*", None),
        ("v /tmp - - - 10d\nX /tmp/a", "10d"),
    ],
)
def test_lines_about_age(lines: str, age: str | None, tmp_path: Path) -> None:
    host = files(tmp_path, **{"etc__tmpfiles.d__a.conf": lines})
    rule = rule_of(host, PurePosixPath("/tmp/a/b"))
    assert (rule and rule.age) == age


def test_a_file_takes_out_its_namesakes(tmp_path: Path) -> None:
    host = files(tmp_path, **{"usr__lib__tmpfiles.d__tmp.conf": "d /tmp - - - 1d"})
    assert rule_of(host, PurePosixPath("/tmp/a")) is not None
    (tmp_path / "etc/tmpfiles.d").mkdir(parents=True)
    (tmp_path / "etc/tmpfiles.d/tmp.conf").symlink_to("/dev/null")
    assert rule_of(host, PurePosixPath("/tmp/a")) is None


# -- namespaces that do not meet --


def test_a_runtime_directory_that_is_open_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    use_runtime_dir(str(tmp_path), monkeypatch)
    found = [*check_broker.check("doctor")]
    assert only(found, "runtime directory").level is Level.PROBLEM
    assert "may be written by others" in only(found, "runtime directory").found
    assert "broker" not in {each.check for each in found}
    assert [*check_services.check(Host())]


@pytest.mark.slow
def test_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    check = "broker"
    found = only(check_broker.check("doctored"), check)
    assert (found.level, found.found) == (Level.OK, "none runs; the first adapter starts one")
    with Child("adapter = shmnd.open_adapter(namespace='doctored'); say('here'); hear()") as child:
        assert child.hear() == "here"
        found = only(check_broker.check("doctored"), check)
        assert found.level is Level.OK
        assert found.found.endswith("it knows 1 process")
        used = only(check_broker.check("doctored"), "processes")
        assert used.found == "1 process, 0 connections"
        monkeypatch.setattr(check_broker, "VERSION", 99)
        found = only(check_broker.check("doctored"), check)
        assert found.level is Level.PROBLEM
        assert "this installation 99" in found.found
    end_process(broker_pid(place_of("doctored")))


def test_a_broker_with_few_descriptors() -> None:
    first = "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))"
    code = f"import resource; {first}; a = shmnd.open_adapter(namespace='poor'); say(1); hear()"
    with Child(code) as child:
        assert child.hear() == 1
        try:
            found = only(check_broker.check("poor"), "broker")
        finally:
            end_process(broker_pid(place_of("poor")))
    assert found.level is Level.WARNING
    assert found.found.endswith("it knows 1 process, and may have 64 descriptors")
    assert "--replace" in found.remedy


def test_a_broker_whose_process_is_not_visible_has_no_warning() -> None:
    assert check_broker._descriptors_of(0) == check_broker._FEW


def test_a_broker_that_gives_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "LIMIT", 0.05)
    place = place_of("mute")
    with place.listen():
        found = only(check_broker.check("mute"), "broker")
    place.socket.unlink()
    assert found.level is Level.PROBLEM
    assert "did not answer" in found.found


@pytest.mark.parametrize("name", ["lock", "broker.sock", "broker.new"])
def test_a_directory_in_the_place_of_a_file_of_the_broker(name: str) -> None:
    place = place_of("obstructed")
    obstacle = place.directory / name
    obstacle.mkdir()
    found = only(check_broker.check("obstructed"), "broker")
    obstacle.rmdir()
    assert found.level is Level.PROBLEM
    assert str(obstacle) in found.found
    place.directory.mkdir(mode=0o700, exist_ok=True)
    (place.directory / name).touch()  # such as a crash leaves
    assert only(check_broker.check("obstructed"), "broker").level is Level.OK
    (place.directory / name).unlink()


def test_leftovers_of_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_runtime_dir(str(tmp_path), monkeypatch)
    assert only(check_broker.check("left"), "leftovers").level is Level.OK
    place_of("left").listen().close()
    place_of("too").listen().close()
    found = only(check_broker.check("left"), "leftovers")
    assert found.level is Level.WARNING
    assert found.found == f"2, 0 KiB: {place_of('left').socket}, …"
