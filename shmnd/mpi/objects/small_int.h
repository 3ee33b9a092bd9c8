/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks and tags are nearly always small integers of Python: their value without a call.
 */
#ifndef SHMPI_SMALL_INT_H
#define SHMPI_SMALL_INT_H

#include <Python.h>
#include <stdbool.h>

/* Get the value of an int of at most one digit of Python's own; return false for other objects. */
static inline bool shmpi_small_int(PyObject *given, int *value)
{
    if (!PyLong_CheckExact(given))
        return false;
#if PY_VERSION_HEX >= 0x030c0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)given))
        return false;
    *value = (int)PyUnstable_Long_CompactValue((PyLongObject *)given);
#else
    Py_ssize_t digits = Py_SIZE(given);
    if (digits < -1 || digits > 1)
        return false;
    *value = (int)(digits * (Py_ssize_t)((PyLongObject *)given)->ob_digit[0]);
#endif
    return true;
}

#endif
