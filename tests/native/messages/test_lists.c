/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of elements in segments and in private memory, in any order, at both ends, for Send, Read
 * and Write: each element is accessed in its own way, and no message whose memory is accessible
 * goes through the ring.
 */
#include "world.h"

#define ELEMENTS 3u

/* Memory of one side: an element a bit of `privates`, a gap between them. */
struct list {
    uint8_t *at[ELEMENTS];
    struct shmnd_sge sges[ELEMENTS];
};

static struct list list_new(struct proc *p, uint32_t bytes, uint32_t privates, uint32_t first,
                            uint32_t rights)
{
    uint32_t length[ELEMENTS] = {first, bytes / 3, bytes - first - bytes / 3};
    struct list l;
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        l.at[i] = privates >> i & 1 ? guard_alloc(length[i]) : shared_bytes(p, length[i]);
        l.sges[i] = sge(l.at[i], length[i], region_new(p, l.at[i], length[i], rights));
    }
    return l;
}

static void list_fill(const struct list *l, uint64_t salt)
{
    for (uint32_t i = 0; i < ELEMENTS; i++)
        fill(l->at[i], l->sges[i].length, salt + i);
}

static void list_gather(const struct list *l, uint8_t *out)
{
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        memcpy(out, l->at[i], l->sges[i].length);
        out += l->sges[i].length;
    }
}

static void same(const struct list *a, const struct list *b, uint32_t bytes)
{
    uint8_t *x = guard_alloc(bytes), *y = guard_alloc(bytes);
    list_gather(a, x);
    list_gather(b, y);
    CHECK(memcmp(x, y, bytes) == 0);
}

static const uint32_t sizes[] = {150,
                                 SHMND_PLACE_MIN,
                                 SHMND_EAGER_MAX,
                                 SHMND_EAGER_MAX + 1,
                                 SHMND_EAGER_LONGEST,
                                 SHMND_EAGER_LONGEST + 1,
                                 20000,
                                 SHMND_SHARE_MIN - 1,
                                 SHMND_SHARE_MIN,
                                 300001};
#define SIZES (sizeof sizes / sizeof sizes[0])

enum setting { POSTED, LATE, SHARED_QUEUE, OUT_OF_REACH, ONE_SIDE_REACHES, SETTINGS };

static void one_send(uint32_t bytes, uint32_t source, uint32_t sink, enum setting setting)
{
    struct duo d;
    struct pair_options o = pair_usual, bo = o;
    struct shmnd_receives srq;
    NOTE("%u bytes, source %x, sink %x, setting %d", bytes, source, sink, setting);
    if (setting == SHARED_QUEUE) {
        receives_make(&srq, 16, 4);
        bo.srq = &srq;
    }
    duo_open_with(&d, (struct world_options){.no_vm = setting == OUT_OF_REACH}, o, bo);
    if (setting == ONE_SIDE_REACHES) {
        d.pa->peer.vm = false;
        shmnd_put32(&d.a->q.link.mine->reaches, 2);
    }
    struct list from = list_new(d.pa, bytes, source, 64, 0);
    struct list to = list_new(d.pb, bytes, sink, bytes / 2, SHMND_MR_LOCAL_WRITE);
    list_fill(&from, bytes);
    if (setting == LATE) {
        EQUAL(post_send(d.a, 1, from.sges, ELEMENTS, 0), SHMND_SUCCESS);
        CHECK(nothing(d.qa) && nothing(d.qb));
    }
    if (setting == SHARED_QUEUE)
        shmnd_receives_add(&srq, (void *)2, to.sges, ELEMENTS);
    else
        EQUAL(post_receive(d.b, 2, to.sges, ELEMENTS), SHMND_SUCCESS);
    if (setting != LATE)
        EQUAL(post_send(d.a, 1, from.sges, ELEMENTS, 0), SHMND_SUCCESS);
    EXPECT(d.qa, SHMND_SEND, 1, SHMND_SUCCESS);
    EXPECT_RECEIVED(d.qb, 2, bytes);
    same(&from, &to, bytes);
    EQUAL(d.a->q.state, SHMND_QP_CONNECTED);
    EQUAL(d.b->q.state, SHMND_QP_CONNECTED);
    if (setting != OUT_OF_REACH && bytes > SHMND_EAGER_LONGEST)
        CHECK(d.a->q.out.write_pos <= 2);
    duo_close(&d);
}

static void sends(void)
{
    for (uint32_t i = 0; i < SIZES; i++)
        for (uint32_t lists = 0; lists < 64; lists++)
            for (int setting = 0; setting < SETTINGS; setting++)
                one_send(sizes[i], lists & 7, lists >> 3, (enum setting)setting);
}

/* Where `remote` is one element, of the owner's. */
static void one_copy(uint32_t bytes, uint32_t local, bool remote_private, bool reading)
{
    struct duo d;
    NOTE("%u bytes, local %x, remote private %d, reading %d", bytes, local, remote_private,
         reading);
    duo_open(&d);
    struct list mine = list_new(d.pa, bytes, local, 64, SHMND_MR_LOCAL_WRITE);
    uint8_t *theirs = remote_private ? guard_alloc(bytes) : shared_bytes(d.pb, bytes);
    uint32_t token = region_new(d.pb, theirs, bytes, SHMND_MR_REMOTE_READ | SHMND_MR_REMOTE_WRITE);
    uint8_t *want = guard_alloc(bytes), *got = guard_alloc(bytes);
    list_fill(&mine, 1);
    fill(theirs, bytes, 2);
    EQUAL(post_rdma(d.a, 1, reading ? SHMND_READ : SHMND_WRITE, mine.sges, ELEMENTS, theirs, token,
                    0),
          SHMND_SUCCESS);
    EXPECT(d.qa, reading ? SHMND_READ : SHMND_WRITE, 1, SHMND_SUCCESS);
    list_gather(&mine, got);
    CHECK(memcmp(got, theirs, bytes) == 0);
    if (reading)
        fill(want, bytes, 2);
    CHECK(!reading || memcmp(want, got, bytes) == 0);
    CHECK(reading || filled(got, 64, 1));
    duo_close(&d);
}

static void reads_and_writes(void)
{
    for (uint32_t i = 0; i < SIZES; i++)
        for (uint32_t k = 0; k < 32; k++)
            one_copy(sizes[i], k & 7, k & 8, k & 16);
}

/* A list with private memory that the reader cannot access is left to the sender; one with a range
 * outside its segment is a fault. */
static void a_hostile_list_is_a_fault(void)
{
    struct duo d;
    struct shmnd_spans out;
    duo_open(&d);
    const struct shmnd_peer *peer = &d.pa->peer;
    shmnd_spans_clear(&out);
    EQUAL(shmnd_peer_add_span(peer, SHMND_PRIVATE_MEMORY, 4096, 64, false, &out), 1);
    EQUAL(shmnd_peer_add_span(peer, 0, 0, 64, false, &out), 1);
    EQUAL(shmnd_peer_add_span(peer, 0, d.pb->segment_bytes, 1, false, &out), -1);
    EQUAL(shmnd_peer_add_span(peer, SHMND_FIRST_MARKS_SEGMENT, 0, 1, false, &out), -1);
    EQUAL(shmnd_peer_add_span(peer, SHMND_PRIVATE_MEMORY, 4096, 64, false, &out), 1);
    EQUAL(out.count, 3);
    EQUAL(out.remote, 5);
    EQUAL(out.total, 192);
    d.pa->peer.vm = false;
    EQUAL(shmnd_peer_add_span(peer, SHMND_PRIVATE_MEMORY, 4096, 64, false, &out), -1);
    duo_close(&d);
}

/* A message into private memory goes through the ring while that is faster, if there is room: no
 * system call is made, and it completes without its receiver. */
static void private_memory_through_the_ring(void)
{
    static const uint32_t lengths[] = {SHMND_PLACE_MIN, SHMND_EAGER_MAX + 1, SHMND_EAGER_LONGEST,
                                       SHMND_EAGER_LONGEST + 1};
    for (uint32_t i = 0; i < 4; i++)
        for (int full = 0; full < 2; full++) {
            struct duo d;
            uint32_t n = lengths[i];
            NOTE("%u bytes, ring full %d", n, full);
            duo_open(&d);
            uint8_t *src = guard_alloc(n), *dst = guard_alloc(n);
            struct shmnd_sge s = sge(src, n, region_new(d.pa, src, n, 0));
            struct shmnd_sge r = sge(dst, n, region_new(d.pb, dst, n, SHMND_MR_LOCAL_WRITE));
            fill(src, n, i);
            for (uint64_t k = 0; k < 2; k++)
                EQUAL(post_receive(d.b, k, &r, 1), SHMND_SUCCESS);
            shmnd_word64 nothing_back = UINT64_MAX;
            if (full) {
                d.a->q.out.room_pos = SHMND_RING_USUAL / 4;
                d.a->q.out.read_pos = &nothing_back;
            }
            pair_never_bounces(d.a);
            EQUAL(post_send(d.a, 9, &s, 1, 0), SHMND_SUCCESS);
            bool fits = n <= (full ? SHMND_EAGER_MAX : SHMND_EAGER_LONGEST);
            EQUAL(d.a->q.out.write_pos, fits ? shmnd_slots_for(n) : 1);
            EXPECT(d.qa, SHMND_SEND, 9, SHMND_SUCCESS);
            EXPECT_RECEIVED(d.qb, 0, n);
            CHECK(memcmp(src, dst, n) == 0);
            duo_close(&d);
        }
}

static const struct check_test tests[] = {
    TEST(sends),
    TEST(reads_and_writes),
    TEST(a_hostile_list_is_a_fault),
    TEST(private_memory_through_the_ring),
};
MAIN(tests)
