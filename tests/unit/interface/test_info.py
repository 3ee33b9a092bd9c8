# SPDX-License-Identifier: Apache-2.0
import dataclasses
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmnd.info import LIMITS, AdapterInfo
from shmnd.status import AdapterFlag, NdError, Status

U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))

# offset, size and name of every field of ND2_ADAPTER_INFO
LAYOUT = [
    (0, 4, "info_version"),
    (4, 2, "vendor_id"),
    (6, 2, "device_id"),
    (8, 8, "adapter_id"),
    (16, 8, "max_registration_size"),
    (24, 8, "max_window_size"),
    (32, 4, "max_initiator_sge"),
    (36, 4, "max_receive_sge"),
    (40, 4, "max_read_sge"),
    (44, 4, "max_transfer_length"),
    (48, 4, "max_inline_data_size"),
    (52, 4, "max_inbound_read_limit"),
    (56, 4, "max_outbound_read_limit"),
    (60, 4, "max_receive_queue_depth"),
    (64, 4, "max_initiator_queue_depth"),
    (68, 4, "max_shared_receive_queue_depth"),
    (72, 4, "max_completion_queue_depth"),
    (76, 4, "inline_request_threshold"),
    (80, 4, "large_request_threshold"),
    (84, 4, "max_caller_data"),
    (88, 4, "max_callee_data"),
    (92, 4, "adapter_flags"),
]
BY_SIZE = {2: U16, 4: U32, 8: U64}
INFOS = st.builds(
    lambda fields: AdapterInfo(**{**fields, "adapter_flags": AdapterFlag(fields["adapter_flags"])}),
    st.fixed_dictionaries({name: BY_SIZE[size] for _, size, name in LAYOUT}),
)


def test_there_is_one_attribute_per_field() -> None:
    assert [f.name for f in dataclasses.fields(AdapterInfo)] == [name for _, _, name in LAYOUT]


@pytest.mark.parametrize(("offset", "size", "name"), LAYOUT)
def test_each_field_is_at_its_offset(offset: int, size: int, name: str) -> None:
    value = AdapterFlag(0x1234) if name == "adapter_flags" else 0x1234
    expected = bytearray(96)
    expected[offset : offset + size] = int(value).to_bytes(size, "little")
    blank = AdapterInfo(info_version=0)
    assert dataclasses.replace(blank, **{name: value}).pack() == expected


def test_the_32_bit_structure_has_its_own_offsets() -> None:
    info = dataclasses.replace(
        LIMITS, max_registration_size=1 << 46, max_window_size=77, max_initiator_sge=9
    )
    packed = info.pack32()
    assert len(packed) == 88
    assert struct.unpack_from("<III", packed, 16) == (0xFFFFFFFF, 77, 9)
    assert struct.unpack_from("<I", packed, 84) == (int(info.adapter_flags),)
    assert AdapterInfo.unpack32(packed) == dataclasses.replace(
        info, max_registration_size=0xFFFFFFFF
    )


@given(INFOS)
def test_unpack_returns_the_packed_values(info: AdapterInfo) -> None:
    assert len(info.pack()) == 96
    assert AdapterInfo.unpack(info.pack()) == info
    assert isinstance(AdapterInfo.unpack(info.pack()).adapter_flags, AdapterFlag)


def test_bytes_beyond_the_structure_are_left_out() -> None:
    assert AdapterInfo.unpack(bytearray(LIMITS.pack() + b"vendor")) == LIMITS


@pytest.mark.parametrize("size", [0, 95])
def test_fewer_bytes_than_the_structure_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes are fewer than the 96") as caught:
        AdapterInfo.unpack(bytes(size))
    assert isinstance(caught.value, NdError)
    assert caught.value.status is Status.INVALID_BUFFER_SIZE


@pytest.mark.parametrize("value", [-1, 1 << 32, 0.5])
def test_a_field_out_of_range_cannot_be_packed(value: int) -> None:
    with pytest.raises(
        NdError, match=r"AdapterInfo\.pack: max_read_sge \S+ is outside 0\.\.4294967295"
    ) as caught:
        dataclasses.replace(LIMITS, max_read_sge=value).pack()
    assert caught.value.status is Status.INVALID_PARAMETER


def test_limits_agree_with_each_other() -> None:
    assert LIMITS.max_read_sge <= LIMITS.max_initiator_sge
    assert LIMITS.inline_request_threshold <= LIMITS.max_inline_data_size
    assert LIMITS.max_inline_data_size <= LIMITS.max_transfer_length
    assert LIMITS.max_transfer_length <= LIMITS.max_registration_size
    assert LIMITS.adapter_flags & AdapterFlag.IN_ORDER_DMA_SUPPORTED


def test_limits_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LIMITS.max_caller_data = 1  # type: ignore[misc]
