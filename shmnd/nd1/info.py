# SPDX-License-Identifier: Apache-2.0
"""What an adapter reports about itself in version 1: the exact bytes of ND_ADAPTER_INFO."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING, Final

from shmnd.info import pack_structure, unpack_structure

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from shmnd.info import AdapterInfo as AdapterInfo2

__all__ = ["ADAPTER_INFO_SIZE", "ND_VERSION_1", "AdapterInfo"]

ND_VERSION_1: Final = 1

# VendorId, DeviceId; fifteen sizes.
_LAYOUT: Final = struct.Struct("<II 15Q")

ADAPTER_INFO_SIZE: Final = _LAYOUT.size


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdapterInfo:
    """ND_ADAPTER_INFO: one attribute per field, in the order of the structure."""

    vendor_id: int = 0
    device_id: int = 0
    max_inbound_sge: int = 0
    max_inbound_requests: int = 0
    max_inbound_length: int = 0
    max_outbound_sge: int = 0
    max_outbound_requests: int = 0
    max_outbound_length: int = 0
    max_inline_data: int = 0
    max_inbound_read_limit: int = 0
    max_outbound_read_limit: int = 0
    max_cq_entries: int = 0
    max_registration_size: int = 0
    max_window_size: int = 0
    large_request_threshold: int = 0
    max_caller_data: int = 0
    max_callee_data: int = 0

    @classmethod
    def _of(cls, limits: AdapterInfo2) -> AdapterInfo:
        """Return the limits of an adapter of version 2 in the structure of version 1."""
        return cls(
            vendor_id=limits.vendor_id,
            device_id=limits.device_id,
            max_inbound_sge=limits.max_receive_sge,
            max_inbound_requests=limits.max_receive_queue_depth,
            max_inbound_length=limits.max_transfer_length,
            max_outbound_sge=min(limits.max_initiator_sge, limits.max_read_sge),
            max_outbound_requests=limits.max_initiator_queue_depth,
            max_outbound_length=limits.max_transfer_length,
            max_inline_data=limits.max_inline_data_size,
            max_inbound_read_limit=limits.max_inbound_read_limit,
            max_outbound_read_limit=limits.max_outbound_read_limit,
            max_cq_entries=limits.max_completion_queue_depth,
            max_registration_size=limits.max_registration_size,
            max_window_size=limits.max_registration_size,
            large_request_threshold=limits.large_request_threshold,
            max_caller_data=limits.max_caller_data,
            max_callee_data=limits.max_callee_data,
        )

    def pack(self) -> bytes:
        """Return the 128 bytes of ND_ADAPTER_INFO."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return pack_structure("AdapterInfo.pack", _LAYOUT, values)

    @classmethod
    def unpack(cls, data: Buffer) -> AdapterInfo:
        """Return the fields of ND_ADAPTER_INFO; further bytes, a vendor's own, are left out."""
        values = unpack_structure("AdapterInfo.unpack", _LAYOUT, data)
        return cls(**dict(zip((f.name for f in dataclasses.fields(cls)), values, strict=True)))
