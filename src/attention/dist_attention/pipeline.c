/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which head groups pass through the slots, of both passes. With
 * two slots the next group travels while this one is attended, and the last
 * one's results go home meanwhile.
 *
 * A slot's inputs are free once its attention is done, its results once they
 * have been sent. So group g + 1 may be brought while what group g - 1 left in
 * the same slot is still on its way back, and group g waits for that before it
 * is attended. Accumulators of a cut KV head are taken by its first piece, once
 * the KV head that had them before has been sent.
 */
#include "attention/dist_attention/pass.h"

void
uli_pass_bring_inputs(struct uli_pass *pass, int32_t g)
{
    struct ulyx_dist_attention *dist = pass->dist;
    struct uli_head_group *group = &dist->groups[g];
    int32_t slot = g % dist->slots;
    struct uli_pointers src = {.count = 0}, dst = {.count = 0};
    uli_pass_seq(pass, group, ULI_DIST_Q, 0, &src);
    uli_pass_seq(pass, group, ULI_DIST_K, 1, &src);
    uli_pass_seq(pass, group, ULI_DIST_V, 1, &src);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_Q, 0, &dst);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_K, 1, &dst);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_V, 1, &dst);
    uli_pass_start(pass, &group->plan_sets[ULI_PLAN_SET_IN], ULYX_SEQ_TO_HEAD,
        &src, &dst, &pass->transfers[ULI_TRANSFER_INPUTS][slot]);
}

static void
await_group(struct uli_pass *pass, int32_t g)
{
    const struct uli_head_group *group = &pass->dist->groups[g];
    int32_t slot = g % pass->dist->slots;
    uli_pass_wait(pass, &pass->transfers[ULI_TRANSFER_GRAD][slot]);
    uli_pass_wait(pass, &pass->transfers[ULI_TRANSFER_INPUTS][slot]);
    uli_pass_wait(pass, &pass->transfers[ULI_TRANSFER_BACK][slot]);
    if (group->first_piece)
        uli_pass_wait(
            pass, &pass->transfers[ULI_TRANSFER_SUMS][group->kv_slot]);
}

void
uli_pass_groups(struct uli_pass *pass, const struct uli_steps *steps)
{
    int32_t ngroups = pass->dist->ngroups, slots = pass->dist->slots;
    steps->bring(pass, 0);
    for (int32_t g = 0; g < ngroups; g++) {
        if (slots > 1 && g + 1 < ngroups)
            steps->bring(pass, g + 1);
        await_group(pass, g);
        if (pass->status == ULYX_SUCCESS)
            steps->attend(pass, g);
        steps->send(pass, g);
        if (slots == 1 && g + 1 < ngroups)
            steps->bring(pass, g + 1);
    }
    for (int32_t s = 0; s < slots; s++) {
        uli_pass_wait(
            pass, &pass->transfers[ULI_TRANSFER_BACK][(ngroups + s) % slots]);
        uli_pass_wait(pass, &pass->transfers[ULI_TRANSFER_SUMS][s]);
    }
}
