/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that another process may truncate: every protocol out of it and into it, while it is
 * whole and when its pages are gone. No access raises a signal.
 */
#include "world.h"

#define BYTES 300000u

static const uint32_t sizes[] = {8, 504, 512, 2000, 3000, 4000, SHMND_EAGER_LONGEST, 60000, BYTES};
#define SIZES (sizeof sizes / sizeof sizes[0])

struct file {
    int fd;
    uint8_t *at;
};

static struct file file_open(void)
{
    struct file f = {memfd_create("fragile", MFD_CLOEXEC), NULL};
    CHECK(f.fd >= 0 && ftruncate(f.fd, BYTES) == 0);
    f.at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
    CHECK(f.at != MAP_FAILED);
    return f;
}

static void file_close(struct file *f)
{
    CHECK(munmap(f->at, BYTES) == 0 && close(f->fd) == 0);
}

/* Registered as the compiled registry does it. */
static uint32_t fragile_new(struct proc *p, const struct file *f, uint32_t rights)
{
    uint32_t token = region_new(p, f->at, BYTES, 0);
    struct shmnd_region *r = shmnd_region_lookup(&p->registry, token);
    r->rights = rights | SHMND_MR_FRAGILE;
    r->offset = r->length;
    r->length = 0;
    uint32_t allowed = SHMND_ALLOW_READ | SHMND_ALLOW_WRITE;
    shmnd_grant_publish(shmnd_grant_entry(&p->registry, token), r, allowed, 0);
    return token;
}

static const struct world_options ways[] = {
    {.segment_bytes = 0}, {.no_vm = true}, {.unmapped = true}};

static void open_way(struct duo *d, int way)
{
    duo_open_with(d, ways[way], pair_usual, pair_usual);
    d->a->q.outbound_read_limit = d->b->q.outbound_read_limit = 1;
}

/* `what`: 0 sent from it, 1 sent into it, 2 written from it, 3 read into it. The receive is
 * posted before the Send or after it. The memory at the other end may be private. */
static void one(int way, int what, uint32_t n, bool late, bool cut, bool private)
{
    NOTE("way %d, what %d, %u bytes, late %d, cut %d, private %d", way, what, n, late, cut,
         private);
    struct duo d;
    open_way(&d, way);
    struct file f = file_open();
    bool into = what & 1;
    struct pair *holder = what == 1 ? d.b : d.a;
    struct proc *other = what == 1 ? d.pa : d.pb;
    uint32_t tf = fragile_new(holder->proc, &f, 1);
    uint8_t *plain = private ? calloc(1, BYTES) : shared_bytes(other, BYTES);
    uint32_t tp = region_new(other, plain, BYTES, 7);
    fill(into ? plain : f.at, BYTES, 3);
    if (cut)
        CHECK(ftruncate(f.fd, 0) == 0);
    struct shmnd_sge fragile = sge(f.at, n, tf), whole = sge(plain, n, tp);
    struct shmnd_cqe got[2];
    if (what < 2) {
        struct shmnd_sge *from = into ? &whole : &fragile, *to = into ? &fragile : &whole;
        if (!late)
            EQUAL(post_receive(d.b, 1, to, 1), SHMND_SUCCESS);
        EQUAL(post_send(d.a, 2, from, 1, 0), SHMND_SUCCESS);
        if (late)
            EQUAL(post_receive(d.b, 1, to, 1), SHMND_SUCCESS);
    } else {
        EQUAL(post_rdma(d.a, 2, into ? SHMND_READ : SHMND_WRITE, &fragile, 1, plain, tp, 0),
              SHMND_SUCCESS);
    }
    for (int turn = 0; turn < 100; turn++)
        (void)(proc_turn(d.pa) + proc_turn(d.pb));
    uint32_t failed = 0;
    CHECK(d.qa->got <= 1 && d.qb->got <= 1);
    for (uint32_t i = 0; i < d.qa->got; i++)
        got[0] = d.qa->inbox[i], failed += got[0].status != SHMND_SUCCESS;
    for (uint32_t i = 0; i < d.qb->got; i++)
        got[1] = d.qb->inbox[i], failed += got[1].status != SHMND_SUCCESS;
    CHECK(d.qa->got + d.qb->got > 0);
    EQUAL(failed > 0, cut);
    if (!cut)
        CHECK(filled(into ? f.at : plain, n, 3));
    file_close(&f);
    duo_close(&d);
    if (private)
        free(plain);
}

static void every_way_out_and_in(void)
{
    for (int way = 0; way < 3; way++)
        for (int what = 0; what < 4; what++)
            for (size_t i = 0; i < SIZES; i++)
                for (int flags = 0; flags < 8; flags++)
                    if (!(flags & 4 && what > 1 && ways[way].no_vm)) /* a grant out of reach */
                        one(way, what, sizes[i], flags & 1, flags & 2, flags & 4);
}

static const struct check_test tests[] = {TEST(every_way_out_and_in)};

MAIN(tests)
