/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_scene.h.
 */
#include "emulate/plan/plan_scene.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#ifdef ULI_EMULATE
#include "emulate/driver/driver.h"
#endif
#include "support/test.h"

#define good(call) assert_int_equal((call), cudaSuccess)

/* ---- ranks --------------------------------------------------------------- */

static void
open_rank(struct plan_scene *s, int32_t r)
{
    ulyx_mem_params_t params = ULYX_MEM_PARAMS_INIT;
    void *address = NULL;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = r % s->devices;
    assert_status(
        ulyx_mem_alloc(PLAN_WINDOW_BYTES, &params, &s->mems[r], &address),
        ULYX_SUCCESS);
    assert_status(ulyx_mem_attach(s->ranks.comms[r], s->mems[r]), ULYX_SUCCESS);
    s->windows[r] = address;
    good(cudaSetDevice(r % s->devices));
    good(cudaStreamCreateWithFlags(&s->streams[r], cudaStreamNonBlocking));
}

/* The library keeps the contexts of a card, so its devices are not reset
 * afterwards. */
int32_t
plan_machine(int32_t devices, int32_t multiprocessors, int32_t hosts)
{
#ifdef ULI_EMULATE
    const struct emu_config config = {.devices = devices,
        .sm_count = multiprocessors,
        /* one more than hosts, because a rank may wait outside the emulator */
        .host_threads = hosts + 1,
        .wall_time = true};
    assert_int_equal(emu_open(&config), 0);
    return devices;
#else
    (void)multiprocessors, (void)hosts;
    return card_devices(devices);
#endif
}

void
plan_machine_close(void)
{
#ifdef ULI_EMULATE
    assert_int_equal(emu_driver_live(), 0);
    emu_close();
#endif
}

void
plan_connect(
    struct plan_scene *s, int32_t nranks, int32_t devices, double timeout_s)
{
    ulyx_unique_id_t id;
    memset(s, 0, sizeof(*s));
    s->nranks = s->ranks.nranks = nranks;
    s->ranks.only = -1;
    s->devices = devices;
    assert_status(ulyx_unique_id_create(&id), ULYX_SUCCESS);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < nranks; r++) {
        ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
        params.memory_kind = ULYX_MEMORY_CUDA;
        params.device = r % s->devices;
        params.timeout_s = timeout_s;
        assert_status(
            ulyx_comm_create(&id, nranks, r, &params, &s->ranks.comms[r]),
            ULYX_SUCCESS);
    }
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    for (int32_t r = 0; r < nranks; r++)
        open_rank(s, r);
}

void
plan_disconnect(struct plan_scene *s)
{
    for (int32_t r = 0; r < s->nranks; r++) {
        good(cudaSetDevice(r % s->devices));
        good(cudaStreamDestroy(s->streams[r]));
        assert_status(
            ulyx_mem_detach(s->ranks.comms[r], s->mems[r]), ULYX_SUCCESS);
    }
    for (int32_t r = 0; r < s->nranks; r++) {
        assert_status(ulyx_mem_free(s->mems[r]), ULYX_SUCCESS);
        assert_status(ulyx_comm_destroy(s->ranks.comms[r]), ULYX_SUCCESS);
    }
}

/* The window may be in quarantine for a while. */
void
plan_free_window(ulyx_mem_t *mem)
{
    uli_deadline_t deadline = uli_deadline_in(30);
    ulyx_status_t status = ulyx_mem_free(mem);
    while (status == ULYX_ERR_BUSY && !uli_deadline_over(deadline)) {
        usleep(1000);
        status = ulyx_mem_free(mem);
    }
    assert_status(status, ULYX_SUCCESS);
}

void
plan_open(
    struct plan_scene *s, int32_t nranks, int32_t devices, double timeout_s)
{
    plan_connect(s, nranks, plan_machine(devices, 8, nranks), timeout_s);
}

void
plan_close(struct plan_scene *s)
{
    plan_disconnect(s);
    plan_machine_close();
}

/* ---- images -------------------------------------------------------------- */

static unsigned char *
image_place(struct plan_scene *s, int32_t r, const struct image *image)
{
    unsigned char *at = s->windows[r] + s->used[r];
    s->used[r] += (image->bytes + 63) / 64 * 64;
    assert_true(s->used[r] <= PLAN_WINDOW_BYTES);
    return at;
}

void
plan_place(struct plan_scene *s)
{
    struct world *w = s->w;
    if (!s->keep)
        memset(s->used, 0, sizeof(s->used));
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < s->nranks; r++)
            for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
                s->src[op][r][t] = image_place(s, r, &w->src[op][r][t]);
                s->dst[op][r][t] = image_place(s, r, &w->dst[op][r][t]);
            }
}

bool
plan_draw(struct plan_scene *s, struct world *w, struct test_random *random)
{
    if (!world_draw(w, &s->ranks, random, 0))
        return false;
    s->w = w;
    plan_place(s);
    return true;
}

static void
move_images(struct plan_scene *s, bool up)
{
    struct world *w = s->w;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < s->nranks; r++)
            for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
                struct image *images[2] = {
                    &w->src[op][r][t], &w->dst[op][r][t]};
                unsigned char *there[2] = {s->src[op][r][t], s->dst[op][r][t]};
                for (int i = 0; i < 2; i++)
                    good(cudaMemcpy(up ? there[i] : images[i]->base,
                        up ? images[i]->base : there[i],
                        (size_t)images[i]->bytes, cudaMemcpyDefault));
            }
}

void
plan_upload(struct plan_scene *s)
{
    world_fill(s->w);
    move_images(s, true);
    /* Copies from pageable memory may still be in progress. */
    for (int d = 0; d < s->devices; d++) {
        good(cudaSetDevice(d));
        good(cudaDeviceSynchronize());
    }
}

void
plan_download(struct plan_scene *s)
{
    move_images(s, false);
}

/* ---- plans --------------------------------------------------------------- */

ulyx_status_t
plan_create(struct plan_scene *s, struct world *w)
{
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < s->nranks; r++)
        assert_status(world_create(w, r), ULYX_SUCCESS);
    return ulyx_group_end();
}

void
plan_drop(struct plan_scene *s)
{
    for (int32_t r = 0; r < s->nranks; r++)
        assert_status(ulyx_plan_destroy(s->w->plans[r]), ULYX_SUCCESS);
    world_free(s->w);
    free(s->w);
    s->w = NULL;
}

ulyx_status_t
plan_execute(struct plan_scene *s, int32_t rank, int op)
{
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    struct world_strides strides;
    world_call_strides(s->w, rank, op, &strides);
    for (int32_t t = 0; t < s->w->c.shape.ntensors; t++) {
        const struct image *from = &s->w->src[op][rank][t];
        const struct image *to = &s->w->dst[op][rank][t];
        src[t] = from->data ? s->src[op][rank][t] + from->at : NULL;
        dst[t] = to->data ? s->dst[op][rank][t] + to->at : NULL;
    }
    if (!strides.src_p && !strides.dst_p)
        return ulyx_reshuffle_execute(
            s->w->plans[rank], op, src, dst, s->streams[rank]);
    return ulyx_reshuffle_execute_strided(s->w->plans[rank], op, src,
        strides.src_p, dst, strides.dst_p, s->streams[rank]);
}

void
plan_execute_all(struct plan_scene *s, int op)
{
    for (int32_t r = 0; r < s->nranks; r++)
        assert_status(plan_execute(s, r, op), ULYX_SUCCESS);
}

void
plan_sync(struct plan_scene *s)
{
    for (int32_t r = 0; r < s->nranks; r++)
        good(cudaStreamSynchronize(s->streams[r]));
}

void
plan_round(struct plan_scene *s)
{
    struct world *w = s->w;
    plan_upload(s);
    w->norder = 0;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        if (w->directions >> op & 1) {
            plan_execute_all(s, op);
            w->order[w->norder++] = op;
        }
    plan_sync(s);
    plan_download(s);
    assert_int_equal(emu_fault_count(), 0);
    assert_true(world_check(w));
}

unsigned char *
plan_pinned_take(int64_t bytes)
{
    void *memory = NULL;
    good(cudaMallocHost(&memory, (size_t)bytes + 1));
    memset(memory, 0, (size_t)bytes + 1);
    return memory;
}

void
plan_pinned_free(unsigned char *memory)
{
    good(cudaFreeHost(memory));
}
