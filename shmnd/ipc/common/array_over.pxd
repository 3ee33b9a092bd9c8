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
        PyObject *base
    cnp.PyTypeObject PyArray_Type
    enum:
        NPY_ARRAY_CARRAY
        NPY_ARRAY_CARRAY_RO


cdef inline cnp.ndarray new_array(object dtype, int ndim, const cnp.npy_intp *shape, void *data,
                                  int flags):
    """An array over `data`; with NULL, one of memory of its own."""
    Py_INCREF(dtype)
    return PyArray_NewFromDescr(&PyArray_Type, <cnp.PyArray_Descr *>dtype, ndim, shape, NULL, data,
                                flags, None)


cdef inline cnp.ndarray array_over(object dtype, int ndim, const cnp.npy_intp *shape, void *data,
                                   int flags, object owner):
    """An array over the memory of `owner`, which it keeps."""
    cdef cnp.ndarray array = new_array(dtype, ndim, shape, data, flags)
    # PyArray_SetBaseObject() looks besides for owners that are arrays, which this one is not.
    Py_INCREF(owner)
    (<PyArrayObject_fields *>array).base = <PyObject *>owner
    return array
