/* SPDX-License-Identifier: Apache-2.0
 *
 * The predefined reductions: to[i] = left[i] op right[i], for every kind they take.
 *
 * A kernel is a plain loop, which the compiler turns into vector instructions. The order of the
 * operands is that of the standard, so that what a rank computes depends on the order of calls
 * alone. Memory may lie at any address: items are moved by memcpy where a kind needs alignment.
 *
 * `to` is `right` or `left`, or apart from both: an item of it depends on no other one. The
 * compiler hears that by MPI_ITEMS_APART; it would else compare the addresses in each call, and
 * take the loop without vector instructions where the result replaces an operand.
 */
#ifndef SHMPI_KERNELS_H
#define SHMPI_KERNELS_H

#include <complex.h>
#include <stdbool.h>
#include <string.h>

#include "datatypes/kinds.h"

enum mpi_op {
    MPI_OP_MAX,
    MPI_OP_MIN,
    MPI_OP_SUM,
    MPI_OP_PROD,
    MPI_OP_LAND,
    MPI_OP_BAND,
    MPI_OP_LOR,
    MPI_OP_BOR,
    MPI_OP_LXOR,
    MPI_OP_BXOR,
    MPI_OP_MAXLOC,
    MPI_OP_MINLOC,
    MPI_OP_REPLACE,
    MPI_OP_NO_OP,
    MPI_OP_END
};

typedef void (*mpi_kernel)(const void *left, const void *right, void *to, size_t count);

#if defined(__clang__)
#define MPI_ITEMS_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define MPI_ITEMS_APART _Pragma("GCC ivdep")
#endif

/* Types of C whose pointers may be unaligned. */
#define X(kind, type) typedef type mpi_loose_##kind __attribute__((aligned(1), may_alias));
MPI_SCALARS(X)
#undef X

static inline float mpi_from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Round to the nearest, ties to even; a NaN stays one. */
static inline uint16_t mpi_to_bf16(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#define MPI_KERNEL(op, kind, expression)                                                           \
    static void mpi_##op##_##kind(const void *left, const void *right, void *to, size_t n)         \
    {                                                                                              \
        const mpi_loose_##kind *a_ = left, *b_ = right;                                            \
        mpi_loose_##kind *c_ = to;                                                                 \
        MPI_ITEMS_APART                                                                            \
        for (size_t i = 0; i < n; i++) {                                                           \
            mpi_loose_##kind a = a_[i], b = b_[i];                                                 \
            c_[i] = (expression);                                                                  \
        }                                                                                          \
    }

#define MPI_INTEGERS(X) X(I8) X(I16) X(I32) X(I64) X(I128) X(U8) X(U16) X(U32) X(U64)
#define MPI_REALS(X) X(F16) X(F32) X(F64) X(F80) X(F128)
#define MPI_COMPLEX(X) X(C32) X(C64) X(C80)
#define MPI_LOGICALS(X) X(BOOL) X(L8) X(L16) X(L32) X(L64) X(L128)

#define X(kind)                                                                                    \
    MPI_KERNEL(MAX, kind, a > b ? a : b)                                                           \
    MPI_KERNEL(MIN, kind, a < b ? a : b)
MPI_INTEGERS(X)
MPI_REALS(X)
#undef X

/* Sums and products of integers wrap, as unsigned arithmetic of the same width does. */
#define MPI_WRAPPING(op, sign, kind, wide)                                                         \
    static void mpi_##op##_##kind(const void *left, const void *right, void *to, size_t n)         \
    {                                                                                              \
        const mpi_loose_##kind *a = left, *b = right;                                              \
        mpi_loose_##kind *c = to;                                                                  \
        MPI_ITEMS_APART                                                                            \
        for (size_t i = 0; i < n; i++)                                                             \
            c[i] = (mpi_loose_##kind)((wide)a[i] sign(wide) b[i]);                                 \
    }
#define X(kind, wide)                                                                              \
    MPI_WRAPPING(SUM, +, kind, wide)                                                               \
    MPI_WRAPPING(PROD, *, kind, wide)
X(I8, uint32_t)
X(I16, uint32_t)
X(I32, uint32_t)
X(I64, uint64_t)
X(I128, unsigned __int128)
X(U8, uint32_t)
X(U16, uint32_t)
X(U32, uint32_t)
X(U64, uint64_t)
#undef X

#define X(kind)                                                                                    \
    MPI_KERNEL(SUM, kind, a + b)                                                                   \
    MPI_KERNEL(PROD, kind, a *b)
MPI_REALS(X)
MPI_COMPLEX(X)
#undef X

/* Complex numbers that C has no type for. */
#define MPI_PAIR_OF(kind, type, part)                                                              \
    static void mpi_SUM_##kind(const void *left, const void *right, void *to, size_t n)            \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            type a, b;                                                                             \
            memcpy(&a, (const char *)left + i * sizeof a, sizeof a);                               \
            memcpy(&b, (const char *)right + i * sizeof b, sizeof b);                              \
            b.re = a.re + b.re;                                                                    \
            b.im = a.im + b.im;                                                                    \
            memcpy((char *)to + i * sizeof b, &b, sizeof b);                                       \
        }                                                                                          \
    }                                                                                              \
    static void mpi_PROD_##kind(const void *left, const void *right, void *to, size_t n)           \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            type a, b, c;                                                                          \
            memcpy(&a, (const char *)left + i * sizeof a, sizeof a);                               \
            memcpy(&b, (const char *)right + i * sizeof b, sizeof b);                              \
            c.re = (part)(a.re * b.re - a.im * b.im);                                              \
            c.im = (part)(a.re * b.im + a.im * b.re);                                              \
            memcpy((char *)to + i * sizeof c, &c, sizeof c);                                       \
        }                                                                                          \
    }
MPI_PAIR_OF(C16, mpi_complex_half, _Float16)
MPI_PAIR_OF(C128, mpi_complex_quad, __float128)

#define MPI_BRAIN(op, expression)                                                                  \
    static void mpi_##op##_BF16(const void *left, const void *right, void *to, size_t n)           \
    {                                                                                              \
        const mpi_loose_BF16 *a_ = left, *b_ = right;                                              \
        mpi_loose_BF16 *c_ = to;                                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            float a = mpi_from_bf16(a_[i]), b = mpi_from_bf16(b_[i]);                              \
            c_[i] = mpi_to_bf16(expression);                                                       \
        }                                                                                          \
    }
MPI_BRAIN(MAX, a > b ? a : b)
MPI_BRAIN(MIN, a < b ? a : b)
MPI_BRAIN(SUM, a + b)
MPI_BRAIN(PROD, a *b)

#define X(kind)                                                                                    \
    MPI_KERNEL(LAND, kind, a &&b)                                                                  \
    MPI_KERNEL(LOR, kind, a || b)                                                                  \
    MPI_KERNEL(LXOR, kind, !a != !b)
MPI_INTEGERS(X)
MPI_LOGICALS(X)
#undef X

#define X(kind)                                                                                    \
    MPI_KERNEL(BAND, kind, a &b)                                                                   \
    MPI_KERNEL(BOR, kind, a | b)                                                                   \
    MPI_KERNEL(BXOR, kind, a ^ b)
MPI_INTEGERS(X)
X(BYTE)
#undef X

static const mpi_kernel mpi_kernels[MPI_OP_END][MPI_KIND_END] = {
#define X(kind) [MPI_OP_MAX][MPI_KIND_##kind] = mpi_MAX_##kind,
    MPI_INTEGERS(X) MPI_REALS(X) X(BF16)
#undef X
#define X(kind) [MPI_OP_MIN][MPI_KIND_##kind] = mpi_MIN_##kind,
        MPI_INTEGERS(X) MPI_REALS(X) X(BF16)
#undef X
#define X(kind) [MPI_OP_SUM][MPI_KIND_##kind] = mpi_SUM_##kind,
            MPI_INTEGERS(X) MPI_REALS(X) MPI_COMPLEX(X) X(BF16) X(C16) X(C128)
#undef X
#define X(kind) [MPI_OP_PROD][MPI_KIND_##kind] = mpi_PROD_##kind,
                MPI_INTEGERS(X) MPI_REALS(X) MPI_COMPLEX(X) X(BF16) X(C16) X(C128)
#undef X
#define X(kind) [MPI_OP_LAND][MPI_KIND_##kind] = mpi_LAND_##kind,
                    MPI_INTEGERS(X) MPI_LOGICALS(X)
#undef X
#define X(kind) [MPI_OP_LOR][MPI_KIND_##kind] = mpi_LOR_##kind,
                        MPI_INTEGERS(X) MPI_LOGICALS(X)
#undef X
#define X(kind) [MPI_OP_LXOR][MPI_KIND_##kind] = mpi_LXOR_##kind,
                            MPI_INTEGERS(X) MPI_LOGICALS(X)
#undef X
#define X(kind) [MPI_OP_BAND][MPI_KIND_##kind] = mpi_BAND_##kind,
                                MPI_INTEGERS(X) X(BYTE)
#undef X
#define X(kind) [MPI_OP_BOR][MPI_KIND_##kind] = mpi_BOR_##kind,
                                    MPI_INTEGERS(X) X(BYTE)
#undef X
#define X(kind) [MPI_OP_BXOR][MPI_KIND_##kind] = mpi_BXOR_##kind,
                                        MPI_INTEGERS(X) X(BYTE)
#undef X
};

/* Return the sign of a - b for two values of a kind; a NaN is neither less nor more. */
static inline int mpi_compare(int kind, const void *a_, const void *b_)
{
    switch (kind) {
#define X(kind)                                                                                    \
    case MPI_KIND_##kind: {                                                                        \
        mpi_loose_##kind a = *(const mpi_loose_##kind *)a_;                                        \
        mpi_loose_##kind b = *(const mpi_loose_##kind *)b_;                                        \
        return a > b ? 1 : a < b ? -1 : 0;                                                         \
    }
        MPI_INTEGERS(X)
        MPI_REALS(X)
#undef X
    default: return 0;
    }
}

/* Reduce pairs by MAXLOC (`sign` 1) or MINLOC (-1), `extent` apart, with the index at `off`. */
static inline void mpi_locate(int value, int index, ptrdiff_t off, ptrdiff_t extent, int sign,
                              const char *in, char *inout, size_t n)
{
    for (size_t i = 0; i < n; i++, in += extent, inout += extent) {
        int order = mpi_compare(value, in, inout) * sign;
        if (order > 0 || (order == 0 && mpi_compare(index, in + off, inout + off) < 0)) {
            memcpy(inout, in, mpi_kinds[value].size);
            memcpy(inout + off, in + off, mpi_kinds[index].size);
        }
    }
}

#endif
