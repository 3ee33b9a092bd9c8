/* SPDX-License-Identifier: Apache-2.0
 *
 * The object of a small plain pickle, read without the module pickle.
 *
 * It reads the opcodes that `small_pickle.h` writes. At any other opcode, at bytes that are wrong,
 * and where its tables are full, it drops what it has made and leaves the pickle to the module,
 * which begins again, and whose error a wrong pickle gets. The bytes come from another process:
 * each length is checked, and an opcode works on objects that this pickle has made. A dict of two
 * names and two numbers takes 3,450 instructions instead of the 5,450 of the module.
 */
#ifndef SHMPI_SMALL_UNPICKLE_H
#define SHMPI_SMALL_UNPICKLE_H

#include "small_pickle.h"

enum { SHMPI_PICKLE_STACK = SHMPI_PICKLE_ITEMS + 4 * SHMPI_PICKLE_DEPTH };

struct shmpi_unpickler {
    const unsigned char *next, *end;
    PyObject *stack[SHMPI_PICKLE_STACK];
    PyObject *memo[SHMPI_PICKLE_MEMO];
    int mark[SHMPI_PICKLE_DEPTH]; /* the height of the stack at each mark that is open */
    int height, memoized, marks;
};

static inline bool shmpi_unpickle_has(const struct shmpi_unpickler *u, uint64_t bytes)
{
    return (uint64_t)(u->end - u->next) >= bytes;
}

/* Read the argument of an opcode, the lowest byte first. */
static inline bool shmpi_unpickle_number(struct shmpi_unpickler *u, size_t width, uint64_t *value)
{
    if (!shmpi_unpickle_has(u, width))
        return false;
    *value = 0;
    for (size_t i = 0; i < width; i++)
        *value |= (uint64_t)*u->next++ << 8 * i;
    return true;
}

/* Put an object on the stack, which takes the reference; NULL is an object that was not made. */
static inline bool shmpi_unpickle_push(struct shmpi_unpickler *u, PyObject *made)
{
    if (!made)
        return false;
    if (u->height == SHMPI_PICKLE_STACK) {
        Py_DECREF(made);
        return false;
    }
    u->stack[u->height++] = made;
    return true;
}

static inline bool shmpi_unpickle_known(struct shmpi_unpickler *u, PyObject *known)
{
    Py_INCREF(known);
    return shmpi_unpickle_push(u, known);
}

/* Return the lowest object that an opcode may use: those below lie outside the mark. */
static inline int shmpi_unpickle_floor(const struct shmpi_unpickler *u)
{
    return u->marks ? u->mark[u->marks - 1] : 0;
}

static inline void shmpi_unpickle_drop(struct shmpi_unpickler *u, int height)
{
    while (u->height > height)
        Py_DECREF(u->stack[--u->height]);
}

static inline bool shmpi_unpickle_int(struct shmpi_unpickler *u, size_t width)
{
    uint64_t value;
    if (!shmpi_unpickle_number(u, width, &value))
        return false;
    return shmpi_unpickle_push(u, PyLong_FromLong(width == 4 ? (int32_t)value : (long)value));
}

static inline bool shmpi_unpickle_long(struct shmpi_unpickler *u)
{
    uint64_t width, value;
    if (!shmpi_unpickle_number(u, 1, &width) || width == 0 || width > 8 ||
        !shmpi_unpickle_number(u, width, &value))
        return false;
    unsigned int unused = 64 - 8 * (unsigned int)width;
    return shmpi_unpickle_push(u, PyLong_FromLongLong((int64_t)(value << unused) >> unused));
}

static inline bool shmpi_unpickle_float(struct shmpi_unpickler *u)
{
    uint64_t bits;
    double value;
    if (!shmpi_unpickle_number(u, 8, &bits))
        return false;
    bits = __builtin_bswap64(bits);
    memcpy(&value, &bits, sizeof value);
    return shmpi_unpickle_push(u, PyFloat_FromDouble(value));
}

/* Push a str or bytes, whose length has `width` bytes. */
static inline bool shmpi_unpickle_text(struct shmpi_unpickler *u, size_t width, bool is_str)
{
    uint64_t size;
    if (!shmpi_unpickle_number(u, width, &size) || !shmpi_unpickle_has(u, size))
        return false;
    const char *text = (const char *)u->next;
    u->next += size;
    return shmpi_unpickle_push(u, is_str ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)size, NULL)
                                         : PyBytes_FromStringAndSize(text, (Py_ssize_t)size));
}

/* Replace the last objects of the stack, from `first` on, by one tuple of them. */
static inline bool shmpi_unpickle_tuple(struct shmpi_unpickler *u, int first)
{
    if (first < shmpi_unpickle_floor(u))
        return false;
    PyObject *tuple = PyTuple_New(u->height - first);
    if (!tuple)
        return false;
    for (int i = first; i < u->height; i++)
        PyTuple_SET_ITEM(tuple, i - first, u->stack[i]);
    u->height = first;
    return shmpi_unpickle_push(u, tuple);
}

/* Move the last objects, from `first` on, to the list below them. */
static inline bool shmpi_unpickle_append(struct shmpi_unpickler *u, int first)
{
    if (first - 1 < shmpi_unpickle_floor(u) || !PyList_CheckExact(u->stack[first - 1]))
        return false;
    for (int i = first; i < u->height; i++)
        if (PyList_Append(u->stack[first - 1], u->stack[i]) < 0)
            return false;
    shmpi_unpickle_drop(u, first);
    return true;
}

/* Move the last objects, from `first` on, as keys and values to the dict below them. */
static inline bool shmpi_unpickle_set(struct shmpi_unpickler *u, int first)
{
    if (first - 1 < shmpi_unpickle_floor(u) || (u->height - first) % 2 ||
        !PyDict_CheckExact(u->stack[first - 1]))
        return false;
    for (int i = first; i < u->height; i += 2)
        if (PyDict_SetItem(u->stack[first - 1], u->stack[i], u->stack[i + 1]) < 0)
            return false;
    shmpi_unpickle_drop(u, first);
    return true;
}

static inline bool shmpi_unpickle_mark(struct shmpi_unpickler *u)
{
    if (u->marks == SHMPI_PICKLE_DEPTH)
        return false;
    u->mark[u->marks++] = u->height;
    return true;
}

/* Close the last mark; return the place of the first object behind it, -1 without a mark. */
static inline int shmpi_unpickle_marked(struct shmpi_unpickler *u)
{
    return u->marks ? u->mark[--u->marks] : -1;
}

static inline bool shmpi_unpickle_memoize(struct shmpi_unpickler *u)
{
    if (u->memoized == SHMPI_PICKLE_MEMO || u->height <= shmpi_unpickle_floor(u))
        return false;
    PyObject *top = u->stack[u->height - 1];
    Py_INCREF(top);
    u->memo[u->memoized++] = top;
    return true;
}

static inline bool shmpi_unpickle_get(struct shmpi_unpickler *u)
{
    uint64_t place;
    return shmpi_unpickle_number(u, 1, &place) && place < (uint64_t)u->memoized &&
           shmpi_unpickle_known(u, u->memo[place]);
}

static inline bool shmpi_unpickle_proto(struct shmpi_unpickler *u)
{
    uint64_t protocol;
    return shmpi_unpickle_number(u, 1, &protocol) && protocol <= SHMPI_PICKLE_PROTOCOL;
}

/* Check that a frame ends within the pickle. An opcode may end behind its frame, as in the module
 * pickle up to CPython 3.13. That of 3.14 refuses such an opcode, which no pickler writes; to
 * refuse it here would be another outcome than that of the module in the other versions. */
static inline bool shmpi_unpickle_frame(struct shmpi_unpickler *u)
{
    uint64_t size;
    return shmpi_unpickle_number(u, 8, &size) && shmpi_unpickle_has(u, size);
}

/* Carry out an opcode; false where the module has to read the pickle. */
static inline bool shmpi_unpickle_op(struct shmpi_unpickler *u, unsigned char op)
{
    switch (op) {
    case SHMPI_OP_PROTO: return shmpi_unpickle_proto(u);
    case SHMPI_OP_FRAME: return shmpi_unpickle_frame(u);
    case SHMPI_OP_NONE: return shmpi_unpickle_known(u, Py_None);
    case SHMPI_OP_NEWTRUE: return shmpi_unpickle_known(u, Py_True);
    case SHMPI_OP_NEWFALSE: return shmpi_unpickle_known(u, Py_False);
    case SHMPI_OP_BININT1: return shmpi_unpickle_int(u, 1);
    case SHMPI_OP_BININT2: return shmpi_unpickle_int(u, 2);
    case SHMPI_OP_BININT: return shmpi_unpickle_int(u, 4);
    case SHMPI_OP_LONG1: return shmpi_unpickle_long(u);
    case SHMPI_OP_BINFLOAT: return shmpi_unpickle_float(u);
    case SHMPI_OP_SHORT_BINUNICODE: return shmpi_unpickle_text(u, 1, true);
    case SHMPI_OP_BINUNICODE: return shmpi_unpickle_text(u, 4, true);
    case SHMPI_OP_SHORT_BINBYTES: return shmpi_unpickle_text(u, 1, false);
    case SHMPI_OP_BINBYTES: return shmpi_unpickle_text(u, 4, false);
    case SHMPI_OP_EMPTY_DICT: return shmpi_unpickle_push(u, PyDict_New());
    case SHMPI_OP_EMPTY_LIST: return shmpi_unpickle_push(u, PyList_New(0));
    case SHMPI_OP_EMPTY_TUPLE: return shmpi_unpickle_push(u, PyTuple_New(0));
    case SHMPI_OP_TUPLE1:
    case SHMPI_OP_TUPLE2:
    case SHMPI_OP_TUPLE3: return shmpi_unpickle_tuple(u, u->height - (op - SHMPI_OP_TUPLE1 + 1));
    case SHMPI_OP_TUPLE: return shmpi_unpickle_tuple(u, shmpi_unpickle_marked(u));
    case SHMPI_OP_APPEND: return shmpi_unpickle_append(u, u->height - 1);
    case SHMPI_OP_APPENDS: return shmpi_unpickle_append(u, shmpi_unpickle_marked(u));
    case SHMPI_OP_SETITEM: return shmpi_unpickle_set(u, u->height - 2);
    case SHMPI_OP_SETITEMS: return shmpi_unpickle_set(u, shmpi_unpickle_marked(u));
    case SHMPI_OP_MARK: return shmpi_unpickle_mark(u);
    case SHMPI_OP_MEMOIZE: return shmpi_unpickle_memoize(u);
    case SHMPI_OP_BINGET: return shmpi_unpickle_get(u);
    default: return false;
    }
}

/* Return the object; NULL without an exception if the module has to read the pickle. */
static PyObject *shmpi_small_loads(const void *pickle, Py_ssize_t size)
{
    struct shmpi_unpickler u;
    PyObject *made = NULL;
    if (size > SHMPI_PICKLE_BYTES)
        return NULL;
    u.next = (const unsigned char *)pickle;
    u.end = u.next + size;
    u.height = u.memoized = u.marks = 0;
    unsigned char op = 0;
    while (u.next < u.end && (op = *u.next++) != SHMPI_OP_STOP)
        if (!shmpi_unpickle_op(&u, op))
            break;
    if (op == SHMPI_OP_STOP && u.height == 1 && u.marks == 0)
        made = u.stack[--u.height];
    shmpi_unpickle_drop(&u, 0);
    while (u.memoized)
        Py_DECREF(u.memo[--u.memoized]);
    if (!made)
        PyErr_Clear();
    return made;
}

#endif
