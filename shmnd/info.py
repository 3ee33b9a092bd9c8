# SPDX-License-Identifier: Apache-2.0
"""What an adapter reports about itself, and the exact bytes of ND2_ADAPTER_INFO."""

from __future__ import annotations

import dataclasses
import re
import struct
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.arguments import within
from shmnd.status import AdapterFlag, Status, error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Buffer  # collections.abc has it from Python 3.12 on

__all__ = [
    "ADAPTER_INFO32_SIZE",
    "ADAPTER_INFO_SIZE",
    "INFO_VERSIONS",
    "LIMITS",
    "ND_VERSION_1",
    "ND_VERSION_2",
    "AdapterInfo",
    "pack_structure",
    "requested_version",
    "unpack_structure",
]

ND_VERSION_1: Final = 0x1
ND_VERSION_2: Final = 0x20000

INFO_VERSIONS: Final = (ND_VERSION_1, ND_VERSION_2)
"""Accepted in InfoVersion, and echoed: the document says 1, programs pass 0x20000."""

# InfoVersion, VendorId, DeviceId, AdapterId; two sizes; sixteen more 32-bit fields.
_LAYOUT64: Final = struct.Struct("<IHHQ QQ 16I")
_LAYOUT32: Final = struct.Struct("<IHHQ II 16I")

ADAPTER_INFO_SIZE: Final = _LAYOUT64.size
ADAPTER_INFO32_SIZE: Final = _LAYOUT32.size

_U32_MAX: Final = 0xFFFFFFFF
_FIELDS: Final = re.compile(r"(\d*)([HIQ])")
_BITS: Final = {"H": 16, "I": 32, "Q": 64}
_NO_FLAGS: Final = AdapterFlag(0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdapterInfo:
    """ND2_ADAPTER_INFO: one attribute per field, in the order of the structure."""

    info_version: int = ND_VERSION_1
    vendor_id: int = 0
    device_id: int = 0
    adapter_id: int = 0
    max_registration_size: int = 0
    max_window_size: int = 0
    max_initiator_sge: int = 0
    max_receive_sge: int = 0
    max_read_sge: int = 0
    max_transfer_length: int = 0
    max_inline_data_size: int = 0
    max_inbound_read_limit: int = 0
    max_outbound_read_limit: int = 0
    max_receive_queue_depth: int = 0
    max_initiator_queue_depth: int = 0
    max_shared_receive_queue_depth: int = 0
    max_completion_queue_depth: int = 0
    inline_request_threshold: int = 0
    large_request_threshold: int = 0
    max_caller_data: int = 0
    max_callee_data: int = 0
    adapter_flags: AdapterFlag = _NO_FLAGS

    def pack(self) -> bytes:
        """Return the 96 bytes of ND2_ADAPTER_INFO (64-bit, little-endian)."""
        return self._pack(_LAYOUT64, "AdapterInfo.pack")

    def pack32(self) -> bytes:
        """Return the 88 bytes of ND2_ADAPTER_INFO32; the two sizes are clipped to 32 bits."""
        clipped = dataclasses.replace(
            self,
            max_registration_size=min(self.max_registration_size, _U32_MAX),
            max_window_size=min(self.max_window_size, _U32_MAX),
        )
        return clipped._pack(_LAYOUT32, "AdapterInfo.pack32")

    def _pack(self, layout: struct.Struct, call: str) -> bytes:
        return pack_structure(call, layout, {f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def unpack(cls, data: Buffer) -> AdapterInfo:
        """Return the fields of ND2_ADAPTER_INFO; further bytes, a vendor's own, are left out."""
        return cls._unpack(_LAYOUT64, data, "AdapterInfo.unpack")

    @classmethod
    def unpack32(cls, data: Buffer) -> AdapterInfo:
        """Return the fields of ND2_ADAPTER_INFO32."""
        return cls._unpack(_LAYOUT32, data, "AdapterInfo.unpack32")

    @classmethod
    def _unpack(cls, layout: struct.Struct, data: Buffer, call: str) -> AdapterInfo:
        values = unpack_structure(call, layout, data)
        named = dict(zip((field.name for field in fields(cls)), values, strict=True))
        named["adapter_flags"] = AdapterFlag(named["adapter_flags"])
        return cls(**named)


LIMITS: Final = AdapterInfo(
    device_id=1,
    max_registration_size=1 << 46,
    max_window_size=1 << 46,
    max_initiator_sge=16,
    max_receive_sge=16,
    max_read_sge=16,
    max_transfer_length=0x80000000,
    max_inline_data_size=1024,
    max_inbound_read_limit=64,
    max_outbound_read_limit=64,
    max_receive_queue_depth=4096,
    max_initiator_queue_depth=4096,
    max_shared_receive_queue_depth=65536,
    max_completion_queue_depth=65536,
    # Measured (docs/benchmarks/thresholds.md). Below 512 bytes both ways go through the ring, and
    # inline data needs no token check; longer registered memory goes straight into its receive.
    inline_request_threshold=512,
    # Of long messages both sides copy a part, but a Write is its initiator's work alone: there is
    # no size above which Read and Write would be the better choice.
    large_request_threshold=0x80000000,
    max_caller_data=512,
    max_callee_data=512,
    adapter_flags=(
        AdapterFlag.IN_ORDER_DMA_SUPPORTED
        | AdapterFlag.MULTI_ENGINE_SUPPORTED
        | AdapterFlag.CQ_RESIZE_SUPPORTED
        | AdapterFlag.LOOPBACK_CONNECTIONS_SUPPORTED
    ),
)
"""What every adapter of this provider can do, whatever the load."""


def requested_version(call: str, octets: memoryview) -> int:
    """Return the InfoVersion that a caller has set in a buffer; the latest for a short one."""
    if octets.nbytes < ADAPTER_INFO_SIZE:
        return INFO_VERSIONS[-1]
    version = int.from_bytes(octets[:4], "little")
    if version not in INFO_VERSIONS:
        known = ", ".join(f"{v:#x}" for v in INFO_VERSIONS)
        raise error(
            Status.INVALID_PARAMETER_1, call, f"InfoVersion {version:#x} is none of {known}"
        )
    return version


# -- the bytes of structures, of either version --


def pack_structure(call: str, layout: struct.Struct, values: Mapping[str, object]) -> bytes:
    """Return the bytes of a structure of these fields, or raise for the first that does not fit."""
    try:
        return layout.pack(*values.values())
    except struct.error:
        pass  # the check of each field says which
    limits = zip(values.items(), _limits(layout), strict=True)
    return layout.pack(*[within(call, 0, name, value, 0, most) for (name, value), most in limits])


def unpack_structure(call: str, layout: struct.Struct, data: Buffer) -> tuple[Any, ...]:
    """Return the fields of a structure; bytes beyond it are left out."""
    try:
        with memoryview(data) as view:
            flat = view.cast("B")[: layout.size] if view.c_contiguous and view.nbytes else view
            octets = flat.tobytes()
    except TypeError:
        raise TypeError(
            f"{call}: data must be bytes or another buffer, not {type(data).__name__}"
        ) from None
    if len(octets) < layout.size:
        raise error(
            Status.INVALID_BUFFER_SIZE,
            call,
            f"{len(octets)} bytes are fewer than the {layout.size} of the structure; pass all that"
            " pack() returned",
        )
    return layout.unpack_from(octets)


def _limits(layout: struct.Struct) -> Iterator[int]:
    """Yield the largest value of each field."""
    for count, code in _FIELDS.findall(layout.format):
        for _ in range(int(count or 1)):
            yield (1 << _BITS[code]) - 1
