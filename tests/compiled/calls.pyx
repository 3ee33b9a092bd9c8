# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Every call of shmnd.native, with its arguments and results as objects."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint32_t

from shmnd cimport native

cdef enum:
    MOST = 40


cdef class _List:
    cdef native.shmnd_native_sge elements[MOST]
    cdef uint32_t count


cdef _List _list(elements):
    cdef _List made = _List()
    for each in elements:
        made.elements[made.count] = native.shmnd_native_sge(each.address, each.length, each.token)
        made.count += 1
    return made


def send(pair, elements, context=None, flags=0):
    cdef _List made = _list(elements)
    return native.send(pair, made.elements, made.count, context, flags)


def receive(pair, elements, context=None):
    cdef _List made = _list(elements)
    return native.receive(pair, made.elements, made.count, context)


def read(pair, elements, address, token, context=None, flags=0):
    cdef _List made = _list(elements)
    return native.read(pair, made.elements, made.count, address, token, context, flags)


def write(pair, elements, address, token, context=None, flags=0):
    cdef _List made = _list(elements)
    return native.write(pair, made.elements, made.count, address, token, context, flags)


def take(queue, most=MOST):
    cdef native.shmnd_native_result out[MOST]
    cdef int n = native.take(queue, out, most), i
    taken = [
        (<object>out[i].request_context, <object>out[i].queue_pair_context, out[i].status,
         out[i].bytes_transferred, out[i].request_type)
        for i in range(n)
    ]
    native.release(out, n)
    return taken


def drain(queue):
    return native.drain(queue)


def peek(pair, address, token, nbytes):
    """A copy of a peer's memory, made after everything but the mapping may have gone."""
    cdef PyObject *holder = NULL
    cdef const char *at = <const char *>native.view(pair, address, token, nbytes, &holder)
    pair.close()
    copied = at[:nbytes]
    Py_DECREF(<object>holder)
    return copied
