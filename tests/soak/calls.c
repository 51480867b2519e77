/* SPDX-License-Identifier: Apache-2.0
 *
 * The soak's calls; see calls.h.
 */
#include "soak/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "comm/comm.h"

const char *const call_names[CALLS] = {"plan create", "attach", "split",
    "alltoall", "execute", "adjoint", "allreduce", "attention"};

enum { SMALL_ROWS = 40, BLOCK = 5000 };
/* A peer may still be reading what is overwritten here. The soak intends this
 * race, but a thread sanitizer would report it. */
#if defined(__SANITIZE_THREAD__)
static const bool spoils = false;
#else
static const bool spoils = true;
#endif
#define LEAVE_S 10 /* quarantine ends when survivors have left their calls */

static ulyx_status_t
keep_text(struct calls *c, ulyx_status_t status)
{
    if (status != ULYX_SUCCESS)
        snprintf(c->text, sizeof(c->text), "%s", ulyx_last_error());
    return status;
}

/* ---- each call ----------------------------------------------------------- */

static ulyx_status_t
plan_once(struct calls *c)
{
    struct scene s;
    ulyx_status_t status = scene_open(c->comm, c->path, SMALL_ROWS, &s);
    if (status != ULYX_SUCCESS) {
        memcpy(c->text, s.text, sizeof(c->text));
        return status;
    }
    /* The windows of the scene may be in quarantine already. */
    return scene_close(&s, LEAVE_S) ? status : ULYX_ERR_INTERNAL;
}

/* Detaches the memory, if it is attached, and frees it. Waits for the end of a
 * quarantine. */
static ulyx_status_t
let_go(struct calls *c, double limit_s)
{
    ulyx_status_t left = ULYX_ERR_BUSY;
    for (int i = 0; left == ULYX_ERR_BUSY && i <= limit_s * 1000; i++) {
        usleep(i ? 1000 : 0);
        ulyx_mem_detach(c->comm, c->mem);
        left = ulyx_mem_free(c->mem);
    }
    if (left == ULYX_SUCCESS)
        c->mem = NULL;
    return left;
}

/* Where the window is in quarantine, calls_close frees it later. */
static ulyx_status_t
attach_once(struct calls *c)
{
    void *address;
    ulyx_status_t status =
        keep_text(c, ulyx_mem_alloc(1 << 16, NULL, &c->mem, &address));
    if (status == ULYX_SUCCESS)
        status = keep_text(c, ulyx_mem_attach(c->comm, c->mem));
    if (status != ULYX_SUCCESS)
        return status;
    status = keep_text(c, let_go(c, 0));
    /* The window is in quarantine. The next call returns the error with which
     * the communicator failed. */
    return status == ULYX_ERR_BUSY ? keep_text(c, ulyx_comm_barrier(c->comm))
                                   : status;
}

static ulyx_status_t
split_once(struct calls *c)
{
    ulyx_comm_t *half;
    int32_t nranks = 0;
    ulyx_status_t status =
        keep_text(c, ulyx_comm_split(c->comm, c->rank % 2, 0, NULL, &half));
    if (status != ULYX_SUCCESS)
        return status;
    ulyx_comm_get_nranks(half, &nranks);
    c->right &= nranks == (c->nranks + 1 - c->rank % 2) / 2;
    return keep_text(c, ulyx_comm_destroy(half));
}

static ulyx_status_t
buffers_open(struct calls *c)
{
    c->bytes = (size_t)c->nranks * BLOCK;
    c->src = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    c->dst = malloc(c->bytes);
    return c->src != MAP_FAILED && c->dst ? ULYX_SUCCESS : ULYX_ERR_NO_MEMORY;
}

static ulyx_status_t
alltoall_once(struct calls *c)
{
    for (int p = 0; p < c->nranks; p++)
        memset(c->src + p * BLOCK, 1 + c->rank * CALLS_RANKS + p, BLOCK);
    memset(c->dst, 0, c->bytes);
    ulyx_status_t status =
        keep_text(c, ulyx_alltoall(c->comm, c->src, c->dst, BLOCK, NULL));
    for (int p = 0; status == ULYX_SUCCESS && p < c->nranks; p++)
        for (int i = 0; i < BLOCK; i++)
            c->right &= c->dst[p * BLOCK + i] == 1 + p * CALLS_RANKS + c->rank;
    return status;
}

/* Sums whole numbers, which float adds exactly. */
static ulyx_status_t
allreduce_once(struct calls *c)
{
    float *src = (void *)c->src, *dst = (void *)c->dst;
    int64_t count = (int64_t)(c->bytes / sizeof(float));
    float ranks = (float)(c->nranks * (c->nranks - 1) / 2);
    for (int64_t i = 0; i < count; i++)
        src[i] = (float)(i % 1000 + c->rank);
    memset(dst, 0xff, c->bytes);
    ulyx_status_t status = keep_text(
        c, ulyx_allreduce(c->comm, src, dst, count, ULYX_DTYPE_F32, NULL));
    for (int64_t i = 0; status == ULYX_SUCCESS && i < count; i++)
        c->right &= dst[i] == (float)(i % 1000 * c->nranks) + ranks;
    return status;
}

static ulyx_status_t
attention_once(struct calls *c)
{
    ulyx_status_t status = keep_text(c, attention_step(&c->attention));
    if (status == ULYX_SUCCESS)
        c->right &= attention_is_right(&c->attention);
    return status;
}

static ulyx_status_t
execute_once(struct calls *c, ulyx_direction_t direction)
{
    ulyx_status_t status = keep_text(c, scene_execute(&c->scene, direction));
    if (status == ULYX_SUCCESS)
        c->right &= scene_check(&c->scene, direction);
    return status;
}

/* ---- all of them --------------------------------------------------------- */

ulyx_status_t
calls_open(ulyx_comm_t *comm, enum call call, enum scene_path path,
    int64_t rows, double timeout_s, struct calls *c)
{
    ulyx_status_t status = ULYX_SUCCESS;
    memset(c, 0, sizeof(*c));
    c->comm = comm;
    c->call = call;
    c->path = path;
    c->rows = rows;
    c->right = true;
    ulyx_comm_get_rank(comm, &c->rank);
    ulyx_comm_get_nranks(comm, &c->nranks);
    if (call == CALL_EXECUTE || call == CALL_ADJOINT) {
        status = scene_open(comm, path, rows, &c->scene);
        memcpy(c->text, c->scene.text, sizeof(c->text));
    } else if (call == CALL_ALLTOALL || call == CALL_ALLREDUCE) {
        status = buffers_open(c);
    } else if (call == CALL_ATTENTION) {
        status =
            keep_text(c, attention_open(comm, rows, timeout_s, &c->attention));
    }
    return status;
}

static ulyx_status_t
call_make(struct calls *c)
{
    switch (c->call) {
    case CALL_PLAN:
        return plan_once(c);
    case CALL_ATTACH:
        return attach_once(c);
    case CALL_SPLIT:
        return split_once(c);
    case CALL_ALLTOALL:
        return alltoall_once(c);
    case CALL_EXECUTE:
        return execute_once(c, ULYX_SEQ_TO_HEAD);
    case CALL_ADJOINT:
        return execute_once(c, ULYX_SEQ_TO_HEAD_ADJOINT);
    case CALL_ALLREDUCE:
        return allreduce_once(c);
    default:
        return attention_once(c);
    }
}

static void
sources_unmap(struct calls *c)
{
    if (c->src)
        munmap(c->src, c->bytes);
    c->src = NULL;
}

/* Overwrites the tensors that a call has read. Where ranks are processes, src
 * is even unmapped: after a failed call the library must not touch src any
 * more. */
static void
sources_spoil(struct calls *c)
{
    if (c->scene.plan)
        scene_spoil(&c->scene);
    if (c->src && c->comm->one_process)
        memset(c->src, 0x5a, c->bytes);
    else if (c->src)
        sources_unmap(c);
    attention_spoil(&c->attention);
}

ulyx_status_t
calls_once(struct calls *c)
{
    ulyx_status_t status = call_make(c);
    if (status != ULYX_SUCCESS && spoils)
        sources_spoil(c);
    return status;
}

bool
calls_close(struct calls *c)
{
    sources_unmap(c);
    free(c->dst);
    if (c->call == CALL_EXECUTE || c->call == CALL_ADJOINT)
        return scene_close(&c->scene, LEAVE_S);
    if (c->call == CALL_ATTACH)
        return let_go(c, LEAVE_S) == ULYX_SUCCESS;
    return attention_close(&c->attention) == ULYX_SUCCESS;
}
