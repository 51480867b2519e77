/* SPDX-License-Identifier: Apache-2.0
 *
 * See device_place.h.
 */
#include "emulate/dist_attention/device_place.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include "comm/meet.h"
#include "support/buffers.h"
#include "support/ranks.h"

enum { BUFFERS = 64, WINDOW_BYTES = 8 << 20, TIMEOUT_S = 60 };

struct place {
    ulyx_comm_t *comm;
    ulyx_mem_t *mem;
    unsigned char *window;
    int64_t used;
    cudaStream_t stream;
    int count;
    const struct test_buffer *buffers[BUFFERS];
    unsigned char *bases[BUFFERS]; /* the copies on the device */
};

static bool
place_well(ulyx_status_t status, const char *what)
{
    if (status == ULYX_SUCCESS)
        return true;
    fprintf(stderr, "%s: %s: %s\n", what, ulyx_status_name(status),
        ulyx_last_error());
    return false;
}

static int
place_devices(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1)
        return 1;
    return count < DEVICE_PLACE_DEVICES ? count : DEVICE_PLACE_DEVICES;
}

static bool
place_make_window(struct place *p, int device)
{
    ulyx_mem_params_t memory = ULYX_MEM_PARAMS_INIT;
    void *address = NULL;
    memory.memory_kind = ULYX_MEMORY_CUDA;
    memory.device = device;
    if (!place_well(ulyx_mem_alloc(WINDOW_BYTES, &memory, &p->mem, &address),
            "mem_alloc") ||
        !place_well(ulyx_mem_attach(p->comm, p->mem), "mem_attach"))
        return false;
    p->window = address;
    return true;
}

static bool
place_open_as(struct meet *meet, int rank, bool apart, ulyx_comm_t **comm_p,
    void **place_p)
{
    struct place *p = calloc(1, sizeof(*p));
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = rank % place_devices();
    params.timeout_s = TIMEOUT_S;
    *place_p = p;
    if (!place_well(meet_comm_by(meet, rank, &params, &p->comm), "comm"))
        return false;
    *comm_p = p->comm;
    if (!ranks_expect(!cudaSetDevice(params.device)))
        return false;
    if (!(apart ? ranks_expect(!cudaMalloc((void **)&p->window, WINDOW_BYTES))
                : place_make_window(p, params.device)))
        return false;
    return ranks_expect(
        !cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
}

static bool
place_open(struct meet *meet, int rank, ulyx_comm_t **comm_p, void **place_p)
{
    return place_open_as(meet, rank, false, comm_p, place_p);
}

static bool
place_open_apart(
    struct meet *meet, int rank, ulyx_comm_t **comm_p, void **place_p)
{
    return place_open_as(meet, rank, true, comm_p, place_p);
}

/* Takes device memory for the buffer, aligned as its data is on the host. */
static void *
place_address(void *place, const struct test_buffer *buffer)
{
    struct place *p = place;
    int64_t data_at = buffer->data - buffer->base;
    int64_t at = p->used + (64 - data_at % 64) % 64;
    p->used = (at + (int64_t)buffer->base_bytes + 63) / 64 * 64;
    if (p->used > WINDOW_BYTES || p->count == BUFFERS) {
        fprintf(stderr, "the window of a rank is full\n");
        abort();
    }
    p->buffers[p->count] = buffer;
    p->bases[p->count++] = p->window + at;
    return p->window + at + data_at;
}

static void *
place_stream(void *place)
{
    return ((struct place *)place)->stream;
}

static bool
place_copy(struct place *p, bool there)
{
    for (int n = 0; n < p->count; n++) {
        void *own = p->buffers[n]->base;
        if (!ranks_expect(!cudaMemcpyAsync(there ? p->bases[n] : own,
                there ? own : p->bases[n], p->buffers[n]->base_bytes,
                cudaMemcpyDefault, p->stream)))
            return false;
    }
    return ranks_expect(!cudaStreamSynchronize(p->stream));
}

static bool
place_before(void *place)
{
    return place_copy(place, true);
}

static bool
place_after(void *place)
{
    struct place *p = place;
    return ranks_expect(!cudaStreamSynchronize(p->stream)) &&
           place_copy(p, false);
}

static bool
place_close(void *place)
{
    struct place *p = place;
    bool good = ranks_expect(!cudaStreamDestroy(p->stream));
    if (p->mem)
        good = place_well(ulyx_mem_detach(p->comm, p->mem), "detach") &&
               place_well(ulyx_mem_free(p->mem), "free") && good;
    else
        good = ranks_expect(!cudaFree(p->window)) && good;
    free(p);
    return good;
}

const struct case_place device_place = {.open = place_open,
    .address = place_address,
    .stream = place_stream,
    .before = place_before,
    .after = place_after,
    .close = place_close};

const struct case_place device_place_apart = {.open = place_open_apart,
    .address = place_address,
    .stream = place_stream,
    .before = place_before,
    .after = place_after,
    .close = place_close};

/* ---- drawn cases --------------------------------------------------------- */

void
device_place_adapt(struct dist_case *c, const struct case_place *place)
{
    c->place = place;
    if (c->p.dtype == ULYX_DTYPE_F64)
        c->p.dtype = ULYX_DTYPE_F32;
    c->p.dim_qk = (c->p.dim_qk + 7) / 8 * 8;
    c->p.dim_v = (c->p.dim_v + 7) / 8 * 8;
    c->window = false;
}

int64_t
device_place_scores(const struct dist_case *c)
{
    return c->p.batch * c->p.heads * case_rows(c, 0) * case_rows(c, 1);
}

void
device_place_bits(const struct dist_case *c, bool *dq_p, bool *dk_p)
{
    bool replicated = false, sums_dout = false;
    for (int i = 0; i < c->p.nparts; i++)
        if (c->parts[i].kind == ULYX_PART_REPLICATED) {
            replicated = true;
            sums_dout = sums_dout || (c->parts[i].axis == 0 && c->nranks > 1);
        }
    *dq_p = !sums_dout || c->p.flags & ULYX_DIST_ATTENTION_GRAD_EQUAL;
    *dk_p = *dq_p && !replicated;
}
