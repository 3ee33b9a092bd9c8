# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Messages as programs write them: a buffer, or a list of buffer, counts, displacements and type.

A list has two to four items:

    [buffer, type]      [buffer, count]      [buffer, (count, displacement)]
    [buffer, count, type]      [buffer, (count, displacement), type]
    [buffer, count, displacement, type]

A part left out, or None, follows from the buffer: its items are of the type that its format
names, and as many as it holds. Calls with a vector of blocks take sequences of counts and
displacements, those with a type for each block also a sequence of types.

Nothing outside the buffer is ever touched: a message that does not fit raises ValueError. Memory at
BOTTOM, or made by `buffer.fromaddress`, has no bounds that could be checked.
"""

from cpython.list cimport PyList_Check
from cpython.tuple cimport PyTuple_Check
from libc.stdlib cimport free, malloc

from shmnd.mpi.buffers.buffer cimport as_buffer, buffer, buffer_for, is_stated
from shmnd.mpi.buffers.plain cimport array_type, plain_array
from shmnd.mpi.datatypes.datatype cimport Datatype
from shmnd.mpi.buffers.sentinels cimport BottomType, InPlaceType
from shmnd.mpi.transport.outer_call cimport full_name as at

from shmnd.common.arguments import shown
from shmnd.mpi import constants
from shmnd.mpi.datatypes import datatype as datatypes, type_codes
from shmnd.mpi.datatypes.datatype import _typedict
from shmnd.mpi.objects.errors import Exception as MPIException

cdef int _PROC_NULL = constants.PROC_NULL
cdef TypeState _BYTE = (<Datatype> datatypes.Datatype.fromcode("V1")).ob

cdef double _LIMIT = 2.0 ** 62      # bytes: sums of a few of them do not wrap
cdef int _DEEPEST = 16              # views of views that are followed


cdef TypeState usable_type(object given, str call):
    """Return the type that a message names, by itself or its code; None for DATATYPE_NULL."""
    cdef TypeState type
    if isinstance(given, str):
        found = _typedict.get(given)
        if found is None:
            raise KeyError(
                f"{at(call)}: no datatype has the code {given!r}; name it as MPI.DOUBLE, or by a "
                "code such as 'd' or 'i4'"
            )
        given = found
    elif not isinstance(given, Datatype):
        raise TypeError(f"{at(call)}: expected a datatype or its code, not {given!r}")
    type = (<Datatype> given).ob
    if type is not None and not type.committed:
        raise MPIException(
            constants.ERR_TYPE,
            f"{at(call)}: the datatype {type.name or type.decoded[0].lower()} is not committed; "
            "call its Commit first",
        )
    return type


cdef Py_ssize_t number_of(object given, str what, str call) except? -0x7fffffffffffffff:
    """Return a count or a displacement as a number."""
    cdef int small
    if shmpi_small_int(given, &small):
        return small
    try:
        return given
    except OverflowError:
        raise ValueError(f"{at(call)}: a {what} of {shown(given)}; expected below 2**62") from None
    except TypeError:
        raise TypeError(f"{at(call)}: a {what} of {shown(given)}, not an integer") from None


cdef class Spec:
    """What one call sends from, or receives to."""

    def __dealloc__(self):
        free(self.counts)
        free(self.displs)
        # Here, and not after it: this may run code, and an exception may be on its way.
        self.keep = None

    cdef int hold(self, object obj, bint readonly, bint typed) except -1:
        """Take the memory of an object, and its type unless the message names one."""
        cdef buffer memory
        cdef int number
        cdef const char *letters
        self.readonly = readonly
        if plain_array(obj, readonly, &self.addr, &self.nbytes, &number):
            if not typed:
                self.type = <TypeState> array_type(number)
            self.keep = obj
            return 0
        if obj is None or isinstance(obj, BottomType):
            self.bottom = obj is not None
            if not typed:
                self.type = _BYTE
            return 0
        memory = buffer_for(obj, readonly, self.call)
        self.keep = memory
        self.addr = <char *> memory.view.buf
        self.nbytes = memory.view.len
        if not typed:
            letters = memory.letters()
            name = "B" if letters == NULL else letters.decode()
            if name in _typedict:
                self.type = (<Datatype> _typedict[name]).ob
            else:
                name = type_codes.name_of_format(name, memory.itemsize_, at(self.call))
                self.type = (<Datatype> getattr(datatypes, name)).ob
        return 0

    cdef int name_type(self, object datatype, bint nothing) except -1:
        """Take the type that the message names; a null one only in a message of `nothing`."""
        self.type = usable_type(datatype, self.call)
        if self.type is None and not nothing:
            raise ValueError(
                f"{at(self.call)}: the datatype is null, and the count follows from the buffer"
            )
        return 0

    cdef Py_ssize_t items(self, Py_ssize_t displ) except -1:
        """Return how many items fill the buffer after a displacement: they lie in it whole."""
        cdef Py_ssize_t extent = self.type.extent, count
        if extent <= 0:
            raise ValueError(
                f"{at(self.call)}: give the count, the datatype has an extent of {extent}"
            )
        if self.nbytes % extent:
            raise ValueError(
                f"{at(self.call)}: {self.nbytes} bytes are not a whole number of items of "
                f"{extent} bytes; give the count"
            )
        count = self.nbytes // extent
        if displ > count:
            raise ValueError(f"{at(self.call)}: displacement {displ} in a buffer of {count} items")
        count -= displ
        if self.type.true_lb < 0 or self.type.true_lb + self.type.true_extent > extent:
            self.check(displ, count, self.type, 0)  # its items have bytes outside their extents
        return count

    cdef int reach(
        self, Py_ssize_t displ, Py_ssize_t count, TypeState type, Py_ssize_t off
    ) except -1:
        """Raise ValueError where the place of an item has no address of 64 bits."""
        cdef double extent = abs(<double> type.extent)
        if (
            abs(<double> displ) * extent + abs(<double> count) * extent + abs(<double> off) > _LIMIT
            or <double> count * <double> type.size > _LIMIT
        ):
            raise ValueError(
                f"{at(self.call)}: {count} items of {type.extent} bytes at displacement "
                f"{displ or off} of a buffer of {self.nbytes} bytes"
            )
        return 0

    cdef int check(
        self, Py_ssize_t displ, Py_ssize_t count, TypeState type, Py_ssize_t off
    ) except -1:
        """Raise ValueError unless `count` items at `displ` extents and `off` bytes are inside."""
        cdef Py_ssize_t first, last, swap
        if count < 0:
            raise ValueError(f"{at(self.call)}: a count of {count}; expected 0 or more")
        if type is None:
            return 0
        self.reach(displ, count, type, off)
        if self.bottom or count == 0 or type.size == 0:
            return 0
        first = off + displ * type.extent
        last = first + (count - 1) * type.extent
        if last < first:
            swap = first
            first = last
            last = swap
        first += type.true_lb
        last += type.true_lb + type.true_extent
        if (first < 0 or last > self.nbytes) and not self._before(first, last):
            raise ValueError(
                f"{at(self.call)}: {count} items at displacement {displ} take the bytes {first} to "
                f"{last} of a buffer of {self.nbytes} bytes"
            )
        return 0

    cdef bint _before(self, Py_ssize_t first, Py_ssize_t last) except -1:
        """Return whether items that reach to before a view, as by negative displacements,
        lie in the memory that it is a view of. After the view ends what the program has passed."""
        cdef buffer whole
        if first >= 0 or last > self.nbytes or self.keep is None:
            return is_stated(self.keep)  # of an address only the program knows where it ends
        owner = self.keep.obj if isinstance(self.keep, buffer) else self.keep
        for _ in range(_DEEPEST):
            below = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
            if below is None:
                break
            owner = below
        try:
            whole = as_buffer(owner, self.readonly)
        except (BufferError, TypeError, ValueError):
            return False
        return (
            <char *> whole.view.buf <= self.addr + first
            and self.addr + last <= <char *> whole.view.buf + whole.view.len
        )

    cdef int row(self) except -1:
        """Make room for counts and displacements."""
        self.counts = <Py_ssize_t *> malloc((self.blocks or 1) * sizeof(Py_ssize_t))
        self.displs = <Py_ssize_t *> malloc((self.blocks or 1) * sizeof(Py_ssize_t))
        if self.counts == NULL or self.displs == NULL:
            raise MemoryError(f"{at(self.call)}: no memory for counts and displacements")
        return 0


cdef int _not_special(object msg, str call) except -1:
    if msg is None:
        raise TypeError(f"{at(call)}: expected a buffer or a list, not None")
    if isinstance(msg, InPlaceType):
        raise MPIException(
            constants.ERR_BUFFER,
            f"{at(call)}: IN_PLACE cannot be here; it stands for the send buffer of a collective "
            "(in Scatter for the receive buffer of the root)",
        )
    return 0


cdef Spec _of(str call):
    cdef Spec spec = Spec.__new__(Spec)
    spec.call = call
    return spec


cdef object _parts(object msg, bint simple, str call):
    """Return buffer, counts, displacements and type of a list; None is what it leaves out.

    A simple message has one count: two numbers in its place are the count and the displacement.
    """
    cdef Py_ssize_t number = len(msg)
    if not 2 <= number <= 4:
        raise ValueError(
            f"{at(call)}: a list of {number} items; expected 2 to 4: buffer, counts, "
            "displacements, datatype"
        )
    if number == 4:
        return msg[0], msg[1], msg[2], msg[3]
    counts, displs, datatype = msg[1], None, None if number == 2 else msg[2]
    if number == 2 and isinstance(counts, (Datatype, str)):
        counts, datatype = None, counts
    if isinstance(counts, (tuple, list)):
        if simple and len(counts) != 2:
            raise ValueError(f"{at(call)}: a count of {counts}; expected one, or two numbers: the "
                             "count and the displacement")
        pair = simple or isinstance(counts, tuple) or not all([isinstance(n, int) for n in counts])
        if pair and len(counts) == 2:
            counts, displs = counts
    return msg[0], counts, displs, datatype


cdef Spec spec_simple(object msg, bint readonly, int rank, int blocks, str call):
    """Return a message of one type and count, divided into blocks if there are any.

    With `blocks` of NO_BLOCK the count is that of blocks of which there are none, as for a rank
    without neighbours: nothing of the buffer is used.
    """
    cdef Spec spec = _of(call)
    cdef Py_ssize_t displ, count, total
    cdef Py_ssize_t pieces = 0 if blocks == NO_BLOCK else max(blocks, 1)
    if rank == _PROC_NULL:
        spec.type = _BYTE
        return spec
    spec.blocks = max(blocks, 0)
    if not (PyList_Check(msg) or PyTuple_Check(msg)):
        _not_special(msg, call)
        spec.hold(msg, readonly, False)
        total = 0 if spec.bottom else spec.items(0)
        displ = 0
        counts = None
    else:
        obj, counts, displs, datatype = _parts(msg, True, call)
        spec.hold(obj, readonly, datatype is not None)
        if datatype is not None:
            spec.name_type(datatype, counts is not None and not displs)
        displ = 0 if displs is None else number_of(displs, "displacement", call)
        if displ < 0:
            raise ValueError(f"{at(call)}: a displacement of {displ}; expected 0 or more")
        if counts is not None or spec.keep is None:
            total = 0
        else:
            total = spec.items(displ)
    if counts is None:
        count = total
        if blocks > 1:
            if total % blocks:
                raise ValueError(
                    f"{at(call)}: {total} items are not a whole number for each of {blocks} blocks"
                )
            count = total // blocks
    else:
        count = number_of(counts, "count", call)
        if count < 0 or count > 0x3fffffffffffffff // max(blocks, 1):
            raise ValueError(f"{at(call)}: a count of {count}; expected 0 to 2**62 - 1")
        if spec.keep is None and not spec.bottom and count * pieces:
            raise ValueError(f"{at(call)}: a count of {count}, and no buffer (None)")
        if displ:
            if spec.type.extent <= 0:
                raise ValueError(f"{at(call)}: a displacement in items of no positive extent")
            spec.reach(displ, count, spec.type, 0)
            if not spec.bottom and displ * spec.type.extent > spec.nbytes:
                raise ValueError(
                    f"{at(call)}: displacement {displ} in a buffer of {spec.nbytes} bytes"
                )
        spec.check(displ, count * pieces, spec.type, 0)
    if spec.type is None:
        raise MPIException(constants.ERR_TYPE, f"{at(call)}: the datatype is null")
    spec.count = count
    spec.addr += displ * spec.type.extent
    return spec


cdef int _numbers(
    object given, Py_ssize_t *into, Py_ssize_t blocks, str what, str call
) except -1:
    """Fill counts or displacements, and return whether one number stands for all blocks."""
    cdef Py_ssize_t block, number
    if not hasattr(given, "__len__") or (hasattr(given, "ndim") and given.ndim == 0):
        number = number_of(given, what[:-1], call)
        for block in range(blocks):
            into[block] = number
        return 1
    if len(given) != blocks:
        raise ValueError(f"{at(call)}: {len(given)} {what} for {blocks} blocks")
    for block in range(blocks):
        into[block] = number_of(given[block], what[:-1], call)
    return 0


cdef Spec spec_vector(object msg, bint readonly, int rank, int blocks, str call):
    """Return a message of blocks with a count and a displacement each."""
    cdef Spec spec = _of(call)
    cdef Py_ssize_t block, total = 0
    if rank == _PROC_NULL:
        msg = [None, 0, None, "B"]
    spec.blocks = blocks
    counts = displs = None
    if not (PyList_Check(msg) or PyTuple_Check(msg)):
        _not_special(msg, call)
        spec.hold(msg, readonly, False)
    else:
        obj, counts, displs, datatype = _parts(msg, False, call)
        spec.hold(obj, readonly, datatype is not None)
        if datatype is not None:
            spec.name_type(datatype, counts is not None)
    if spec.type is None:
        raise MPIException(constants.ERR_TYPE, f"{at(call)}: the datatype is null")
    spec.row()
    if counts is None:
        total = 0 if spec.keep is None else spec.items(0)
        if blocks and total % blocks:
            raise ValueError(
                f"{at(call)}: {total} items are not a whole number for each of {blocks} blocks"
            )
        counts = total // blocks if blocks else 0
    _numbers(counts, spec.counts, blocks, "counts", call)
    if displs is not None:
        if _numbers(displs, spec.displs, blocks, "displacements", call):
            if blocks and abs(<double> spec.displs[0]) * blocks > _LIMIT:
                raise ValueError(f"{at(call)}: {blocks} blocks, {spec.displs[0]} items apart")
            for block in range(blocks):
                spec.displs[block] *= block  # one number: the stride of the blocks
    total = 0
    for block in range(blocks):
        if displs is None:
            spec.displs[block] = total
            total += spec.counts[block]
        if spec.keep is None and not spec.bottom and spec.counts[block]:
            raise ValueError(f"{at(call)}: a count of {spec.counts[block]}, and no buffer (None)")
        spec.check(spec.displs[block], spec.counts[block], spec.type, 0)
    return spec


cdef Spec spec_vector_w(object msg, bint readonly, int rank, int blocks, str call):
    """Return a message of blocks with a count, a displacement in bytes and a type each."""
    cdef Spec spec = _of(call)
    cdef Py_ssize_t block
    cdef TypeState type
    spec.blocks = blocks
    _not_special(msg, call)
    if not (PyList_Check(msg) or PyTuple_Check(msg)):
        raise TypeError(f"{at(call)}: expected a list of buffer, counts and datatypes, not {msg!r}")
    if len(msg) == 2:
        obj, counts, displs, types = msg[0], None, None, msg[1]
    elif len(msg) == 3:
        obj, (counts, displs), types = msg
    elif len(msg) == 4:
        obj, counts, displs, types = msg
    else:
        raise ValueError(
            f"{at(call)}: a list of {len(msg)} items; expected buffer, counts, displacements, types"
        )
    spec.hold(obj, readonly, True)
    if spec.bottom and (counts is None or displs is None):
        raise ValueError(f"{at(call)}: memory at BOTTOM takes counts and displacements")
    spec.row()
    _numbers(1 if counts is None else counts, spec.counts, blocks, "counts", call)
    _numbers(0 if displs is None else displs, spec.displs, blocks, "displacements", call)
    if len(types) != blocks:
        raise ValueError(f"{at(call)}: {len(types)} datatypes for {blocks} blocks")
    spec.types = []
    for block in range(blocks):
        spec.name_type(types[block], True)
        type = spec.type
        if type is None:
            raise MPIException(constants.ERR_TYPE, f"{at(call)}: datatype {block} is null")
        spec.types.append(type)
        spec.check(0, spec.counts[block], type, spec.displs[block])
    spec.type = _BYTE
    return spec
