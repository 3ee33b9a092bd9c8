# SPDX-License-Identifier: Apache-2.0
"""Addresses: which ones this host serves, how they are written, and their exact bytes.

An address is `(host, port)` with a numeric IPv4 or IPv6 host. Inside shmnd it is always
normalised: one spelling per address, no scope (every scope of this host leads to this host), and
an IPv4 address that is wrapped in IPv6 becomes the IPv4 address. So `==` compares addresses.
"""

from __future__ import annotations

import functools
import ipaddress
import operator
import socket
import struct
from typing import TYPE_CHECKING, Final, SupportsIndex

from shmnd.common.arguments import parameter_status, shown
from shmnd.common.interruption import pass_on
from shmnd.common.native import address_of
from shmnd.common.objects import REMEDY, holds_objects
from shmnd.status import Status, error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Buffer  # collections.abc has it from Python 3.12 on

__all__ = [
    "Address",
    "address_list_into",
    "address_list_size",
    "family",
    "host_addresses",
    "into",
    "is_any",
    "is_local",
    "pack_address_list",
    "pack_sockaddr",
    "parse",
    "parse_host",
    "require_local",
    "unpack_address_list",
    "unpack_sockaddr",
    "writable_bytes",
]

Address = tuple[str, int]
"""A normalised `(host, port)`."""

_ALWAYS_FIRST: Final = ("127.0.0.1", "127.0.0.2")
_ALWAYS_LAST: Final = ("::1",)
_ANY_HOSTS: Final = ("0.0.0.0", "::")
_PORT_MAX: Final = 0xFFFF

# sockaddr_in and sockaddr_in6, each without the two bytes of the family (host order).
_FAMILY: Final = struct.Struct("=H")
_SOCKADDR_IN: Final = struct.Struct("!H4s8x")
_SOCKADDR_IN6: Final = struct.Struct("!HI16sI")
_SOCKADDR_MIN: Final = _FAMILY.size + _SOCKADDR_IN.size
_SOCKADDR_SIZE: Final = {
    int(socket.AF_INET): _SOCKADDR_MIN,
    int(socket.AF_INET6): _FAMILY.size + _SOCKADDR_IN6.size,
}

_LIST_HEAD: Final = struct.Struct("<i4x")  # SOCKET_ADDRESS_LIST up to its first entry
_LIST_ENTRY: Final = struct.Struct("<Qi4x")  # SOCKET_ADDRESS: pointer, length


@functools.lru_cache(1024)
def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return a numeric host as an address, without its scope; ValueError if it is not numeric.

    An IPv4 address that is wrapped in IPv6 is returned as IPv4.
    """
    ip = ipaddress.ip_address(host)
    if isinstance(ip, ipaddress.IPv6Address):
        return ip.ipv4_mapped or ipaddress.IPv6Address(int(ip))
    return ip


@functools.lru_cache(1024)
def _normalised(host: str) -> str:
    return str(_ip(host))


@functools.lru_cache(1024)
def _is_loopback(host: str) -> bool:
    return _ip(host).is_loopback


def parse_host(host: object, call: str, parameter: int) -> str:
    """Return a host in normal form. `parameter` is its number in `call`, for a wrong type."""
    if isinstance(host, (ipaddress.IPv4Address, ipaddress.IPv6Address)):
        host = str(host)
    if not isinstance(host, str):
        raise error(
            parameter_status(parameter),
            call,
            f"host {shown(host)} is not a str such as '127.0.0.1' or '::1'",
        )
    if host == "localhost":
        return _ALWAYS_FIRST[0]
    if not host:  # what the socket module takes for every address
        return _ANY_HOSTS[0]
    try:
        return _normalised(host)
    except ValueError as exc:
        pass_on(exc)
        raise error(
            Status.INVALID_ADDRESS,
            call,
            f"host {host!r} is not a numeric IPv4 or IPv6 address; "
            "pass '127.0.0.1', or 'localhost'",
        ) from None


def parse(address: object, call: str, parameter: int) -> Address:
    """Return `(host, port)` in normal form. `parameter` is its number in `call`, for an error.

    The four-part form that the socket module returns for IPv6 is taken too.
    """
    if not isinstance(address, (tuple, list)) or len(address) not in (2, 4):
        raise error(
            parameter_status(parameter),
            call,
            f"address {shown(address)} is not a pair (host, port) such as ('127.0.0.1', 54321)",
        )
    host, port = parse_host(address[0], call, parameter), address[1]
    if not isinstance(port, (int, SupportsIndex)) or isinstance(port, bool):
        raise error(
            parameter_status(parameter),
            call,
            f"port {shown(port)} is not an int; pass one from 0 to {_PORT_MAX}",
        )
    port = operator.index(port)
    if not 0 <= port <= _PORT_MAX:
        outside = f"port {shown(port)} is outside 0..{_PORT_MAX}"
        raise error(parameter_status(parameter), call, outside)
    return host, port


def family(host: str) -> socket.AddressFamily:
    """Return AF_INET or AF_INET6 for a normalised host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_any(host: str) -> bool:
    """Return whether a normalised host stands for every address."""
    return host in _ANY_HOSTS


def _interface_hosts() -> list[str]:
    """Return the addresses of the present interfaces, in their normal form."""
    # Imported here: a process that uses loopback addresses alone never needs psutil, which takes a
    # quarter as long to load as shmnd.
    import psutil

    return [
        str(_ip(entry.address))
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    ]


def host_addresses() -> list[str]:
    """Return the hosts that an adapter reports: 127.0.0.1, 127.0.0.2, every interface's, `::1`.

    Link-local addresses are served, but not listed: without a scope they mean nothing to the
    other programs that a user would hand the list to.
    """
    usable = (h for h in _interface_hosts() if not ipaddress.ip_address(h).is_link_local)
    ordered = dict.fromkeys((*_ALWAYS_FIRST, *usable))
    for host in _ALWAYS_LAST:
        ordered.pop(host, None)
    return [*ordered, *_ALWAYS_LAST]


def is_local(host: str) -> bool:
    """Return whether this host answers to a normalised host: every 127.x.y.z, `::1`, its own."""
    # Loopback addresses first: they need no system call for the list of interfaces.
    return _is_loopback(host) or host in _interface_hosts()


def require_local(host: str, call: str) -> None:
    """Raise INVALID_ADDRESS unless this host answers to a normalised host."""
    if not is_local(host):
        raise error(
            Status.INVALID_ADDRESS,
            call,
            f"{host} is not an address of this host ({', '.join(host_addresses())})",
        )


def pack_sockaddr(address: Address) -> bytes:
    """Return sockaddr_in (16 bytes) or sockaddr_in6 (28 bytes) of a normalised address."""
    host, port = address
    kind = family(host)
    packed = ipaddress.ip_address(host).packed
    if kind == socket.AF_INET:
        return _FAMILY.pack(kind) + _SOCKADDR_IN.pack(port, packed)
    return _FAMILY.pack(kind) + _SOCKADDR_IN6.pack(port, 0, packed, 0)


def unpack_sockaddr(data: Buffer, call: str = "unpack_sockaddr", parameter: int = 1) -> Address:
    """Return the address in a sockaddr.

    A sockaddr that is too short is an invalid parameter; one of another family is INVALID_ADDRESS.
    """
    octets = bytes(data)
    if len(octets) < _SOCKADDR_MIN:
        raise error(
            parameter_status(parameter),
            call,
            f"{len(octets)} bytes are not a sockaddr (>= {_SOCKADDR_MIN})",
        )
    (kind,) = _FAMILY.unpack_from(octets)
    size = _SOCKADDR_SIZE.get(kind)
    if size is None:
        raise error(Status.INVALID_ADDRESS, call, f"family {kind} is neither IPv4 nor IPv6")
    if len(octets) < size:
        raise error(
            parameter_status(parameter),
            call,
            f"{len(octets)} bytes are not a sockaddr_in6 (>= {size})",
        )
    if kind == socket.AF_INET:
        port, packed = _SOCKADDR_IN.unpack_from(octets, _FAMILY.size)
    else:
        port, _, packed, _ = _SOCKADDR_IN6.unpack_from(octets, _FAMILY.size)
    return str(_ip(str(ipaddress.ip_address(packed)))), port


def address_list_size(addresses: Iterable[Address]) -> int:
    """Return the bytes that SOCKET_ADDRESS_LIST needs for these addresses."""
    return _LIST_HEAD.size + sum(
        _LIST_ENTRY.size + _SOCKADDR_SIZE[family(host)] for host, _ in addresses
    )


def pack_address_list(addresses: Sequence[Address], base: int) -> bytes:
    """Return SOCKET_ADDRESS_LIST with its sockaddrs behind it, as it must lie at address `base`."""
    sockaddrs = [pack_sockaddr(address) for address in addresses]
    place = base + _LIST_HEAD.size + _LIST_ENTRY.size * len(sockaddrs)
    parts = [_LIST_HEAD.pack(len(sockaddrs))]
    for sockaddr in sockaddrs:
        parts.append(_LIST_ENTRY.pack(place, len(sockaddr)))
        place += len(sockaddr)
    return b"".join(parts + sockaddrs)


def unpack_address_list(data: Buffer, base: int) -> list[Address]:
    """Return the addresses of a SOCKET_ADDRESS_LIST at `base`; no byte outside it is read."""
    call = "unpack_address_list"
    octets = bytes(data)
    count = _LIST_HEAD.unpack_from(octets)[0] if len(octets) >= _LIST_HEAD.size else -1
    if not 0 <= count <= (len(octets) - _LIST_HEAD.size) // _LIST_ENTRY.size:
        raise error(
            Status.INVALID_BUFFER_SIZE, call, f"{len(octets)} bytes hold no {count} addresses"
        )
    addresses = []
    for index in range(count):
        offset = _LIST_HEAD.size + index * _LIST_ENTRY.size
        pointer, size = _LIST_ENTRY.unpack_from(octets, offset)
        start = pointer - base
        if not 0 <= start <= start + size <= len(octets):
            raise error(Status.INVALID_ADDRESS, call, f"entry {index} lies outside the buffer")
        addresses.append(unpack_sockaddr(octets[start : start + size], call))
    return addresses


def writable_bytes(call: str, buffer: Buffer | None, parameter: int = 1) -> memoryview:
    """Return a caller's buffer as writable bytes; None is a buffer of no bytes."""
    try:
        view = memoryview(b"" if buffer is None else buffer)
    except TypeError:
        raise error(
            parameter_status(parameter),
            call,
            f"{type(buffer).__name__} is not a buffer; pass a bytearray, or None for the size",
        ) from None
    if view.nbytes == 0:
        return memoryview(b"")
    if view.readonly or not view.c_contiguous:
        raise error(
            parameter_status(parameter),
            call,
            f"{type(buffer).__name__} is not writable contiguous memory; pass a bytearray",
        )
    if holds_objects(view.format, buffer):
        raise error(parameter_status(parameter), call, f"{type(buffer).__name__} of {REMEDY}")
    return view.cast("B")


def _require_room(call: str, room: memoryview, needed: int) -> None:
    """Raise BUFFER_OVERFLOW, with the needed size as `.required`, if the buffer is too small."""
    if room.nbytes < needed:
        raise error(
            Status.BUFFER_OVERFLOW,
            call,
            f"buffer has {room.nbytes} bytes, {needed} are needed",
            required=needed,
        )


def into(
    call: str,
    buffer: Buffer | None,
    payload: bytes,
    partial: bool = False,
    *,
    parameter: int = 1,
) -> int:
    """Fill a caller's buffer by the size-query rules of the interface; return the bytes used.

    None and an empty buffer ask for the size. A buffer that is too small is BUFFER_OVERFLOW with
    `.required` set, and stays untouched, or with `partial` gets what fits.
    """
    with writable_bytes(call, buffer, parameter) as room:
        if partial:
            fitting = min(room.nbytes, len(payload))
            if fitting:
                room[:fitting] = payload[:fitting]
        _require_room(call, room, len(payload))
        if payload and not partial:
            room[: len(payload)] = payload
    return len(payload)


def address_list_into(
    call: str, buffer: Buffer | None, addresses: Sequence[Address], *, parameter: int = 1
) -> int:
    """Fill a buffer with SOCKET_ADDRESS_LIST, whose pointers point into it; return its size."""
    needed = address_list_size(addresses)
    with writable_bytes(call, buffer, parameter) as room:
        _require_room(call, room, needed)
        base = address_of(room)
        room[:needed] = pack_address_list(addresses, base)
    return needed
