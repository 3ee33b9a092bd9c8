/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the large bytes and bytearrays of a pickle lie, so that they are copied once.
 *
 * The module pickle reads a pickle in one piece, and copies each of these bodies out of it. A
 * reader that knows where they are copies each straight from the memory of the sender into its
 * object, and the rest into a pickle of its own, in which the opcode NEXT_BUFFER is in the place of
 * a body: the module then takes the object as it is. So the result is that of the whole pickle.
 *
 * The memory belongs to another process, which may change it at any time. Each byte of an opcode is
 * read once, every length is checked against the end, and the caller copies by the places that were
 * found, so that nothing outside the memory is read, whatever it holds.
 *
 * The search reads a bounded number of opcodes for each body: a pickle of many small objects is
 * left to the module after that, as is one with opcodes of the old text protocol.
 */
#ifndef SHMPI_PICKLE_BODIES_H
#define SHMPI_PICKLE_BODIES_H

#include <stdbool.h>
#include <stdint.h>

#include "pickle_opcodes.h"

enum {
    /* The module pickle begins no frame around a body of so many bytes. */
    SHMPI_BODY_LEAST = 64 << 10,
    SHMPI_BODIES = 64,        /* bodies of one pickle: others are read as a part of the rest */
    SHMPI_BODY_OPCODES = 500, /* that are read, before the first body and from one to the next */
};

struct shmpi_body {
    uint64_t head, at; /* where its opcode begins, and its bytes */
    uint64_t bytes;
    bool array; /* of a bytearray */
};

/* What follows an opcode: so many bytes; or a length of so many bytes and that many bytes more. */
enum { SHMPI_OPCODE_SIZED = 0x40, SHMPI_OPCODE_OTHER = 0x80 };

static inline unsigned shmpi_opcode_argument(unsigned char op)
{
    switch (op) {
    case SHMPI_OP_BININT1:
    case SHMPI_OP_BINGET:
    case SHMPI_OP_BINPUT:
    case SHMPI_OP_PROTO:
    case SHMPI_OP_EXT1: return 1;
    case SHMPI_OP_BININT2:
    case SHMPI_OP_EXT2: return 2;
    case SHMPI_OP_BININT:
    case SHMPI_OP_LONG_BINGET:
    case SHMPI_OP_LONG_BINPUT:
    case SHMPI_OP_EXT4: return 4;
    case SHMPI_OP_BINFLOAT:
    case SHMPI_OP_FRAME: return 8;
    case SHMPI_OP_SHORT_BINSTRING:
    case SHMPI_OP_SHORT_BINBYTES:
    case SHMPI_OP_LONG1:
    case SHMPI_OP_SHORT_BINUNICODE: return SHMPI_OPCODE_SIZED | 1;
    case SHMPI_OP_BINSTRING:
    case SHMPI_OP_BINBYTES:
    case SHMPI_OP_BINUNICODE:
    case SHMPI_OP_LONG4: return SHMPI_OPCODE_SIZED | 4;
    case SHMPI_OP_BINUNICODE8:
    case SHMPI_OP_BINBYTES8:
    case SHMPI_OP_BYTEARRAY8: return SHMPI_OPCODE_SIZED | 8;
    case SHMPI_OP_MARK:
    case SHMPI_OP_POP:
    case SHMPI_OP_POP_MARK:
    case SHMPI_OP_DUP:
    case SHMPI_OP_BINPERSID:
    case SHMPI_OP_REDUCE:
    case SHMPI_OP_NONE:
    case SHMPI_OP_APPEND:
    case SHMPI_OP_BUILD:
    case SHMPI_OP_DICT:
    case SHMPI_OP_EMPTY_DICT:
    case SHMPI_OP_APPENDS:
    case SHMPI_OP_LIST:
    case SHMPI_OP_EMPTY_LIST:
    case SHMPI_OP_SETITEM:
    case SHMPI_OP_SETITEMS:
    case SHMPI_OP_TUPLE:
    case SHMPI_OP_EMPTY_TUPLE:
    case SHMPI_OP_OBJ:
    case SHMPI_OP_NEWOBJ:
    case SHMPI_OP_TUPLE1:
    case SHMPI_OP_TUPLE2:
    case SHMPI_OP_TUPLE3:
    case SHMPI_OP_NEWTRUE:
    case SHMPI_OP_NEWFALSE:
    case SHMPI_OP_EMPTY_SET:
    case SHMPI_OP_ADDITEMS:
    case SHMPI_OP_FROZENSET:
    case SHMPI_OP_NEWOBJ_EX:
    case SHMPI_OP_STACK_GLOBAL:
    case SHMPI_OP_MEMOIZE: return 0;
    default: /* STOP, the text protocol, buffers outside the pickle, and other bytes */
        return SHMPI_OPCODE_OTHER;
    }
}

/* Return the number of `width` bytes at a place, the lowest first. */
static inline uint64_t shmpi_opcode_number(const unsigned char *at, unsigned width)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < width; i++)
        number |= (uint64_t)__atomic_load_n(at + i, __ATOMIC_RELAXED) << 8 * i;
    return number;
}

/* Find the large bodies of a pickle, in order, and return their number. */
static inline int shmpi_find_bodies(const unsigned char *pickle, uint64_t n,
                                    struct shmpi_body bodies[SHMPI_BODIES])
{
    uint64_t at = 0, frame_end = 0;
    int found = 0;
    for (int opcodes = 0; at < n && opcodes < SHMPI_BODY_OPCODES; opcodes++) {
        uint64_t head = at;
        unsigned char op = __atomic_load_n(pickle + at++, __ATOMIC_RELAXED);
        unsigned argument = shmpi_opcode_argument(op), width = argument & 0xf;
        if (argument == SHMPI_OPCODE_OTHER || width > n - at)
            break;
        uint64_t number = shmpi_opcode_number(pickle + at, width);
        at += width;
        if (op == SHMPI_OP_FRAME) {
            if (number > n - at)
                break;
            frame_end = at + number;
        }
        if (!(argument & SHMPI_OPCODE_SIZED))
            continue;
        if (number > n - at)
            break;
        bool array = op == SHMPI_OP_BYTEARRAY8,
             body = array || op == SHMPI_OP_BINBYTES || op == SHMPI_OP_BINBYTES8;
        if (body && number >= SHMPI_BODY_LEAST &&
            head >= frame_end) { /* a frame keeps its length */
            bodies[found] = (struct shmpi_body){head, at, number, array};
            if (++found == SHMPI_BODIES)
                break;
            opcodes = 0;
        }
        at += number;
    }
    return found;
}

#endif
