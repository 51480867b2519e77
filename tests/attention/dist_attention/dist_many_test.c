/* SPDX-License-Identifier: Apache-2.0
 *
 * One object of distributed attention for each length, as a trainer without
 * padding needs them: processes make objects of different lengths one after
 * another, run forward and backward on each, and keep them. What a rank holds
 * per object must stay within KiB, by its own account and by the kernel's.
 * ULYX_TEST_DRAWS=20 makes 500 objects.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "comm/meet.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum {
    HEADS = 8,
    KV = 2,
    DIM = 32,
    WINDOW = 16,
    TENSORS = 8,
    COUNT = 25,
    RING_SETS = 4,
    ARENA_STEP_KIB = 8192,
    /* An object has four plans: tensors in, out, and two more for backward. */
    PLANS = 4,
    LIMIT_S = 900
};

struct run {
    struct meet *meet;
    int count;
    int64_t rows; /* rows of the first object */
};

struct rank_state {
    ulyx_comm_t *comm;
    ulyx_dist_attention_t **dist;
    void *tensors[TENSORS], *workspace, *saved;
    int64_t workspace_bytes, saved_bytes;
};

static int64_t
rows_of(const struct run *run, int i)
{
    return run->rows + 13 * i;
}

static int64_t
resident_bytes(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*d %lld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static int64_t
held_bytes(const struct rank_state *s)
{
    int64_t bytes = 0;
    ulyx_comm_get_memory(s->comm, &bytes);
    return bytes;
}

/* ---- an object ----------------------------------------------------------- */

static ulyx_dist_attention_params_t
params_of(ulyx_part_t *part, int64_t rows)
{
    ulyx_dist_attention_params_t p = ULYX_DIST_ATTENTION_PARAMS_INIT;
    *part = (ulyx_part_t)ULYX_PART_INIT;
    part->rows = rows;
    p.parts = part;
    p.nparts = 1;
    p.dtype = ULYX_DTYPE_F32;
    p.heads = HEADS;
    p.kv_heads = KV;
    p.dim_qk = DIM;
    p.threads = 1;
    p.mask_kind = ULYX_MASK_WINDOW;
    p.mask_left = WINDOW;
    p.mask_right = 0;
    p.kernel = "portable";
    return p;
}

static ulyx_status_t
object_make(struct rank_state *s, const struct run *run, int i)
{
    ulyx_part_t part;
    ulyx_dist_attention_params_t p = params_of(&part, rows_of(run, i));
    return ulyx_dist_attention_create(s->comm, &p, &s->dist[i]);
}

static void *
array_of(int64_t bytes)
{
    void *at = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
    memset(at, 0, (size_t)bytes);
    return at;
}

/* Makes the tensors of the longest object once, for all objects. */
static void
memory_make(struct rank_state *s, const struct run *run, int rank, int nranks)
{
    struct test_random random = {(uint64_t)rank};
    int64_t rows = rows_of(run, run->count) / nranks + 1;
    int64_t elements = rows * HEADS * DIM;
    ulyx_part_t part;
    ulyx_dist_attention_params_t p = params_of(&part, rows_of(run, run->count));
    for (int t = 0; t < TENSORS; t++)
        s->tensors[t] = array_of(elements * 4);
    for (int t = 0; t < 4; t++)
        for (int64_t i = 0; i < elements; i++)
            ((float *)s->tensors[t])[i] = (float)test_random_unit(&random);
    if (ulyx_dist_attention_measure(
            &p, nranks, rank, &s->workspace_bytes, &s->saved_bytes)) {
        fprintf(stderr, "%s\n", ulyx_last_error());
        abort();
    }
    s->workspace = array_of(s->workspace_bytes);
    s->saved = array_of(s->saved_bytes);
}

static void
memory_free(struct rank_state *s)
{
    for (int t = 0; t < TENSORS; t++)
        free(s->tensors[t]);
    free(s->workspace);
    free(s->saved);
    free(s->dist);
}

static bool
object_runs(struct rank_state *s, int i)
{
    void **t = s->tensors;
    ulyx_dist_attention_forward_t f = ULYX_DIST_ATTENTION_FORWARD_INIT;
    ulyx_dist_attention_backward_t b = ULYX_DIST_ATTENTION_BACKWARD_INIT;
    f.q = (const void *const *)&t[0];
    f.k = (const void *const *)&t[1];
    f.v = (const void *const *)&t[2];
    b.dout = (const void *const *)&t[3];
    f.out = &t[4];
    b.out = (const void *const *)&t[4];
    b.dq = &t[5];
    b.dk = &t[6];
    b.dv = &t[7];
    f.workspace = b.workspace = s->workspace;
    f.workspace_bytes = b.workspace_bytes = s->workspace_bytes;
    f.saved = s->saved;
    b.saved = s->saved;
    f.saved_bytes = b.saved_bytes = s->saved_bytes;
    return ranks_expect(!ulyx_dist_attention_forward(s->dist[i], &f, NULL)) &&
           ranks_expect(!ulyx_dist_attention_backward(s->dist[i], &b, NULL));
}

/* ---- many ---------------------------------------------------------------- */

/* Returns how much memory is allowed. The pool has sets with two chunks of 1
 * MiB per peer, and scratch of sums; it counts twice, because a set that was
 * replaced leaves a hole until other blocks fill it. Each plan has flags,
 * records and small chunks per peer, and tables. The kernel's account also
 * contains those of peers that this rank writes. Arenas grow in steps. */
static int64_t
bytes_due(int nranks, int count)
{
    int64_t pool = 2 * RING_SETS * ((nranks - 1) * 2048 + (int64_t)768);
    int64_t objects = count * PLANS * (64 + nranks * (int64_t)24);
    return (pool + objects + ARENA_STEP_KIB) << 10;
}

static bool
growth_is_small(
    const char *what, int rank, int nranks, int64_t grown, int count)
{
    int64_t due = bytes_due(nranks, count);
    if (rank == 0 || grown > due)
        fprintf(stderr,
            "rank %d of %d: %s grew by %lld KiB with %d objects, at most %lld "
            "are due\n",
            rank, nranks, what, (long long)grown >> 10, count,
            (long long)due >> 10);
    return grown <= due;
}

static bool
rank_makes(struct rank_state *s, const struct run *run)
{
    for (int i = 0; i < run->count; i++)
        if (!ranks_expect(object_make(s, run, i) == ULYX_SUCCESS) ||
            !object_runs(s, i))
            return false;
    return true;
}

/* Memory that the other ranks have not released yet follows later: their last
 * messages may be on the way. */
static bool
rank_trims(struct rank_state *s, int64_t before)
{
    const struct timespec pause = {0, 10000000};
    for (int i = 0; i < 1000; i++) {
        if (!ranks_expect(!ulyx_comm_trim(s->comm)))
            return false;
        if (held_bytes(s) <= before)
            return true;
        nanosleep(&pause, NULL);
    }
    return ranks_expect(held_bytes(s) <= before);
}

static bool
rank_ends(struct rank_state *s, const struct run *run, int rank, int64_t before)
{
    bool good = true;
    for (int i = 0; good && i < run->count; i++)
        good = ranks_expect(
            !ulyx_dist_attention_destroy(s->dist[(i + rank) % run->count]));
    good = good && rank_trims(s, before) &&
           ranks_expect(!ulyx_comm_barrier(s->comm));
    return good && ranks_expect(!ulyx_comm_destroy(s->comm));
}

/* A sanitizer's own memory grows with the memory that it tracks. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool residence_counts = false;
#else
static const bool residence_counts = true;
#endif

static int
many_body(int rank, int nranks, void *context)
{
    const struct run *run = context;
    struct rank_state s = {.dist = calloc((size_t)run->count, sizeof(*s.dist))};
    if (!ranks_expect(meet_comm(run->meet, rank, 100, &s.comm) == 0))
        return 1;
    memory_make(&s, run, rank, nranks);
    int64_t held = held_bytes(&s), resident = resident_bytes();
    bool good = rank_makes(&s, run);
    good = good &&
           ranks_expect(growth_is_small("memory held", rank, nranks,
               held_bytes(&s) - held, run->count)) &&
           ranks_expect(!residence_counts ||
                        growth_is_small("resident memory", rank, nranks,
                            resident_bytes() - resident, run->count)) &&
           rank_ends(&s, run, rank, held);
    memory_free(&s);
    return !good;
}

static void
run_many(int nranks, int64_t rows)
{
    struct run run = {.meet = meet_new(nranks),
        .count = (int)test_draws(COUNT),
        .rows = rows};
    setenv("ULYX_CMA", "off", 1);
    assert_int_equal(ranks_run_processes(nranks, many_body, &run, LIMIT_S), 0);
    unsetenv("ULYX_CMA");
    meet_free(run.meet);
}

static void
many_lengths_on_2(void **state)
{
    (void)state;
    run_many(2, 2048);
}

static void
many_lengths_on_4(void **state)
{
    (void)state;
    run_many(4, 4096);
}

static void
many_lengths_on_8(void **state)
{
    (void)state;
    run_many(8, 4096);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(many_lengths_on_2),
    cmocka_unit_test(many_lengths_on_4),
    cmocka_unit_test(many_lengths_on_8),
};

ULI_TEST_MAIN("DistMany", tests)
