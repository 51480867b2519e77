/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_plays.h.
 */
#include "emulate/plan/plan_plays.h"

#include <stdlib.h>
#include <string.h>
#include "support/test.h"

#define good(call) assert_int_equal((call), cudaSuccess)

void
plan_expect(struct plan_scene *s, int op)
{
    plan_download(s);
    s->w->order[0] = op;
    s->w->norder = 1;
    assert_true(world_check(s->w));
}

/* Makes rank 0's call of seq_to_head, with the strides of src at creation
 * multiplied by `times`. */
static ulyx_status_t
execute_strided(struct plan_scene *s, int64_t times)
{
    struct world *w = s->w;
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    int64_t strides[ULI_TENSORS][3];
    for (int t = 0; t < 3; t++) {
        src[t] = s->src[0][0][t] + w->src[0][0][t].at;
        dst[t] = s->dst[0][0][t] + w->dst[0][0][t].at;
        for (int d = 0; d < 3; d++)
            strides[t][d] = w->strides[0][t][ULI_SIDE_SEQ][d] * times;
    }
    return ulyx_reshuffle_execute_strided(w->plans[0], 0, src,
        (const int64_t(*)[3])strides, dst, NULL, s->streams[0]);
}

void
plan_play_strides(struct plan_scene *s, int64_t times, ulyx_status_t status,
    const char *words)
{
    plan_upload(s);
    assert_status(execute_strided(s, times), status);
    assert_non_null(strstr(ulyx_last_error(), words));
    for (int32_t r = 1; r < 3; r++)
        assert_status(plan_execute(s, r, 0), ULYX_SUCCESS);
    plan_sync(s);
    for (int32_t r = 1; r < 3; r++)
        assert_status(plan_execute(s, r, 0), ULYX_ERR_PEER_REFUSED);
    assert_status(execute_strided(s, 1), ULYX_SUCCESS);
    plan_sync(s);
    plan_expect(s, 0);
    plan_round(s);
}

void
plan_play_refusal(struct plan_scene *s)
{
    struct world *w = s->w;
    void *outside = NULL;
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    plan_upload(s);
    good(cudaSetDevice(0));
    good(cudaMalloc(&outside, 1 << 20));
    for (int t = 0; t < 3; t++) {
        src[t] = outside;
        dst[t] = s->dst[0][0][t] + w->dst[0][0][t].at;
    }
    assert_status(
        ulyx_reshuffle_execute(w->plans[0], 0, src, dst, s->streams[0]),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "not inside a window"));
    for (int32_t r = 1; r < 3; r++)
        assert_status(plan_execute(s, r, 0), ULYX_SUCCESS);
    plan_sync(s);
    for (int32_t r = 1; r < 3; r++) {
        assert_status(plan_execute(s, r, 0), ULYX_ERR_PEER_REFUSED);
        assert_non_null(strstr(ulyx_last_error(), "call 1: rank 0 refused"));
    }
    assert_status(plan_execute(s, 0, 0), ULYX_SUCCESS);
    plan_sync(s);
    plan_round(s);
    good(cudaFree(outside));
}

void
plan_play_mismatch(struct plan_scene *s)
{
    plan_upload(s);
    assert_status(plan_execute(s, 0, ULYX_SEQ_TO_HEAD), ULYX_SUCCESS);
    assert_status(plan_execute(s, 1, ULYX_HEAD_TO_SEQ), ULYX_SUCCESS);
    plan_sync(s);
    assert_status(plan_execute(s, 0, 0), ULYX_ERR_MISMATCH);
    assert_non_null(strstr(ulyx_last_error(), "rank 1 executes head_to_seq"));
    assert_status(plan_execute(s, 1, 0), ULYX_ERR_MISMATCH);
    plan_sync(s);
    plan_round(s);
}

void
plan_play_destroyed(struct plan_scene *s)
{
    plan_round(s);
    assert_status(ulyx_plan_destroy(s->w->plans[1]), ULYX_SUCCESS);
    assert_status(plan_execute(s, 0, 0), ULYX_SUCCESS);
    plan_sync(s);
    assert_status(plan_execute(s, 0, 0), ULYX_ERR_PEER_REFUSED);
    assert_non_null(strstr(ulyx_last_error(), "rank 1 has destroyed"));
    plan_sync(s);
    s->w->plans[1] = NULL;
}

void
plan_play_capture(struct plan_scene *s, int first, int second, int times)
{
    cudaGraph_t graph[PLAN_RANKS_MAX];
    cudaGraphExec_t exec[PLAN_RANKS_MAX];
    struct world *w = s->w;
    plan_round(s);
    for (int32_t r = 0; r < s->nranks; r++) {
        good(cudaSetDevice(r % s->devices));
        good(cudaStreamBeginCapture(
            s->streams[r], cudaStreamCaptureModeThreadLocal));
        assert_status(plan_execute(s, r, first), ULYX_SUCCESS);
        assert_status(plan_execute(s, r, second), ULYX_SUCCESS);
        assert_status(ulyx_plan_update(w->plans[r], NULL, NULL, s->streams[r]),
            ULYX_ERR_UNSUPPORTED); /* the plan has no document tables */
        good(cudaStreamEndCapture(s->streams[r], &graph[r]));
        good(cudaGraphInstantiate(&exec[r], graph[r], 0));
    }
    for (int i = 0; i < times; i++) {
        w->salt = 100 + i;
        plan_upload(s);
        for (int32_t r = 0; r < s->nranks; r++)
            good(cudaGraphLaunch(exec[r], s->streams[r]));
        plan_sync(s);
        plan_download(s);
        w->order[0] = first;
        w->order[1] = second;
        w->norder = 2;
        assert_true(world_check(w));
    }
    plan_round(s); /* direct calls continue the numbering of the replays */
    for (int32_t r = 0; r < s->nranks; r++) {
        good(cudaGraphExecDestroy(exec[r]));
        good(cudaGraphDestroy(graph[r]));
    }
    assert_int_equal(emu_fault_count(), 0);
}

void
plan_play_two(struct plan_scene *a, struct plan_scene *b, int times)
{
    for (int32_t r = 0; r < 2; r++)
        good(cudaStreamCreateWithFlags(&b->streams[r], cudaStreamNonBlocking));
    plan_upload(a);
    plan_upload(b);
    for (int i = 0; i < times; i++) {
        assert_status(plan_execute(a, 0, 0), ULYX_SUCCESS);
        assert_status(plan_execute(b, 0, 1), ULYX_SUCCESS);
        assert_status(plan_execute(b, 1, 1), ULYX_SUCCESS);
        assert_status(plan_execute(a, 1, 0), ULYX_SUCCESS);
    }
    plan_sync(a);
    plan_sync(b);
    assert_int_equal(emu_fault_count(), 0);
    plan_expect(a, 0);
    plan_expect(b, 1);
    for (int32_t r = 0; r < 2; r++)
        good(cudaStreamDestroy(b->streams[r]));
}

void
plan_play_late(struct plan_scene *s)
{
    ulyx_status_t status = ULYX_SUCCESS;
    plan_upload(s);
    assert_status(plan_execute(s, 0, 0), ULYX_SUCCESS);
    plan_sync(s);
    assert_status(
        ulyx_comm_get_async_error(s->ranks.comms[0], &status), ULYX_SUCCESS);
    assert_int_equal(status, ULYX_ERR_TIMEOUT);
    assert_non_null(strstr(ulyx_last_error(), "reshuffle, call 1, after "));
    assert_non_null(strstr(ulyx_last_error(), "waiting for rank 1 ("));
    assert_status(plan_execute(s, 0, 0), ULYX_ERR_TIMEOUT);
    /* The failure ends the queued kernel of a peer at once. */
    assert_status(ulyx_comm_abort(s->ranks.comms[1]), ULYX_SUCCESS);
    plan_sync(s);
}

void
plan_destroy_all(struct plan_scene *s)
{
    for (int32_t r = 0; r < s->nranks; r++) {
        assert_status(ulyx_plan_destroy(s->w->plans[r]), ULYX_SUCCESS);
        good(cudaStreamDestroy(s->streams[r]));
    }
    for (int32_t r = 0; r < s->nranks; r++)
        assert_status(ulyx_comm_destroy(s->ranks.comms[r]), ULYX_SUCCESS);
    for (int32_t r = 0; r < s->nranks; r++)
        plan_free_window(s->mems[r]);
    world_free(s->w);
    free(s->w);
    assert_int_equal(emu_fault_count(), 0);
    plan_machine_close();
}
