/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attention on host memory: every entry has done its work when it
 * returns.
 */
#include "attention/dist_attention/memory.h"

#include <string.h>
#include "attention/attention.h"
#include "attention/statistics.h"
#include "base/status.h"

static ulyx_status_t
host_check_params(const ulyx_dist_attention_params_t *p)
{
    (void)p;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_open(struct ulyx_dist_attention *dist)
{
    (void)dist;
    return ULYX_SUCCESS;
}

/* A call has ended when it returns. */
static ulyx_status_t
host_idle(const struct ulyx_dist_attention *dist)
{
    (void)dist;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_settle(struct ulyx_dist_attention *dist)
{
    (void)dist;
    return ULYX_SUCCESS;
}

static void
host_close(struct ulyx_dist_attention *dist)
{
    (void)dist;
}

static ulyx_status_t
host_leave(ulyx_status_t status)
{
    return status;
}

static ulyx_status_t
host_retable(struct ulyx_dist_attention *dist, void *stream)
{
    (void)dist, (void)stream;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_begin(struct uli_pass *pass)
{
    (void)pass;
    return ULYX_SUCCESS;
}

/* Any address may be host memory. */
static ulyx_status_t
host_check(
    const struct ulyx_dist_attention *dist, const struct uli_dist_call *call)
{
    (void)dist, (void)call;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_check_saved(struct uli_pass *pass, const struct uli_saved_header *expected)
{
    struct uli_saved_header found;
    memcpy(&found, pass->call->saved, sizeof(found));
    if (found.magic != expected->magic || found.shape != expected->shape)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s", ULI_SAVED_IS_OTHER);
    if (found.tables != expected->tables)
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "%s", ULI_SAVED_HAS_OTHER_TABLES);
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_write_header(struct uli_pass *pass, const struct uli_saved_header *header)
{
    memcpy(pass->call->saved, header, sizeof(*header));
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_copy(
    const struct uli_pass *pass, void *dst, const void *src, int64_t bytes)
{
    (void)pass;
    if (bytes > 0)
        memcpy(dst, src, (size_t)bytes);
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_zero(const struct uli_pass *pass, void *address, int64_t bytes)
{
    (void)pass;
    if (bytes > 0)
        memset(address, 0, (size_t)bytes);
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_delta(const struct uli_pass *pass, const struct uli_delta_part *part)
{
    (void)pass;
    uli_attn_delta(part->dtype, part->sizes, &part->dout, &part->out,
        &part->dlse, part->delta, part->delta_strides);
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_attend(const struct uli_pass *pass, struct uli_attn_call *attention,
    ulyx_attention_pass_t kind)
{
    (void)pass;
    return uli_attn_run_pass(attention, kind);
}

/* Records nothing: on the host the pipeline waits for transfers itself. */
static ulyx_status_t
host_mark(const struct uli_pass *pass, enum uli_mark mark)
{
    (void)pass, (void)mark;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_end(const struct uli_pass *pass)
{
    (void)pass;
    return ULYX_SUCCESS;
}

const struct uli_dist_memory uli_dist_memory_host = {.kind = ULYX_MEMORY_HOST,
    .group_flags = ULYX_PLAN_PROGRESS_THREAD,
    .check_params = host_check_params,
    .open = host_open,
    .idle = host_idle,
    .close = host_close,
    .enter = host_idle,
    .leave = host_leave,
    .settle = host_settle,
    .retable = host_retable,
    .begin = host_begin,
    .check = host_check,
    .check_saved = host_check_saved,
    .write_header = host_write_header,
    .copy = host_copy,
    .zero = host_zero,
    .delta = host_delta,
    .attend = host_attend,
    .mark = host_mark,
    .follow = host_mark,
    .end = host_end};
