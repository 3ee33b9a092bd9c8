# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature=False
"""Signatures of the calls of MPI: in front of docstrings, and for `inspect`.

The docstring of a compiled function begins with the call, with types, as in mpi4py. Those of Python
get the same. `inspect` has the signatures of functions of Python and of Cython; that of a method
of C it reads from a line without types in front of the docstring, which is put there.
"""

from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ClassMethodDescriptorType
from typing import Any

from cpython.ref cimport Py_INCREF

cdef extern from "Python.h":
    ctypedef struct PyMethodDef:
        const char *ml_doc

    ctypedef struct PyMethodDescrObject:
        PyMethodDef *d_method

    ctypedef struct PyCFunctionObject:
        PyMethodDef *m_ml


def embed(namespace: dict[str, Any]) -> None:
    """Add its signature to every public function and method."""
    seen: set[int] = set()
    for value in list(namespace.values()):
        found = [value]
        if isinstance(value, type):
            for base in value.__mro__:
                if base.__module__.startswith("shmnd.mpi."):
                    found.extend(vars(base).values())
        for item in found:
            function = item.__func__ if isinstance(item, classmethod | staticmethod) else item
            if id(function) not in seen:
                seen.add(id(function))
                _describe(function)


cdef int _describe(function) except -1:
    cdef PyMethodDef *method = NULL
    if isinstance(function, FunctionType):
        if function.__doc__ and not function.__doc__.startswith(function.__name__ + "("):
            function.__doc__ = _described(function)
    elif isinstance(function, MethodDescriptorType | ClassMethodDescriptorType):
        method = (<PyMethodDescrObject *> function).d_method
    elif isinstance(function, BuiltinFunctionType):
        method = (<PyCFunctionObject *> function).m_ml
    if method != NULL and method.ml_doc != NULL and function.__text_signature__ is None:
        text = _with_signature(method.ml_doc, not isinstance(function, BuiltinFunctionType))
        Py_INCREF(text)  # stays, as the method does
        method.ml_doc = text
    return 0


def _described(function: FunctionType) -> str:
    """Return a docstring that begins with the call."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return f"{function.__name__}({', '.join(names)})\n\n{function.__doc__}"


cdef bytes _with_signature(bytes doc, bint bound):
    """Return a docstring behind the call that it begins with, without types."""
    cdef bytearray call = bytearray()
    cdef int depth = 0
    cdef bint typed = False
    cdef unsigned char c
    for c in doc:
        depth += (c in b"([{") - (c in b")]}")
        if depth == 0 or depth == 1 and c in b",=":
            typed = False
        elif depth == 1 and c == b":":
            typed = True
        if not typed and c != b" ":
            call.append(c)
            if bound and c == b"(" and depth == 1:
                call += b"$"
        if depth == 0 and c == b")":
            return bytes(call) + b"\n--\n\n" + doc
    return doc
