# SPDX-License-Identifier: Apache-2.0
"""Arrays over memory that an object keeps, without a copy. A module that uses it imports the
array interface of numpy (`import_array`).
"""

cimport numpy as cnp
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(cnp.PyTypeObject *subtype, cnp.PyArray_Descr *descr, int nd,
                                const cnp.npy_intp *dims, const cnp.npy_intp *strides, void *data,
                                int flags, object obj)
    ctypedef struct PyArrayObject_fields:
        char *data
        int nd
        cnp.npy_intp *dimensions
        cnp.npy_intp *strides
        PyObject *base
        cnp.PyArray_Descr *descr
        int flags
        PyObject *weakreflist
    cnp.PyTypeObject PyArray_Type
    enum:
        NPY_ARRAY_CARRAY
        NPY_ARRAY_CARRAY_RO
        NPY_ARRAY_F_CONTIGUOUS

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *of)


cdef inline cnp.ndarray new_array(object dtype, int ndim, const cnp.npy_intp *shape, void *data,
                                  int flags):
    """Return an array over `data`, or over memory of its own if that is NULL."""
    Py_INCREF(dtype)
    return PyArray_NewFromDescr(&PyArray_Type, <cnp.PyArray_Descr *>dtype, ndim, shape, NULL, data,
                                flags, None)


cdef inline cnp.ndarray array_over(object dtype, int ndim, const cnp.npy_intp *shape, void *data,
                                   int flags, object owner):
    """Return an array over memory of `owner`, which it keeps alive."""
    cdef cnp.ndarray array = new_array(dtype, ndim, shape, data, flags)
    # PyArray_SetBaseObject() looks besides for owners that are arrays, which this one is not.
    Py_INCREF(owner)
    (<PyArrayObject_fields *>array).base = <PyObject *>owner
    return array


# To make an array takes as long as to publish it, so one that is over may serve again. It may when
# the caller has the only reference: whatever else leads to its memory (a view, a buffer that was
# exported, a capsule) refers to the array. Its length stays the same, for numpy keeps a
# description of each length that an array was exported with. Until it is used again it has no
# items, so that one that a program digs out of the garbage collector reaches no memory.

cdef inline bint is_spare_row(PyObject *array, PyObject *dtype, PyObject *owner) noexcept:
    """Return whether the caller has the only reference to this array, a row over memory of
    `owner`."""
    cdef PyArrayObject_fields *a = <PyArrayObject_fields *>array
    return (Py_REFCNT(array) == 1 and a.nd == 1 and a.weakreflist == NULL
            and <PyObject *>a.descr == dtype and a.base == owner)


cdef inline void empty_row(object array, void *data) noexcept:
    """Leave an array without items, at `data`."""
    cdef PyArrayObject_fields *a = <PyArrayObject_fields *>array
    a.data = <char *>data
    a.dimensions[0] = 0


cdef inline void use_row(object array, void *data, cnp.npy_intp items) noexcept:
    """Use such an array again, as one that can be written to. `data` is aligned."""
    cdef PyArrayObject_fields *a = <PyArrayObject_fields *>array
    a.data = <char *>data
    a.dimensions[0] = items
    a.strides[0] = (<cnp.dtype>cnp.PyArray_DESCR(<cnp.ndarray>array)).itemsize
    a.flags = NPY_ARRAY_CARRAY | NPY_ARRAY_F_CONTIGUOUS
