/* SPDX-License-Identifier: Apache-2.0
 * Four ranks trade "my tokens, all heads" for "all tokens, my heads". */
#include <stdio.h>
#include <ulyx/ulyx.h>

#define TRY(call)                                                              \
    if ((call) != ULYX_SUCCESS)                                                \
    return fprintf(stderr, "%s: %s\n", #call, ulyx_last_error()), 1

enum { RANKS = 4, TOKENS = 10, HEADS = 6, DIM = 2 };

int
main(void)
{
    static float seq[RANKS][TOKENS][HEADS][DIM],
        head[RANKS][TOKENS * HEADS * DIM];
    ulyx_comm_t *comm[RANKS];
    ulyx_plan_t *plan[RANKS];
    ulyx_part_t tokens = ULYX_PART_INIT;
    ulyx_tensor_t q = ULYX_TENSOR_INIT;
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    int64_t rows, at = 0, first, count;

    tokens.rows = TOKENS, q.dtype = ULYX_DTYPE_F32, q.heads = HEADS,
    q.dim = DIM;
    params.heads = HEADS, params.parts = &tokens, params.nparts = 1;
    params.tensors = &q, params.ntensors = 1;
    TRY(ulyx_comm_create_local(RANKS, NULL, comm)); /* one thread, four ranks */
    TRY(ulyx_group_start());
    for (int r = 0; r < RANKS; r++)
        TRY(ulyx_plan_create(comm[r], &params, &plan[r]));
    TRY(ulyx_group_end());
    TRY(ulyx_group_start());
    for (int r = 0; r < RANKS; r++, at += rows) { /* 10 tokens: 3 3 2 2 */
        TRY(ulyx_plan_get_seq_rows(plan[r], 0, r, &rows));
        for (int64_t i = 0; i < rows * HEADS; i++) /* token.head */
            seq[r][i / HEADS][i % HEADS][0] = at + i / HEADS + i % HEADS * 0.1f;
        const void *src[] = {seq[r]};
        void *dst[] = {head[r]};
        TRY(ulyx_reshuffle_execute(plan[r], ULYX_SEQ_TO_HEAD, src, dst, NULL));
    }
    TRY(ulyx_group_end());
    for (int r = 0; r < RANKS; r++) { /* 6 heads: 2 2 1 1 */
        TRY(ulyx_plan_get_heads(plan[r], 0, r, &first, &count));
        printf("rank %d, head %d, tokens:", r, (int)first);
        for (int t = 0; t < TOKENS; t++)
            printf(" %.1f", head[r][t * count * DIM]);
        puts("");
        TRY(ulyx_plan_destroy(plan[r]));
        TRY(ulyx_comm_destroy(comm[r]));
    }
    return 0;
}
