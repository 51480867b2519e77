/* SPDX-License-Identifier: Apache-2.0
 *
 * See collective_scene.h.
 */
#include "emulate/plan/collective_scene.h"

#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "support/test.h"

#define good(call) assert_int_equal((call), cudaSuccess)

enum { POISON = 0xA5, SRC = 0, DST = 1 };

/* ---- life ---------------------------------------------------------------- */

static void
open_hosts(struct coll_scene *c)
{
    ulyx_unique_id_t id;
    assert_status(ulyx_unique_id_create(&id), ULYX_SUCCESS);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < c->s.nranks; r++) {
        ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
        assert_status(
            ulyx_comm_create(&id, c->s.nranks, r, &params, &c->hosts[r]),
            ULYX_SUCCESS);
    }
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
}

void
coll_prepare(struct coll_scene *c)
{
    open_hosts(c);
    for (int32_t r = 0; r < c->s.nranks; r++) {
        struct coll_rank *at = &c->at[r];
        void *memory = NULL;
        good(cudaSetDevice(r % c->s.devices));
        good(cudaMalloc(&memory, 2 * COLL_BYTES));
        at->outside = memory;
        at->src_host = malloc(COLL_BYTES);
        at->dst_host = malloc(COLL_BYTES);
        at->seen = malloc(COLL_BYTES);
    }
}

void
coll_open(
    struct coll_scene *c, int32_t nranks, int32_t devices, double timeout_s)
{
    memset(c, 0, sizeof(*c));
    plan_open(&c->s, nranks, devices, timeout_s);
    coll_prepare(c);
}

void
coll_release(struct coll_scene *c)
{
    for (int32_t r = 0; r < c->s.nranks; r++) {
        struct coll_rank *at = &c->at[r];
        good(cudaSetDevice(r % c->s.devices));
        good(cudaFree(at->outside));
        free(at->src_host);
        free(at->dst_host);
        free(at->seen);
        assert_status(ulyx_comm_destroy(c->hosts[r]), ULYX_SUCCESS);
    }
    assert_int_equal(emu_fault_count(), 0);
}

void
coll_close(struct coll_scene *c)
{
    coll_release(c);
    plan_close(&c->s);
}

/* ---- drawing ------------------------------------------------------------- */

static int64_t
draw_bytes(struct test_random *random)
{
    static const int64_t most[] = {0, 7, 130, 3000, 20000};
    return test_random_in(random, 0, most[test_random_in(random, 0, 4)]);
}

static void
draw_uneven(const struct coll_scene *c, struct coll_call *call,
    struct test_random *random)
{
    int32_t n = c->s.nranks;
    for (int32_t r = 0; r < n; r++)
        for (int32_t p = 0; p < n; p++)
            call->bytes[r][p] = draw_bytes(random);
    for (int32_t r = 0; r < n; r++) {
        int64_t from = 0, to = 0;
        for (int32_t p = 0; p < n; p++) {
            call->come[r][p] = call->bytes[p][r];
            call->from[r][p] = from += test_random_in(random, 0, 40);
            call->to[r][p] = to += test_random_in(random, 0, 40);
            from += call->bytes[r][p];
            to += call->bytes[p][r];
        }
    }
}

void
coll_draw(const struct coll_scene *c, struct coll_call *call,
    struct test_random *random)
{
    memset(call, 0, sizeof(*call));
    call->kind = (enum coll_kind)test_random_in(random, 0, COLL_KINDS - 1);
    call->dtype =
        (ulyx_dtype_t)test_random_in(random, ULYX_DTYPE_F64, ULYX_DTYPE_F16);
    call->count = draw_bytes(random);
    call->root = (int32_t)test_random_in(random, 0, c->s.nranks - 1);
    call->in_place =
        test_random_in(random, 0, 2) == 0 &&
        (call->kind == COLL_ALLREDUCE || call->kind == COLL_ALLGATHER);
    int64_t unit = 1;
    if (call->kind == COLL_ALLREDUCE) {
        unit = uli_dtype_size(call->dtype);
        call->count /= 2;
    }
    bool any = test_random_in(random, 0, 2) == 0;
    bool window = test_random_in(random, 0, 1) == 0;
    for (int32_t r = 0; r < c->s.nranks; r++) {
        bool odd = test_random_in(random, 0, 1) == 0;
        call->src_at[r] = odd ? test_random_in(random, 0, 40) * unit : 64;
        call->dst_at[r] = odd ? test_random_in(random, 0, 40) * unit : 128;
        for (int side = 0; side < 2; side++)
            call->in_window[r][side] =
                any ? test_random_in(random, 0, 1) == 0 : window;
    }
    if (call->kind == COLL_ALLTOALLV)
        draw_uneven(c, call, random);
}

/* ---- data ---------------------------------------------------------------- */

/* Random bytes. Read as numbers of any dtype, they have all sizes and include
 * NaN and infinity. */
static void
draw_data(unsigned char *at, struct test_random *random)
{
    for (int64_t i = 0; i < COLL_BYTES; i += 8) {
        uint64_t word = test_random_next(random);
        memcpy(at + i, &word, 8);
    }
}

static const unsigned char *
src_of(const struct coll_call *call, int32_t r, const unsigned char *src,
    const unsigned char *dst)
{
    if (!call->in_place)
        return src + call->src_at[r];
    return dst + call->dst_at[r] +
           (call->kind == COLL_ALLGATHER ? r * call->count : 0);
}

void
coll_fill(struct coll_scene *c, const struct coll_call *call,
    struct test_random *random)
{
    for (int32_t r = 0; r < c->s.nranks; r++) {
        struct coll_rank *at = &c->at[r];
        at->src = (call->in_window[r][SRC] ? c->s.windows[r] : at->outside);
        at->dst = (call->in_window[r][DST] ? c->s.windows[r] : at->outside) +
                  COLL_BYTES;
        draw_data(at->src_host, random);
        memset(at->dst_host, POISON, COLL_BYTES);
        if (call->in_place || call->kind == COLL_BROADCAST)
            draw_data(at->dst_host, random);
        good(cudaMemcpy(
            at->src, at->src_host, COLL_BYTES, cudaMemcpyHostToDevice));
        good(cudaMemcpy(
            at->dst, at->dst_host, COLL_BYTES, cudaMemcpyHostToDevice));
    }
}

/* ---- calls --------------------------------------------------------------- */

static ulyx_status_t
call_run(ulyx_comm_t *comm, const struct coll_call *call, int32_t r,
    const unsigned char *src, unsigned char *dst, void *stream)
{
    switch (call->kind) {
    case COLL_ALLTOALL:
        return ulyx_alltoall(comm, src, dst, call->count, stream);
    case COLL_ALLTOALLV:
        return ulyx_alltoallv(comm, src, call->bytes[r], call->from[r], dst,
            call->come[r], call->to[r], stream);
    case COLL_ALLREDUCE:
        return ulyx_allreduce(comm, src, dst, call->count, call->dtype, stream);
    case COLL_ALLGATHER:
        return ulyx_allgather(comm, src, dst, call->count, stream);
    default:
        return ulyx_broadcast(comm, dst, call->count, call->root, stream);
    }
}

ulyx_status_t
coll_run(struct coll_scene *c, const struct coll_call *call, int32_t r)
{
    struct coll_rank *at = &c->at[r];
    return call_run(c->s.ranks.comms[r], call, r,
        src_of(call, r, at->src, at->dst), at->dst + call->dst_at[r],
        c->s.streams[r]);
}

void
coll_run_all(struct coll_scene *c, const struct coll_call *call)
{
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < c->s.nranks; r++)
        assert_status(coll_run(c, call, r), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
}

/* ---- results ------------------------------------------------------------- */

void
coll_compare(struct coll_scene *c, const struct coll_call *call)
{
    plan_sync(&c->s);
    for (int32_t r = 0; r < c->s.nranks; r++) {
        struct coll_rank *at = &c->at[r];
        good(cudaMemcpy(at->seen, at->dst, COLL_BYTES, cudaMemcpyDeviceToHost));
        if (memcmp(at->seen, at->dst_host, COLL_BYTES) == 0)
            continue;
        int64_t i = 0;
        while (at->seen[i] == at->dst_host[i])
            i++;
        fail_msg("kind %d, rank %d of %d: byte %d after dst is %02x, the "
                 "host's %02x (count %d, in place %d)",
            call->kind, r, c->s.nranks, (int)(i - call->dst_at[r]), at->seen[i],
            at->dst_host[i], (int)call->count, call->in_place);
    }
}

void
coll_host(struct coll_scene *c, const struct coll_call *call)
{
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < c->s.nranks; r++) {
        struct coll_rank *at = &c->at[r];
        assert_status(call_run(c->hosts[r], call, r,
                          src_of(call, r, at->src_host, at->dst_host),
                          at->dst_host + call->dst_at[r], NULL),
            ULYX_SUCCESS);
    }
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
}

void
coll_check(struct coll_scene *c, const struct coll_call *call)
{
    coll_host(c, call);
    coll_compare(c, call);
}

struct coll_call
coll_plain(enum coll_kind kind, int64_t count, bool window)
{
    struct coll_call call;
    memset(&call, 0, sizeof(call));
    call.kind = kind;
    call.count = count;
    call.dtype = ULYX_DTYPE_F32;
    for (int r = 0; r < PLAN_RANKS_MAX; r++)
        call.in_window[r][SRC] = call.in_window[r][DST] = window;
    return call;
}

static void
run_checked(struct coll_scene *c, const struct coll_call *call,
    struct test_random *random)
{
    coll_fill(c, call, random);
    coll_run_all(c, call);
    coll_check(c, call);
}

void
coll_expect_well(struct coll_scene *c, enum coll_kind kind, bool window)
{
    struct test_random random = {77};
    struct coll_call call = coll_plain(kind, 500, window);
    run_checked(c, &call, &random);
}

void
coll_run_draws(struct coll_scene *c, struct test_random *random, int64_t draws)
{
    for (int64_t i = 0; i < draws; i++) {
        struct coll_call call;
        coll_draw(c, &call, random);
        run_checked(c, &call, random);
    }
}

/* ---- calls that are wrong ------------------------------------------------ */

const char *
coll_wrong(struct coll_scene *c, int which, ulyx_status_t *status_p)
{
    ulyx_comm_t *comm = c->s.ranks.comms[0];
    unsigned char *src = c->at[0].src, *dst = c->at[0].dst;
    unsigned char *host = c->at[0].dst_host, *other = c->at[1].outside;
    const int64_t sizes[3] = {16, 16, -1}, offsets[3] = {0, 16, 32};
    void *s = c->s.streams[0];
    const ulyx_dtype_t f32 = ULYX_DTYPE_F32;
    switch (which) {
    case 0:
        *status_p = ulyx_alltoall(comm, NULL, dst, 16, s);
        return "src is NULL";
    case 1:
        *status_p = ulyx_alltoall(comm, src, host, 16, s);
        return "dst: ";
    case 2:
        *status_p = ulyx_alltoall(comm, other, dst, 16, s);
        return "is not memory of CUDA device 0";
    case 3:
        *status_p =
            ulyx_alltoallv(comm, src, sizes, offsets, dst, offsets, offsets, s);
        return "message 2: -1 bytes at offset 32";
    case 4:
        *status_p = ulyx_allreduce(comm, src, NULL, 300, f32, s);
        return "dst is NULL";
    case 5:
        *status_p = ulyx_allreduce(comm, src + 2, dst, 300, f32, s);
        return "is not aligned to its elements of 4 bytes";
    case 6:
        *status_p = ulyx_allreduce(comm, dst + 4, dst, 300, f32, s);
        return "overlap in part";
    case 7:
        *status_p = ulyx_allgather(comm, src, host, 16, s);
        return "is not memory of CUDA device 0";
    default:
        *status_p = ulyx_broadcast(comm, host, 16, 1, s);
        return "is not memory of CUDA device 0";
    }
}
