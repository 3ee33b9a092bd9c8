/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of numpy's arrays and of their dtypes, as numpy 1 and 2 both have it.
 *
 * The buffer protocol costs a hundred nanoseconds on an array; these fields cost five. Whether they
 * lie where they are declared is checked once, against what numpy says of an array (`spec.pyx`);
 * if not, arrays take the way of all other objects.
 */
#ifndef SHMPI_NDARRAY_H
#define SHMPI_NDARRAY_H

#include <Python.h>

typedef struct {
    PyObject_HEAD PyTypeObject *scalar;
    char kind;
    char letter;
    char byteorder;
    char flags;
    int number;
} nd_dtype;

typedef struct {
    PyObject_HEAD char *data;
    int ndim;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    PyObject *base;
    nd_dtype *dtype;
    int flags;
} nd_array;

enum { ND_CONTIGUOUS = 3, ND_WRITEABLE = 0x400, ND_NUMBERS = 24 };

#endif
