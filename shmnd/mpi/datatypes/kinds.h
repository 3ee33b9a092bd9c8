/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of basic items that datatypes consist of: what the machine makes of a named
 * type of MPI. MPI_INT and MPI_INTEGER4 are of one kind.
 */
#ifndef SHMPI_KINDS_H
#define SHMPI_KINDS_H

#include <stddef.h>
#include <stdint.h>

#include <wchar.h>

typedef struct {
    _Float16 re, im;
} mpi_complex_half;

typedef struct {
    __float128 re, im;
} mpi_complex_quad;

/* kind, type of C */
#define MPI_SCALARS(X)                                                                             \
    X(BYTE, unsigned char)                                                                         \
    X(CHAR, char)                                                                                  \
    X(WCHAR, wchar_t)                                                                              \
    X(I8, int8_t)                                                                                  \
    X(I16, int16_t)                                                                                \
    X(I32, int32_t)                                                                                \
    X(I64, int64_t)                                                                                \
    X(I128, __int128)                                                                              \
    X(U8, uint8_t)                                                                                 \
    X(U16, uint16_t)                                                                               \
    X(U32, uint32_t)                                                                               \
    X(U64, uint64_t)                                                                               \
    X(BOOL, _Bool)                                                                                 \
    X(L8, int8_t)                                                                                  \
    X(L16, int16_t)                                                                                \
    X(L32, int32_t)                                                                                \
    X(L64, int64_t)                                                                                \
    X(L128, __int128)                                                                              \
    X(F16, _Float16)                                                                               \
    X(BF16, uint16_t)                                                                              \
    X(F32, float)                                                                                  \
    X(F64, double)                                                                                 \
    X(F80, long double)                                                                            \
    X(F128, __float128)                                                                            \
    X(C32, float _Complex)                                                                         \
    X(C64, double _Complex)                                                                        \
    X(C80, long double _Complex)
#define MPI_KINDS(X)                                                                               \
    MPI_SCALARS(X)                                                                                 \
    X(C16, mpi_complex_half)                                                                       \
    X(C128, mpi_complex_quad)

enum mpi_kind {
    MPI_KIND_NONE,
#define X(kind, type) MPI_KIND_##kind,
    MPI_KINDS(X)
#undef X
        MPI_KIND_END
};

typedef struct {
    const char *name;
    size_t size;
    size_t align;
} mpi_kind_facts;

static const mpi_kind_facts mpi_kinds[] = {{"", 0, 1},
#define X(kind, type) {#kind, sizeof(type), _Alignof(type)},
                                           MPI_KINDS(X)
#undef X
};

#endif
