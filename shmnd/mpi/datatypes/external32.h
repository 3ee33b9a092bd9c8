/* SPDX-License-Identifier: Apache-2.0
 *
 * The representation "external32" of the MPI standard: big-endian, IEEE formats, sizes
 * that no machine changes. A long double is a binary128 there, a wchar_t has two bytes.
 */
#ifndef SHMPI_EXTERNAL32_H
#define SHMPI_EXTERNAL32_H

#include <string.h>
#include <wchar.h>

#include "datatypes/kinds.h"

/* Return how many parts an item of a kind has: a complex number has two. */
static inline size_t mpi_external_parts(int kind)
{
    return kind >= MPI_KIND_C32 && kind <= MPI_KIND_C128 ? 2 : 1;
}

/* Return how many bytes an item of a kind has in external32. */
static inline size_t mpi_external_size(int kind)
{
    return kind == MPI_KIND_WCHAR ? 2 : mpi_kinds[kind].size;
}

static inline void mpi_external_turn(const char *from, char *to, size_t bytes)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (size_t i = 0; i < bytes; i++)
        to[i] = from[bytes - 1 - i];
#else
    memcpy(to, from, bytes);
#endif
}

/* Convert one part of an item of this machine to external32. */
static inline void mpi_external_put(int kind, const char *here, char *there, size_t bytes)
{
    if (kind == MPI_KIND_F80 || kind == MPI_KIND_C80) {
        long double number;
        __float128 quad;
        memcpy(&number, here, sizeof number);
        quad = number;
        mpi_external_turn((const char *)&quad, there, 16);
    } else if (kind == MPI_KIND_WCHAR) {
        wchar_t letter;
        uint16_t unit;
        memcpy(&letter, here, sizeof letter);
        unit = (uint16_t)letter;
        mpi_external_turn((const char *)&unit, there, 2);
    } else {
        mpi_external_turn(here, there, bytes);
    }
}

/* Convert one part of an item of external32 to this machine's. */
static inline void mpi_external_get(int kind, const char *there, char *here, size_t bytes)
{
    if (kind == MPI_KIND_F80 || kind == MPI_KIND_C80) {
        long double number;
        __float128 quad;
        mpi_external_turn(there, (char *)&quad, 16);
        memset(here, 0, sizeof number);
        number = (long double)quad;
        memcpy(here, &number, 10);
    } else if (kind == MPI_KIND_WCHAR) {
        wchar_t letter;
        uint16_t unit;
        mpi_external_turn(there, (char *)&unit, 2);
        letter = (wchar_t)unit;
        memcpy(here, &letter, sizeof letter);
    } else {
        mpi_external_turn(there, here, bytes);
    }
}

/* Convert `count` items of a kind; returns the bytes of external32 that they are. */
static inline size_t mpi_external_copy(int kind, char *here, char *there, size_t count, int back)
{
    size_t parts = mpi_external_parts(kind);
    size_t outside = mpi_external_size(kind) / parts;
    size_t inside = mpi_kinds[kind].size / parts;
    for (size_t i = 0; i < count * parts; i++) {
        if (back)
            mpi_external_get(kind, there + i * outside, here + i * inside, outside);
        else
            mpi_external_put(kind, here + i * inside, there + i * outside, outside);
    }
    return count * parts * outside;
}

#endif
