/* SPDX-License-Identifier: Apache-2.0
 *
 * The pickle of a small plain object, written without the module pickle.
 *
 * These functions write the same bytes as `pickle.dumps(obj, 5)`, for None, bool, int of 64 bits,
 * float, str, bytes, and for dict, list and tuple of them. A dict of two names and two numbers
 * takes 1,500 instructions instead of the 4,300 of the module (callgrind, Python 3.11).
 *
 * Whatever is beyond that, in type, size or depth, is left to the module: nothing here has an
 * effect outside the buffer, and no code of the program runs.
 */
#ifndef SHMPI_SMALL_PICKLE_H
#define SHMPI_SMALL_PICKLE_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "pickle_opcodes.h"

enum {
    SHMPI_PICKLE_BYTES = 4096, /* the longest pickle that is written or read here */
    SHMPI_PICKLE_MEMO = 64,    /* objects that a later one may be the same as */
    SHMPI_PICKLE_ITEMS = 128,  /* items of one container */
    SHMPI_PICKLE_DEPTH = 8,    /* containers in each other */
    SHMPI_PICKLE_PROTOCOL = 5,
    SHMPI_PICKLE_UNFRAMED = 4, /* a shorter frame has no head */
    SHMPI_PICKLE_FRAME = 9,    /* bytes of the head of a frame */
    SHMPI_PICKLE_HEAD = 2,     /* bytes of PROTO */
};

struct shmpi_pickler {
    unsigned char out[SHMPI_PICKLE_BYTES];
    size_t used;
    PyObject *memo[SHMPI_PICKLE_MEMO]; /* borrowed: the object that is pickled holds them */
    int memoized;
    int depth;
};

static bool shmpi_pickle_value(struct shmpi_pickler *p, PyObject *obj);

static inline bool shmpi_pickle_op(struct shmpi_pickler *p, unsigned char op)
{
    if (p->used == sizeof p->out)
        return false;
    p->out[p->used++] = op;
    return true;
}

/* Write an opcode with the `width` low bytes of `argument` behind it, the lowest first. */
static inline bool shmpi_pickle_number(struct shmpi_pickler *p, unsigned char op, uint64_t argument,
                                       size_t width)
{
    if (sizeof p->out - p->used < 1 + width)
        return false;
    p->out[p->used++] = op;
    for (size_t i = 0; i < width; i++)
        p->out[p->used++] = (unsigned char)(argument >> 8 * i);
    return true;
}

/* Return the place of an object in the memo; -1 if it is not there. */
static inline int shmpi_pickle_place(const struct shmpi_pickler *p, const PyObject *obj)
{
    for (int i = 0; i < p->memoized; i++)
        if (p->memo[i] == obj)
            return i;
    return -1;
}

static inline bool shmpi_pickle_memoize(struct shmpi_pickler *p, PyObject *obj)
{
    if (p->memoized == SHMPI_PICKLE_MEMO)
        return false;
    p->memo[p->memoized++] = obj;
    return shmpi_pickle_op(p, SHMPI_OP_MEMOIZE);
}

/* Write the bytes of a str or of bytes, under the opcode for up to 255 of them or that for more. */
static inline bool shmpi_pickle_text(struct shmpi_pickler *p, PyObject *obj, const char *text,
                                     Py_ssize_t size, unsigned char brief, unsigned char more)
{
    if (size > SHMPI_PICKLE_BYTES)
        return false;
    bool fits = size <= 0xff ? shmpi_pickle_number(p, brief, (uint64_t)size, 1)
                             : shmpi_pickle_number(p, more, (uint64_t)size, 4);
    if (!fits || sizeof p->out - p->used < (size_t)size)
        return false;
    memcpy(p->out + p->used, text, (size_t)size);
    p->used += (size_t)size;
    return shmpi_pickle_memoize(p, obj);
}

static inline bool shmpi_pickle_str(struct shmpi_pickler *p, PyObject *obj)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(obj, &size);
    if (!text) { /* it has surrogates */
        PyErr_Clear();
        return false;
    }
    return shmpi_pickle_text(p, obj, text, size, SHMPI_OP_SHORT_BINUNICODE, SHMPI_OP_BINUNICODE);
}

/* Write an int of more than 32 bits, in as few bytes as hold it and its sign. */
static inline bool shmpi_pickle_long(struct shmpi_pickler *p, long long value)
{
    size_t width = 5;
    while (width < 8 && (value >> (8 * width - 1)) != 0 && (value >> (8 * width - 1)) != -1)
        width++;
    return shmpi_pickle_op(p, SHMPI_OP_LONG1) &&
           shmpi_pickle_number(p, (unsigned char)width, (uint64_t)value, width);
}

static inline bool shmpi_pickle_int(struct shmpi_pickler *p, PyObject *obj)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(obj, &overflow);
    if (overflow)
        return false;
    if (value >= 0 && value <= 0xff)
        return shmpi_pickle_number(p, SHMPI_OP_BININT1, (uint64_t)value, 1);
    if (value >= 0 && value <= 0xffff)
        return shmpi_pickle_number(p, SHMPI_OP_BININT2, (uint64_t)value, 2);
    if (value >= INT32_MIN && value <= INT32_MAX)
        return shmpi_pickle_number(p, SHMPI_OP_BININT, (uint64_t)value, 4);
    return shmpi_pickle_long(p, value);
}

/* Write a float, the highest byte first, unlike all other numbers of a pickle. */
static inline bool shmpi_pickle_float(struct shmpi_pickler *p, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return shmpi_pickle_number(p, SHMPI_OP_BINFLOAT, __builtin_bswap64(bits), 8);
}

static bool shmpi_pickle_dict(struct shmpi_pickler *p, PyObject *dict)
{
    Py_ssize_t size = PyDict_GET_SIZE(dict), at = 0;
    PyObject *key, *value;
    if (size > SHMPI_PICKLE_ITEMS / 2 || !shmpi_pickle_op(p, SHMPI_OP_EMPTY_DICT) ||
        !shmpi_pickle_memoize(p, dict))
        return false;
    if (size == 0)
        return true;
    if (size > 1 && !shmpi_pickle_op(p, SHMPI_OP_MARK))
        return false;
    while (PyDict_Next(dict, &at, &key, &value))
        if (!shmpi_pickle_value(p, key) || !shmpi_pickle_value(p, value))
            return false;
    return shmpi_pickle_op(p, size > 1 ? SHMPI_OP_SETITEMS : SHMPI_OP_SETITEM);
}

static bool shmpi_pickle_list(struct shmpi_pickler *p, PyObject *list)
{
    Py_ssize_t size = PyList_GET_SIZE(list);
    if (size > SHMPI_PICKLE_ITEMS || !shmpi_pickle_op(p, SHMPI_OP_EMPTY_LIST) ||
        !shmpi_pickle_memoize(p, list))
        return false;
    if (size == 0)
        return true;
    if (size > 1 && !shmpi_pickle_op(p, SHMPI_OP_MARK))
        return false;
    for (Py_ssize_t i = 0; i < size; i++)
        if (!shmpi_pickle_value(p, PyList_GET_ITEM(list, i)))
            return false;
    return shmpi_pickle_op(p, size > 1 ? SHMPI_OP_APPENDS : SHMPI_OP_APPEND);
}

/* Write a tuple, and memoize it behind its items. Return false for one that is in itself, which is
 * in the memo by then: the module has to write it. */
static bool shmpi_pickle_tuple(struct shmpi_pickler *p, PyObject *tuple)
{
    Py_ssize_t size = PyTuple_GET_SIZE(tuple);
    if (size == 0)
        return shmpi_pickle_op(p, SHMPI_OP_EMPTY_TUPLE);
    if (size > SHMPI_PICKLE_ITEMS || (size > 3 && !shmpi_pickle_op(p, SHMPI_OP_MARK)))
        return false;
    for (Py_ssize_t i = 0; i < size; i++)
        if (!shmpi_pickle_value(p, PyTuple_GET_ITEM(tuple, i)))
            return false;
    if (shmpi_pickle_place(p, tuple) >= 0)
        return false;
    unsigned char op = size > 3 ? SHMPI_OP_TUPLE : (unsigned char)(SHMPI_OP_TUPLE1 + (int)size - 1);
    return shmpi_pickle_op(p, op) && shmpi_pickle_memoize(p, tuple);
}

static bool shmpi_pickle_container(struct shmpi_pickler *p, PyObject *obj)
{
    if (p->depth == SHMPI_PICKLE_DEPTH)
        return false;
    p->depth++;
    bool written = PyDict_CheckExact(obj)    ? shmpi_pickle_dict(p, obj)
                   : PyList_CheckExact(obj)  ? shmpi_pickle_list(p, obj)
                   : PyTuple_CheckExact(obj) ? shmpi_pickle_tuple(p, obj)
                                             : false;
    p->depth--;
    return written;
}

static bool shmpi_pickle_value(struct shmpi_pickler *p, PyObject *obj)
{
    if (obj == Py_None)
        return shmpi_pickle_op(p, SHMPI_OP_NONE);
    if (PyBool_Check(obj))
        return shmpi_pickle_op(p, obj == Py_True ? SHMPI_OP_NEWTRUE : SHMPI_OP_NEWFALSE);
    if (PyLong_CheckExact(obj))
        return shmpi_pickle_int(p, obj);
    if (PyFloat_CheckExact(obj))
        return shmpi_pickle_float(p, PyFloat_AS_DOUBLE(obj));
    int place = shmpi_pickle_place(p, obj);
    if (place >= 0)
        return shmpi_pickle_number(p, SHMPI_OP_BINGET, (uint64_t)place, 1);
    if (PyUnicode_CheckExact(obj))
        return shmpi_pickle_str(p, obj);
    if (PyBytes_CheckExact(obj))
        return shmpi_pickle_text(p, obj, PyBytes_AS_STRING(obj), PyBytes_GET_SIZE(obj),
                                 SHMPI_OP_SHORT_BINBYTES, SHMPI_OP_BINBYTES);
    return shmpi_pickle_container(p, obj);
}

/* Write the head of the pickle before the values, whose length it names; return where it begins. */
static inline const unsigned char *shmpi_pickle_close(struct shmpi_pickler *p, size_t *size)
{
    const size_t head = SHMPI_PICKLE_HEAD + SHMPI_PICKLE_FRAME;
    size_t frame = p->used - head;
    unsigned char *start = p->out;
    if (frame < SHMPI_PICKLE_UNFRAMED) {
        start += SHMPI_PICKLE_FRAME;
    } else {
        p->used = SHMPI_PICKLE_HEAD;
        shmpi_pickle_number(p, SHMPI_OP_FRAME, frame, 8);
    }
    start[0] = SHMPI_OP_PROTO;
    start[1] = SHMPI_PICKLE_PROTOCOL;
    *size = (size_t)(p->out + head + frame - start);
    return start;
}

/* Return the pickle as bytes; NULL without an exception if the module has to write it. */
static PyObject *shmpi_small_dumps(PyObject *obj)
{
    struct shmpi_pickler p;
    p.used = SHMPI_PICKLE_HEAD + SHMPI_PICKLE_FRAME;
    p.memoized = 0;
    p.depth = 0;
    if (!shmpi_pickle_value(&p, obj) || !shmpi_pickle_op(&p, SHMPI_OP_STOP))
        return NULL;
    size_t size;
    const unsigned char *start = shmpi_pickle_close(&p, &size);
    PyObject *made = PyBytes_FromStringAndSize((const char *)start, (Py_ssize_t)size);
    if (!made)
        PyErr_Clear();
    return made;
}

#endif
