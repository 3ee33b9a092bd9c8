# SPDX-License-Identifier: Apache-2.0
"""Values that no call takes, where the error names them; and what objects tell of themselves."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import shmnd
import shmnd.nd1 as nd
from shmnd import MrFlag, NdError, OpFlag, Sge, Status

Ends = SimpleNamespace
Call = Callable[[Ends], object]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """An object of each kind, in both versions."""
    made = Ends()
    with shmnd.open_adapter() as adapter, nd.Provider().open_adapter("127.0.0.1") as earlier:
        made.adapter, made.adapter1 = adapter, earlier
        made.cq, made.cq1 = adapter.create_completion_queue(16), earlier.create_completion_queue(16)
        made.srq = adapter.create_shared_receive_queue(4)
        made.qp = adapter.create_queue_pair(made.cq, made.cq)
        made.connector, made.connector1 = adapter.create_connector(), earlier.create_connector()
        made.endpoint1 = made.connector1.create_endpoint(made.cq1, made.cq1, 4, 4, 1, 1, 1, 1)
        made.region = adapter.create_memory_region()
        made.region.register(bytearray(64), MrFlag.ALLOW_LOCAL_WRITE).result(5)
        made.memory1 = adapter.allocate(64)
        made.handle1 = earlier.register_memory(made.memory1)[0]
        made.window1 = earlier.create_memory_window()
        yield made
    vars(made).clear()  # a failure would keep it, and memory lives as long as any reference


def bind_at(ends: Ends) -> int:
    """Where a window of version 1 may lie."""
    return int(ends.memory1.ctypes.data)


_READ = OpFlag.ALLOW_READ

REFUSED: dict[str, tuple[Call, Status, str]] = {
    "sge, length": (lambda e: Sge(1, -1, 1), Status.INVALID_PARAMETER_2, "-1"),
    "sge, address": (lambda e: Sge(-1, 1, 1), Status.INVALID_PARAMETER_1, "-1"),
    "sge, token": (lambda e: Sge(1, 1, 1 << 32), Status.INVALID_PARAMETER_3, str(1 << 32)),
    "list, length": (
        lambda e: e.qp.receive([e.region.sge(0, 1)] * 17), Status.DATA_OVERRUN, "17",
    ),
    "timeout of a receiver": (
        lambda e: shmnd.open_adapter(rnr_timeout=0), Status.INVALID_PARAMETER_3, "rnr_timeout 0",
    ),
    "group, number": (
        lambda e: shmnd.open_adapter(group=1 << 32), Status.INVALID_PARAMETER, str(1 << 32),
    ),
    "group, name": (
        lambda e: shmnd.open_adapter(group="no such group"),
        Status.INVALID_PARAMETER, "'no such group' does not exist",
    ),
    "memory beyond all": (
        lambda e: e.adapter.create_memory_region().register((1 << 64, 1), 0),
        Status.ACCESS_VIOLATION, "no memory",
    ),
    "sge of version 1, length": (
        lambda e: nd.Sge(1, 1 << 64, 1), Status.INVALID_PARAMETER_2, str(1 << 64),
    ),
    "sge of version 1, no length": (
        lambda e: nd.Sge(1, None, 1), Status.INVALID_PARAMETER_2, "pass an int, not NoneType",
    ),
    "descriptor": (
        lambda e: nd.MwDescriptor(0, 0, -1), Status.INVALID_PARAMETER,
        "MwDescriptor: token -1 is outside 0..4294967295",
    ),
    "descriptor, short": (
        lambda e: nd.MwDescriptor.unpack(bytes(19)), Status.INVALID_BUFFER_SIZE, "19",
    ),
    "element behind the region": (
        lambda e: e.region.sge(65), Status.INVALID_PARAMETER_1, "offset 65 on, the region has 64",
    ),
    "element of no region": (
        lambda e: e.adapter.create_memory_region().sge(),
        Status.INVALID_DEVICE_STATE, "MemoryRegion.sge: no buffer",
    ),
    "info of version 1, short": (
        lambda e: nd.AdapterInfo.unpack(bytes(127)), Status.INVALID_BUFFER_SIZE,
        "127 bytes are fewer than the 128 of the structure; pass all that pack() returned",
    ),
    "info, field": (
        lambda e: shmnd.AdapterInfo(vendor_id=1 << 16 << 16).pack(),
        Status.INVALID_PARAMETER, "AdapterInfo.pack: vendor_id 4294967296 is outside 0..",
    ),
    "info, field of 16 bits": (
        lambda e: shmnd.AdapterInfo(device_id=-1).pack32(),
        Status.INVALID_PARAMETER, "AdapterInfo.pack32: device_id -1 is outside 0..65535",
    ),
    "info of version 1, field": (
        lambda e: nd.AdapterInfo(max_callee_data="x").pack(),
        Status.INVALID_PARAMETER, "AdapterInfo.pack: max_callee_data 'x' is outside 0..",
    ),
    "handle of version 1": (
        lambda e: e.adapter1.deregister_memory(12), Status.INVALID_HANDLE,
        "12 is not a memory handle; register_memory returns one",
    ),
    "host of version 1": (
        lambda e: nd.Provider().open_adapter("8.8.8.8"), Status.INVALID_ADDRESS,
        "8.8.8.8 is not an address of this host",
    ),
    "peer of version 1": (
        lambda e: e.connector1.connect(e.endpoint1, ("127.0.0.1", 70000)), Status.INVALID_ADDRESS,
        "port 70000 is outside",
    ),
    "request of version 1": (
        lambda e: e.connector1.get_connection_data(), Status.CONNECTION_INVALID,
        "or of Listen.get_connection_request, first",
    ),
    "endpoint of version 1": (
        lambda e: e.endpoint1.send(nd.Result(), None), Status.CONNECTION_INVALID,
        "the endpoint is not connected",
    ),
}  # fmt: skip

NO_TYPE: dict[str, tuple[Call, str]] = {
    "bytes of an info": (
        lambda e: shmnd.AdapterInfo.unpack(1), "AdapterInfo.unpack: data must be bytes .*not int",
    ),
    "bytes of an info of version 1": (
        lambda e: nd.AdapterInfo.unpack(None), "AdapterInfo.unpack: data must be bytes .*not None",
    ),
    "bytes of a descriptor": (
        lambda e: nd.MwDescriptor.unpack("x"), "MwDescriptor.unpack: data must be bytes .*not str",
    ),
    "offset of version 1": (
        lambda e: e.endpoint1.read(nd.Result(), None, nd.MwDescriptor(1, 1, 1), None),
        "Endpoint.read: offset must be an int, not NoneType",
    ),
    "list": (lambda e: e.qp.send("sge"), "str"),
    "entry of a list": (lambda e: e.qp.send(["sge"]), "str"),
    "flags of a request": (lambda e: e.qp.send(None, flags="flags"), "QueuePair.send: flags"),
    "flags in the place of a context": (
        lambda e: e.qp.send(e.region.sge(), OpFlag.INLINE),
        r"QueuePair.send: .*INLINE.* passed as the context; pass flags .*: flags=OpFlag.INLINE",
    ),
    "flags of a Read in the place of a context": (
        lambda e: e.qp.read(None, 0, 0, OpFlag.READ_FENCE), "QueuePair.read: .*flags=OpFlag.READ_F",
    ),
    "flags of a Write in the place of a context": (
        lambda e: e.qp.write(None, 0, 0, OpFlag.INLINE), "QueuePair.write: .*flags=OpFlag.INLINE",
    ),
    "flags of a Bind in the place of a context": (
        lambda e: e.qp.bind(e.region, e.adapter.create_memory_window(), 0, 1, _READ),
        "QueuePair.bind: .*flags=OpFlag.ALLOW_READ",
    ),
    "flags of an Invalidate in the place of a context": (
        lambda e: e.qp.invalidate(e.adapter.create_memory_window(), OpFlag.SILENT_SUCCESS),
        "QueuePair.invalidate: .*flags=OpFlag.SILENT_SUCCESS",
    ),
    "flags of memory in the place of a context": (
        lambda e: e.qp.send(None, MrFlag.ALLOW_LOCAL_WRITE), "flags=OpFlag",
    ),
    "flags by position": (lambda e: e.qp.send(None, None, OpFlag.INLINE), "positional"),
    "flags of memory for a request": (
        lambda e: e.qp.send(None, flags=MrFlag.ALLOW_REMOTE_READ), "OpFlag .*not MrFlag",
    ),
    "flags of a request for memory": (
        lambda e: e.adapter.create_memory_region().register(bytearray(8), OpFlag.INLINE),
        "MrFlag .*not OpFlag",
    ),
    "a truth for flags": (lambda e: e.qp.send(None, flags=True), "flags must be OpFlag .*bool"),
    "flags of memory": (
        lambda e: e.adapter.create_memory_region().register(bytearray(8), "flags"), "flags",
    ),
    "result": (lambda e: e.endpoint1.send("result", None), "Result"),
    "result of a bind": (
        lambda e: e.endpoint1.bind("result", e.handle1, e.window1, bind_at(e), 8, _READ),
        "result must be a Result",
    ),
    "result of a window": (
        lambda e: e.adapter1.create_memory_window("result"), "invalidate_result must be a Result",
    ),
    "flags of a bind": (
        lambda e: e.endpoint1.bind(nd.Result(), e.handle1, e.window1, bind_at(e), 8, "flags"),
        "flags must be OpFlag",
    ),
    "flags of an invalidate": (
        lambda e: e.endpoint1.invalidate(nd.Result(), e.window1, "flags"), "flags",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_value_that_is_none_is_refused(ends: Ends, what: str) -> None:
    call, status, named = REFUSED[what]
    with pytest.raises(NdError) as caught:
        call(ends)
    assert caught.value.status is status
    assert named in str(caught.value)


@pytest.mark.parametrize("what", NO_TYPE)
def test_a_thing_of_another_type_is_refused(ends: Ends, what: str) -> None:
    call, named = NO_TYPE[what]
    with pytest.raises(TypeError, match=named):
        call(ends)


def test_memory_that_is_open_for_reading_alone_is_refused_once(ends: Ends) -> None:
    with Path("/dev/null").open("rb") as file:
        descriptor = file.fileno()
        with pytest.raises(NdError) as caught:
            ends.adapter.attach(descriptor)
    assert str(caught.value) == (
        f"Adapter.attach: {descriptor} cannot be opened: it is open for reading only; pass"
        " writable=False [ACCESS_VIOLATION]"
    )


def test_objects_describe_themselves(ends: Ends) -> None:
    assert repr(Sge(0x1000, 8, 0xAB)) == "Sge(0x1000, 8, 0xab)"
    assert repr(nd.Sge(0x1000, 8, 0xAB)) == "Sge(0x1000, 8, 0xab)"
    assert repr(nd.Sge(0x1000, 8, None)) == "Sge(0x1000, 8, inline)"
    assert repr(nd.MwDescriptor(0x10, 8, 0xAB)) == "MwDescriptor(0x10, 8, 0xab)"
    assert "127.0.0.1 open" in repr(ends.adapter)
    assert repr(ends.adapter1) == f"<nd1 {ends.adapter1._core!r}>"
    assert repr(nd.Result()) == "<Result PENDING 0 bytes>"
    assert repr(ends.connector).startswith("<Connector ")
    ends.adapter.close()
    assert "127.0.0.1 closed" in repr(ends.adapter)


def test_equal_objects_have_one_hash() -> None:
    for one, same, other in (
        (Sge(1, 2, 3), Sge(1, 2, 3), Sge(1, 2, 4)),
        (nd.MwDescriptor(1, 2, 3), nd.MwDescriptor(1, 2, 3), nd.MwDescriptor(1, 2, 4)),
    ):
        assert one == same
        assert hash(one) == hash(same)
        assert one != other
        assert one != (1, 2, 3)


def test_a_closed_shared_queue_refuses_a_notify(ends: Ends) -> None:
    ends.srq.close()
    with pytest.raises(NdError) as caught:
        ends.srq.notify()
    assert caught.value.status is Status.INVALID_HANDLE


def test_buffers_of_version_1_are_filled_to_the_reported_size(ends: Ends) -> None:
    with pytest.raises(NdError) as caught:
        ends.adapter1.query_address_list_into(None)
    assert caught.value.status is Status.BUFFER_OVERFLOW
    buffer = bytearray(4096)
    nbytes = ends.adapter1.query_address_list_into(buffer)
    assert any(buffer[:nbytes])
    assert not any(buffer[nbytes:])


def test_objects_of_the_other_version_are_refused(ends: Ends) -> None:
    """Both versions have a class of the same name, which alone would say nothing."""
    window = ends.adapter.create_memory_window()
    with ends.adapter.create_listener() as listener, ends.adapter1.listen() as listen:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        calls: tuple[tuple[Call, str], ...] = (
            (lambda e: e.connector1.create_endpoint(e.cq, e.cq, 1, 1, 1, 1), "CompletionQueue"),
            (lambda e: listener.get_connection_request(e.connector1), "Connector"),
            (lambda e: listen.get_connection_request(e.connector), "Connector"),
            (lambda e: e.qp.invalidate(e.window1), "MemoryWindow"),
            (lambda e: e.endpoint1.invalidate(nd.Result(), window), "MemoryWindow"),
        )
        for call, name in calls:
            with pytest.raises(NdError, match=rf"{name} of shmnd\S+ is not an? {name} of this ver"):
                call(ends)
