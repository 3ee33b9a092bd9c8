/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests that a program dropped, for those that it makes next: programs make and drop them by the
 * window, and the way of Cython through its constructors and destructors takes three times as long
 * for an object of one reference.
 *
 * A spare request has no reference, is unknown to the collector, and refers to nothing. Objects of
 * classes below Request go the usual way. The caller holds the interpreter's lock.
 */
#ifndef SHMPI_SPARE_REQUESTS_H
#define SHMPI_SPARE_REQUESTS_H

#include <Python.h>
#include <stdbool.h>
#include <stddef.h>

enum { SHMPI_SPARE_REQUESTS = 64 };

/* How Cython lays out a Request: the fields of its base, then its table of methods. Compared with
 * the class where that can be read; a test shows that requests are kept. */
struct shmpi_handle_object {
    PyObject head;
    PyObject *ob;
    PyObject *weak;
    void *methods;
};

static struct {
    PyTypeObject *type; /* NULL: none are kept */
    destructor usual;
    int count;
    PyObject *spare[SHMPI_SPARE_REQUESTS];
} shmpi_requests;

static void shmpi_request_drop(PyObject *o)
{
    struct shmpi_handle_object *h = (struct shmpi_handle_object *)o;
    if (Py_TYPE(o) != shmpi_requests.type || shmpi_requests.count == SHMPI_SPARE_REQUESTS) {
        shmpi_requests.usual(o);
        return;
    }
    PyObject_GC_UnTrack(o);
    if (h->weak)
        PyObject_ClearWeakRefs(o);
    Py_CLEAR(h->ob); /* may run a program's code, which may drop other requests */
    if (shmpi_requests.count < SHMPI_SPARE_REQUESTS) {
        shmpi_requests.spare[shmpi_requests.count++] = o;
        return;
    }
    PyObject_GC_Track(o);
    shmpi_requests.usual(o);
}

/* Keep dropped requests of a type as spare ones. To be called once, before there is a request;
 * without effect on a type of another layout. */
static inline void shmpi_requests_keep(PyObject *type)
{
    PyTypeObject *t = (PyTypeObject *)type;
    if (t->tp_basicsize != sizeof(struct shmpi_handle_object) || t->tp_itemsize ||
        t->tp_weaklistoffset != offsetof(struct shmpi_handle_object, weak) || t->tp_dictoffset ||
        t->tp_flags & Py_TPFLAGS_HEAPTYPE)
        return;
    shmpi_requests.type = t;
    shmpi_requests.usual = t->tp_dealloc;
    t->tp_dealloc = shmpi_request_drop;
}

/* Return a new reference to a request that refers to `ob`, or to a null one where none is spare;
 * NULL with an exception. A `lone` one, whose `ob` refers to nothing, is in no cycle: the collector
 * never sees it. */
static inline PyObject *shmpi_request_make(PyObject *type, PyObject *ob, bool lone)
{
    if (shmpi_requests.count) {
        PyObject *o =
            PyObject_Init(shmpi_requests.spare[--shmpi_requests.count], shmpi_requests.type);
        ((struct shmpi_handle_object *)o)->ob = Py_NewRef(ob);
        if (!lone)
            PyObject_GC_Track(o);
        return o;
    }
    PyObject *none = PyTuple_New(0);
    if (!none)
        return NULL;
    PyObject *o = ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, none, NULL);
    Py_DECREF(none);
    return o;
}

#endif
