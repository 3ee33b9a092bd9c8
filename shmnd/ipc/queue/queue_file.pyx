# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The file that a queue lies in: made, checked, and committed part by part."""

import fcntl
import os

from libc.stdint cimport uint64_t
from libc.string cimport memset

from shmnd.ipc.queue.queue_c cimport *

from shmnd.ipc.common.limits import most_memory
from shmnd.ring.shared_memory.bounds import require_room
from shmnd.common.interruption import pass_on
from shmnd.common.owned import Owned
from shmnd.common.shortages import memory_error
from shmnd.status import Status, error

__all__ = ["commit", "make_file"]

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def commit(fd: int, at: int, nbytes: int, call: str) -> None:
    """Take the memory now: too little of it is an error here, not a signal later."""
    require_room(nbytes, 0, call)
    while True:
        try:
            os.posix_fallocate(fd, at, nbytes)
            return
        except InterruptedError:
            continue
        except OSError as err:
            pass_on(err)
            otherwise = "take items from the queue, set a maxsize, or give the machine more memory"
            what = f"{nbytes} bytes of shared memory wanted"
            raise memory_error(call, what, err, otherwise) from err


def make_file(slots: int, limited: bool) -> Owned:
    """Make the memory of a queue of so many slots; return its descriptor."""
    cdef shmnd_queue_shape shape
    cdef size_t page = SHMND_QUEUE_PAGE
    call = "Queue"
    if not 0 < slots <= SHMND_SLOTS_MOST:
        raise ValueError(f"{call}: maxsize {slots}; at most {SHMND_SLOTS_MOST}, or 0 for no limit")
    whole = most_memory(1 << 30, 1 << 38)
    memset(&shape, 0, sizeof(shape))
    shape.magic = SHMND_QUEUE_MAGIC
    shape.slots = slots
    shape.limited = limited
    shape.chunks = min(whole >> SHMND_CHUNK_BITS, <uint64_t>SHMND_CHUNKS_MOST)
    shape.members_off = page
    shape.slots_off = shape.members_off + SHMND_QUEUE_MEMBERS * page
    shape.table_off = shape.slots_off + (shape.slots * 8 + page - 1) // page * page
    shape.chunks_off = (
        (shape.table_off + shape.chunks * 8 + SHMND_CHUNK_BYTES - 1)
        // SHMND_CHUNK_BYTES * SHMND_CHUNK_BYTES
    )
    shape.file_bytes = shape.chunks_off + shape.chunks * SHMND_CHUNK_BYTES
    try:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        made = Owned.of(os.memfd_create, "shmnd-queue", flags)
        fd = made.fd
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, shape.file_bytes)
        commit(fd, 0, page, call)
        os.pwrite(fd, (<unsigned char *>&shape)[:sizeof(shape)], 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as err:
        pass_on(err)
        raise memory_error(call, "cannot make a queue's memory", err, "free memory") from err
    return made


cdef read_shape(int fd, shmnd_queue_shape *shape):
    """Check what another process made, from one reading."""
    cdef uint64_t page = SHMND_QUEUE_PAGE
    data = os.pread(fd, sizeof(shmnd_queue_shape), 0)
    if len(data) != sizeof(shmnd_queue_shape):
        raise error(Status.INTERNAL_ERROR, "Queue", f"descriptor {fd} was not made as a queue")
    shape[0] = (<shmnd_queue_shape *><const unsigned char *>data)[0]
    if shape.magic != SHMND_QUEUE_MAGIC and shape.magic << 16 == SHMND_QUEUE_MAGIC << 16:
        raise error(Status.INTERNAL_ERROR, "Queue",
                    "the memory was made by another release of shmnd; run the same one in all"
                    " processes that use the queue or the service")
    size = os.fstat(fd).st_size
    sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    if not (
        shape.magic == SHMND_QUEUE_MAGIC and shape.file_bytes == size and sealed
        and 0 < shape.slots <= SHMND_SLOTS_MOST and 0 < shape.chunks <= SHMND_CHUNKS_MOST
        and shape.members_off == page
        and shape.slots_off == page + SHMND_QUEUE_MEMBERS * page
        and shape.table_off >= shape.slots_off + shape.slots * 8 and shape.table_off % page == 0
        and shape.chunks_off >= shape.table_off + shape.chunks * 8
        and shape.chunks_off % page == 0 and shape.chunks_off < <uint64_t>size
        and shape.chunks * SHMND_CHUNK_BYTES <= <uint64_t>size - shape.chunks_off
    ):
        raise error(Status.INTERNAL_ERROR, "Queue",
                    f"descriptor {fd} was not made as a queue by this release of shmnd")
