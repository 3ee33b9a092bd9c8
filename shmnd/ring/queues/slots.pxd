# SPDX-License-Identifier: Apache-2.0
"""Attributes that the interpreter reads at the price of a slot of a Python class.

Cython makes a read-only attribute as a property in C, which the interpreter calls each time. It
reads a member descriptor directly, from the offset that the descriptor names.
"""

from cpython.object cimport PyTypeObject


cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        const char *name
        int type
        Py_ssize_t offset
        int flags
        const char *doc

    const int T_OBJECT_EX
    const int READONLY


cdef extern from "Python.h":
    object PyDescr_NewMember(PyTypeObject *type, PyMemberDef *member)
    void PyType_Modified(PyTypeObject *type)


cdef inline int read_as_slots(type cls, PyMemberDef *members, int count) except -1:
    """Replace the properties of objects that have these names."""
    cdef PyTypeObject *made = <PyTypeObject *>cls
    cdef dict names = <dict>made.tp_dict
    cdef int i
    for i in range(count):
        members[i].type, members[i].flags = T_OBJECT_EX, READONLY
        names[members[i].name.decode()] = PyDescr_NewMember(made, &members[i])
    PyType_Modified(made)
    return 0
