# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature=False
"""The array type of shared memory: a numpy array to whose slices bytes can be assigned.

numpy takes assigned bytes for the text of a number: `array[:] = b"7"` fills a plain array with
sevens. Compiled, because an assignment to a plain array takes 30 ns and must not take ten times as
long here.
"""

from cpython.buffer cimport PyBUF_STRIDED, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcpy

import numpy as np

cdef extern from "Python.h":
    int PySlice_Unpack(object, Py_ssize_t *, Py_ssize_t *, Py_ssize_t *) except -1
    Py_ssize_t PySlice_AdjustIndices(Py_ssize_t, Py_ssize_t *, Py_ssize_t *, Py_ssize_t)
    ctypedef int (*_assign "objobjargproc")(object, object, object) except -1

    ctypedef struct PyMappingMethods:
        _assign mp_ass_subscript

    ctypedef struct _Type "PyTypeObject":
        PyMappingMethods *tp_as_mapping

cdef object _ndarray = np.ndarray
cdef object _uint8 = np.dtype(np.uint8)
cdef Py_ssize_t _FEW = 4096  # bytes; numpy copies more without the GIL
cdef _assign _numpys = (<_Type *><void *>_ndarray).tp_as_mapping.mp_ass_subscript


class SharedArray(np.ndarray):
    """A numpy array of bytes in shared memory.

    `memory[2:7] = b"hello"` copies bytes, a bytearray or a memoryview: as many as the slice is
    long. Views of another type (`memory.view(numpy.float64)`) behave as numpy's own. Arrays that
    numpy computes or copies from it are in private memory.
    """

    def __setitem__(self, index, value):
        if type(value) is bytes or isinstance(value, (bytes, bytearray, memoryview)):
            if self.dtype is _uint8:
                if type(value) is bytes and type(index) is slice and _copied(self, index, value):
                    return
                value = _fitting(self, index, value)
        elif isinstance(value, str):
            raise TypeError(f"memory[...] = {_shown(value)}: memory takes bytes; encode the text "
                            "first, text.encode()")
        _numpys(self, index, value)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        if array is self:  # the `out` of the operation
            return array
        return array[()] if return_scalar else array.view(_ndarray)

    def __reduce_ex__(self, protocol):
        return self.view(_ndarray).__reduce_ex__(protocol)

    def __copy__(self):
        return self.view(_ndarray).copy()

    def __deepcopy__(self, memo):
        return self.view(_ndarray).__deepcopy__(memo)

    def copy(self, order="C"):
        """Return a copy in private memory, a plain array."""
        return self.view(_ndarray).copy(order)


def shared_array(memory) -> SharedArray:
    """Return the bytes of a buffer as an array; nothing is copied."""
    return np.frombuffer(memory, _uint8).view(SharedArray)


cdef bint _copied(object array, object part, bytes value) except -1:
    """Copy a few bytes into a slice of the same length; return False for all other cases."""
    cdef Py_buffer whole
    cdef Py_ssize_t begin, end, step
    cdef bint fits = False
    cdef Py_ssize_t nbytes = len(value)
    PySlice_Unpack(part, &begin, &end, &step)
    if step != 1 or nbytes > _FEW or not array.flags.writeable:
        return False
    PyObject_GetBuffer(array, &whole, PyBUF_STRIDED | PyBUF_WRITABLE)
    if whole.ndim == 1 and whole.strides[0] == 1:
        fits = PySlice_AdjustIndices(whole.len, &begin, &end, 1) == nbytes
        if fits:
            memcpy(<char *>whole.buf + begin, <char *>value, nbytes)
    PyBuffer_Release(&whole)
    return fits


cdef object _fitting(object array, object index, object value):
    """Return bytes in the shape of the part of the array that they are assigned to."""
    cdef object part = _ndarray.__getitem__(array, index)
    cdef object view = memoryview(value)
    cdef Py_ssize_t nbytes = view.nbytes
    if nbytes != part.size:
        where = f"a slice of {part.size}" if part.ndim else "one element"
        raise ValueError(
            f"memory[...] = {_shown(value)}: {nbytes} bytes do not fit into {where}; give the "
            "slice the length of the data, memory[offset : offset + len(data)] = data")
    if not view.c_contiguous:
        value = view.tobytes()
    octets = np.frombuffer(value, _uint8) if nbytes else np.empty(0, _uint8)
    return octets if part.ndim == 1 else octets.reshape(part.shape)


cdef str _shown(object value):
    """Return a value as a program writes it, shortened."""
    cdef str text = ascii(value)
    return text if len(text) <= 40 else text[:37] + "..."
