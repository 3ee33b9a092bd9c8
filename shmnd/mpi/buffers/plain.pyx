# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Messages of the commonest forms: bytes in a row, found without making an object.

A form is plain if it is an array of numpy, a bytearray or bytes, alone or in a list with a
datatype, or with a count and a datatype. Whatever else it may be, also all that is wrong, is for
`spec`, which knows every form and raises the errors.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact
from cpython.long cimport PyLong_AsSsize_t, PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.string cimport strcmp

from shmnd.mpi.datatypes.datatype cimport Datatype
from shmnd.mpi.datatypes.type_state cimport TypeState

import sys

from shmnd.mpi.datatypes.datatype import _typedict

cdef extern from "buffers/ndarray.h":
    enum:
        ND_CONTIGUOUS
        ND_WRITEABLE
        ND_NUMBERS
    ctypedef struct nd_dtype:
        char kind
        char letter
        char byteorder
        int number
    ctypedef struct nd_array:
        char *data
        int ndim
        Py_ssize_t *shape
        nd_dtype *dtype
        int flags

cdef extern from "objects/small_int.h":
    bint shmpi_small_int(object given, int *value)

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        const char *tp_name
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_exports
    PyTypeObject *Py_TYPE(object obj)
    PyObject *PyTuple_GET_ITEM(object obj, Py_ssize_t at)

cdef PyTypeObject *_ndarray = NULL
cdef list _kept = [None] * 32
cdef Py_ssize_t _sizes[32]


# -- arrays of numpy --

cdef int _know_arrays() except -1:
    """Get the type of numpy's arrays, once, if their fields lie where they are declared."""
    global _ndarray
    cdef nd_array *array
    cdef str letter
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return 0
    sample = None
    for letter in "?bBhHiIlLqQfdgFDGe":
        sample = numpy.zeros((2, 3), letter)
        array = <nd_array *> <PyObject *> sample
        there = sample.__array_interface__["data"][0]
        if not (
            <size_t> array.data == there and array.ndim == 2 and array.shape[0] == 2
            and array.shape[1] == 3 and array.dtype.letter == <char> <int> ord(sample.dtype.char)
            and array.dtype.number == sample.dtype.num < 32
            and array.flags & (ND_CONTIGUOUS | ND_WRITEABLE) == 1 | ND_WRITEABLE
        ):
            return 0
        _kept[array.dtype.number] = (<Datatype> _typedict[letter]).ob
        _sizes[array.dtype.number] = sample.itemsize
    _ndarray = Py_TYPE(sample)
    return 0


cdef inline bint _is_array(object obj) except -1:
    cdef PyTypeObject *type = Py_TYPE(obj)
    if type == _ndarray:
        return _ndarray != NULL
    if _ndarray == NULL and strcmp(type.tp_name, "numpy.ndarray") == 0:
        _know_arrays()
        return type == _ndarray
    return False


cdef inline bint _fields(
    nd_array *array, bint readonly, char **addr, Py_ssize_t *nbytes, int *number
) noexcept:
    """Return whether an array has one of MPI's types in a row, and write where it lies."""
    cdef nd_dtype *dtype = array.dtype
    cdef int flags = array.flags
    cdef int at = dtype.number
    cdef int dim = array.ndim
    cdef Py_ssize_t n
    if not flags & ND_CONTIGUOUS or not (readonly or flags & ND_WRITEABLE):
        return False
    if <unsigned int> at >= ND_NUMBERS or not (dtype.byteorder == b"=" or dtype.byteorder == b"|"):
        return False
    n = _sizes[at]
    if n == 0:
        return False
    while dim > 0:
        dim -= 1
        n *= array.shape[dim]
    addr[0] = array.data
    nbytes[0] = n
    number[0] = at
    return True


cdef inline bint _array(
    object obj, bint readonly, char **addr, Py_ssize_t *nbytes, int *number
) except -1:
    """Do the same for any object."""
    return _is_array(obj) and _fields(
        <nd_array *> <PyObject *> obj, readonly, addr, nbytes, number
    )


cdef bint plain_array(
    object obj, bint readonly, char **addr, Py_ssize_t *nbytes, int *number
) except -1:
    """Return whether it is an array of one of MPI's types in a row, with the number of its type."""
    return _array(obj, readonly, addr, nbytes, number)


cdef object array_type(int number):
    """Return the datatype of the items of such an array."""
    return _kept[number]


# -- messages --

cdef inline bint _memory(object obj, bint readonly, Plain *into) except -1:
    cdef int number
    into.held = False
    if PyByteArray_CheckExact(obj):
        # As its buffer is exported, and without the view that only describes it.
        (<PyByteArrayObject *> <PyObject *> obj).ob_exports += 1
        into.held = True
        into.addr = PyByteArray_AS_STRING(obj)
        into.nbytes = PyByteArray_GET_SIZE(obj)
    elif readonly and PyBytes_CheckExact(obj):
        into.addr = PyBytes_AS_STRING(obj)
        into.nbytes = PyBytes_GET_SIZE(obj)
    elif not _array(obj, readonly, &into.addr, &into.nbytes, &number):
        return False
    Py_INCREF(obj)  # a list that named it may change while the call waits
    into.owner = <PyObject *> obj
    return True


cdef inline bint _fits(object datatype, object count, Plain *into) except -1:
    """Narrow a memory to `count` items; False if that is not plain."""
    cdef Py_ssize_t number, size
    cdef int small
    cdef TypeState type
    if not isinstance(datatype, Datatype):
        return False
    type = <TypeState> (<Datatype> datatype).ob
    if type is None or not type.committed or not type.contig:
        return False
    if type.size <= 0 or type.size != type.extent:
        return False
    size = type.size
    if count is None:
        return size == 1 or into.nbytes % size == 0
    if shmpi_small_int(count, &small):
        number = small
    else:
        number = _wide(count)
    if number < 0 or number > (into.nbytes if size == 1 else into.nbytes // size):
        return False
    into.nbytes = number * size
    return True


cdef Py_ssize_t _wide(object count) except -2:
    """Return a count of several digits, or -1: no plain message has it."""
    if not PyLong_CheckExact(count):
        return -1
    try:
        return max(PyLong_AsSsize_t(count), -1)
    except OverflowError:
        return -1


cdef inline bint _part(
    object obj, object count, object datatype, bint readonly, Plain *into
) except -1:
    cdef bint fits
    if not _memory(obj, readonly, into):
        return False
    fits = _fits(datatype, count, into)
    if not fits:
        release(into)
    return fits


cdef bint plain(object msg, bint readonly, Plain *into) except -1:
    """Find the bytes of a plain message; True: it is one, and `release` is owed."""
    cdef Py_ssize_t n
    cdef int number
    if Py_TYPE(msg) == _ndarray:  # not NULL, as no type is
        if not _fields(
            <nd_array *> <PyObject *> msg, readonly, &into.addr, &into.nbytes, &number
        ):
            return False
        into.held = False
        Py_INCREF(msg)
        into.owner = <PyObject *> msg
        return True
    if PyTuple_CheckExact(msg) and PyTuple_GET_SIZE(msg) == 3:
        return _part(
            <object> PyTuple_GET_ITEM(msg, 0), <object> PyTuple_GET_ITEM(msg, 1),
            <object> PyTuple_GET_ITEM(msg, 2), readonly, into,
        )
    if not (PyTuple_CheckExact(msg) or PyList_CheckExact(msg)):
        return _memory(msg, readonly, into)
    n = len(msg)
    if n == 3:
        obj, count, datatype = msg
        return _part(obj, count, datatype, readonly, into)
    if n == 2:
        obj, datatype = msg
        return _part(obj, None, datatype, readonly, into)
    return False


cdef void release(Plain *given) noexcept:
    """Release the memory of a message."""
    if given.held:
        given.held = False
        (<PyByteArrayObject *> given.owner).ob_exports -= 1
    Py_DECREF(<object> given.owner)


cdef object memory_of(Plain *given):
    """Return the object that keeps the memory of a message in its place, also after `release`."""
    return memoryview(<object> given.owner)
