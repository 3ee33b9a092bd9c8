# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Views: which bytes of a file a rank sees, in units of an elementary datatype."""

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException

cdef Py_ssize_t _LIMIT = 1 << 62


cdef object _problem(TypeState etype, TypeState filetype):
    """Return why types cannot make a view, or None."""
    cdef Py_ssize_t before = 0
    if etype is None or filetype is None:
        return "a datatype is null"
    if not (etype.committed and filetype.committed):
        return "a datatype is not committed; call its Commit first"
    if etype.size == 0:
        return "items of etype have no bytes"
    if filetype.size == 0 or filetype.size % etype.size:
        return (
            f"an item of filetype has {filetype.size} bytes; expected a multiple of the "
            f"{etype.size} of etype, and not 0"
        )
    if filetype.extent <= 0:
        return f"the extent of filetype is {filetype.extent}; expected more than 0"
    if filetype.true_lb < 0:
        return f"filetype begins {-filetype.true_lb} bytes before its address"
    cdef size_t i
    for i in range(filetype.runs.n):
        run = filetype.runs.run[i]
        if run.off < before or (run.count > 1 and run.stride < <Py_ssize_t> run.bytes):
            return "the parts of filetype overlap, or do not lie in ascending order"
        before = run.off + <Py_ssize_t> (run.count - 1) * run.stride + <Py_ssize_t> run.bytes
    return None


cdef class View:
    """The part of a file that a rank sees: items of `filetype` from `displacement` on.

    Offsets count items of `etype` from the first one that the view shows.
    """

    def __init__(
        self, displacement: int, etype: TypeState | None, filetype: TypeState | None, datarep: str
    ) -> None:
        if not 0 <= displacement <= _LIMIT:
            raise MPIException(
                constants.ERR_ARG,
                f"File.Set_view: a displacement of {displacement}; expected 0 to 2**62",
            )
        if datarep not in ("native", "internal"):
            raise MPIException(
                constants.ERR_UNSUPPORTED_DATAREP,
                f"File.Set_view: datarep {datarep!r}; expected 'native' or 'internal'. "
                "Datatype.Pack_external makes the bytes of 'external32'",
            )
        problem = _problem(etype, filetype)
        if problem is not None:
            raise MPIException(constants.ERR_TYPE, f"File.Set_view: {problem}")
        self.displacement = displacement
        self.etype = etype
        self.filetype = filetype
        self.datarep = datarep
        self.shown.runs = &self.filetype.runs
        self.shown.extent = self.filetype.extent
        self.shown.start = displacement

    cdef int check(self, Py_ssize_t at, Py_ssize_t nbytes, str call) except -1:
        """Raise Exception(ERR_ARG) unless the data bytes have places of 62 bits in the file."""
        cdef double last = <double> at + <double> nbytes
        cdef double items = last / <double> self.filetype.size + 1
        if at < 0 or self.displacement + items * self.filetype.extent + last > _LIMIT:
            raise MPIException(
                constants.ERR_ARG,
                f"File.{call}: {nbytes} bytes at offset {at // self.etype.size} of the view; the "
                "limits are offset 0 and byte 2**62 of the file",
            )
        return 0

    def place(self, offset: int, call: str) -> int:
        """Return which byte of the file an offset is."""
        cdef size_t row
        if not 0 <= offset <= _LIMIT // self.etype.size:
            raise MPIException(
                constants.ERR_ARG,
                f"File.{call}: an offset of {offset}; expected 0 to 2**62 bytes of data",
            )
        self.check(offset * self.etype.size, 0, call)
        return mpi_view_place(&self.shown, offset * self.etype.size, &row)

    def etypes_before(self, place: int) -> int:
        """Return how many items of etype begin before a byte of the file."""
        cdef Py_ssize_t nbytes = mpi_view_before(
            &self.shown, self.filetype.true_lb, self.filetype.true_extent, place)
        return -(-nbytes // self.etype.size)
