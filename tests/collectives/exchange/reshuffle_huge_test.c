/* SPDX-License-Identifier: Apache-2.0
 *
 * More than 2^31 elements per tensor, and offsets beyond 2^32 bytes on each
 * side of each rank: 48 MiB mapped again and again, with values of that period.
 * 48 MiB does not divide 2^32, so an offset that is cut to 32 bits reads other
 * values.
 *
 *   sequence side, rank r: [ROWS][2 heads][512], head side: [2 * ROWS][1][512]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/comm.h"
#include "ulyx/memory.h"
#include "ulyx/reshuffle.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define PERIOD  (INT64_C(48) << 20)
#define REPEATS 86
#define TOTAL   (PERIOD * REPEATS)
#define HEAD    INT64_C(512)
/* of each rank; a multiple of the rows of a period */
#define ROWS (TOTAL / (2 * HEAD))

enum { RANKS = 2, LIMIT_S = 100 };

struct rank_memory {
    /* TOTAL bytes each, which repeat after PERIOD bytes */
    unsigned char *seq, *head, *back;
    ulyx_mem_t *mems[3];
    ulyx_plan_t *plan;
};

struct huge {
    ulyx_comm_t *comms[RANKS];
    struct rank_memory of[RANKS];
    int32_t memory;
};

static unsigned char *
map_repeated(void)
{
    int fd = memfd_create("ulyx-test-period", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, PERIOD), 0);
    unsigned char *base = mmap(NULL, (size_t)TOTAL, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(base != MAP_FAILED);
    for (int64_t at = 0; at < TOTAL; at += PERIOD)
        assert_true(
            mmap(base + at, (size_t)PERIOD, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == base + at);
    close(fd);
    return base;
}

static void
fill_period(unsigned char *base)
{
    uint64_t *words = (uint64_t *)(void *)base;
    for (int64_t i = 0; i < PERIOD / 8; i++)
        words[i] = ((uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

static void
set_up(struct huge *huge, int32_t memory)
{
    memset(huge, 0, sizeof(*huge));
    huge->memory = memory;
    assert_status(
        ulyx_comm_create_local(RANKS, NULL, huge->comms), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        struct rank_memory *m = &huge->of[r];
        unsigned char **bases[3] = {&m->seq, &m->head, &m->back};
        for (int i = 0; i < 3; i++) {
            *bases[i] = map_repeated();
            assert_status(
                ulyx_mem_register(*bases[i], TOTAL, NULL, &m->mems[i]),
                ULYX_SUCCESS);
            assert_status(
                ulyx_mem_attach(huge->comms[r], m->mems[i]), ULYX_SUCCESS);
        }
        fill_period(m->seq);
    }
}

static void
tear_down(struct huge *huge)
{
    for (int r = 0; r < RANKS; r++) {
        struct rank_memory *m = &huge->of[r];
        unsigned char *bases[3] = {m->seq, m->head, m->back};
        for (int i = 0; i < 3; i++) {
            assert_status(
                ulyx_mem_detach(huge->comms[r], m->mems[i]), ULYX_SUCCESS);
            assert_status(ulyx_mem_free(m->mems[i]), ULYX_SUCCESS);
            munmap(bases[i], (size_t)TOTAL);
        }
        assert_status(ulyx_comm_destroy(huge->comms[r]), ULYX_SUCCESS);
    }
}

static ulyx_status_t
huge_create(struct huge *huge, int rank)
{
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
    part.rows = RANKS * ROWS;
    tensor.dtype = ULYX_DTYPE_BYTES;
    tensor.elem_bytes = 1;
    tensor.heads = 2;
    tensor.dim = HEAD;
    params.heads = 2;
    params.parts = &part;
    params.nparts = 1;
    params.tensors = &tensor;
    params.ntensors = 1;
    params.seq_memory = params.head_memory = huge->memory;
    params.directions = 3;
    return ulyx_plan_create(huge->comms[rank], &params, &huge->of[rank].plan);
}

/* Row j of the head side has the values of row j mod (rows of a period) of the
 * sequence side. */
static bool
head_side_right(const struct rank_memory *m, int rank)
{
    int64_t period_rows = PERIOD / (2 * HEAD);
    for (int64_t j = 0; j < PERIOD / HEAD; j++)
        if (memcmp(m->head + j * HEAD,
                m->seq + j % period_rows * 2 * HEAD + rank * HEAD,
                (size_t)HEAD))
            return false;
    return true;
}

static int
huge_rank(int rank, int nranks, void *context)
{
    struct huge *huge = context;
    struct rank_memory *m = &huge->of[rank];
    const void *src[1] = {m->seq}, *middle[1] = {m->head};
    void *head[1] = {m->head}, *back[1] = {m->back};
    (void)nranks;
    bool good = ranks_expect(huge_create(huge, rank) == ULYX_SUCCESS) &&
                ranks_expect(ulyx_reshuffle_execute(m->plan, ULYX_SEQ_TO_HEAD,
                                 src, head, NULL) == ULYX_SUCCESS) &&
                ranks_expect(head_side_right(m, rank)) &&
                ranks_expect(ulyx_reshuffle_execute(m->plan, ULYX_HEAD_TO_SEQ,
                                 middle, back, NULL) == ULYX_SUCCESS) &&
                ranks_expect(memcmp(m->seq, m->back, (size_t)PERIOD) == 0) &&
                ranks_expect(ulyx_plan_destroy(m->plan) == ULYX_SUCCESS);
    return !good;
}

static void
huge_run(int32_t memory)
{
    struct huge huge;
    if (SANITIZED)
        test_skip("17 GiB of copies take minutes with a sanitizer");
    set_up(&huge, memory);
    assert_int_equal(ranks_run_threads(RANKS, huge_rank, &huge, LIMIT_S), 0);
    tear_down(&huge);
}

static void
windows(void **state)
{
    (void)state;
    huge_run(ULYX_POINTER_WINDOW);
}

static void
ordinary_memory(void **state)
{
    (void)state;
    huge_run(ULYX_POINTER_ANY);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows),
    cmocka_unit_test(ordinary_memory),
};

ULI_TEST_MAIN("ReshuffleHuge", tests)
