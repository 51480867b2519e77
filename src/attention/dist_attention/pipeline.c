/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which head groups pass through the slots, in both passes. With
 * two slots the inputs of the next group and the results of the last group are
 * exchanged while the present group is attended.
 *
 * The inputs of a slot are free when its group has been attended; the results
 * are free when they have been sent. So group g + 1 may be brought to the slot
 * of group g - 1 while the results of group g - 1 are still being sent; group
 * g + 1 is attended after they have been sent. The first piece of a cut KV head
 * takes the accumulators after the KV head that had them before has been sent.
 *
 * On a device nothing is waited for here. Exchanges have a stream of their own,
 * in which they are enqueued in this order. So group g is brought to its slot
 * after the results of group g - 2 have been sent, and these come after the
 * attention of group g - 2.
 */
#include "attention/dist_attention/memory.h"

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
pass_mark(struct uli_pass *pass, enum uli_mark mark)
{
    uli_pass_fail(pass, pass->dist->memory->mark(pass, mark));
}

static void
pass_follow(struct uli_pass *pass, enum uli_mark mark)
{
    uli_pass_fail(pass, pass->dist->memory->follow(pass, mark));
}

static void
bring_group(struct uli_pass *pass, const struct uli_steps *steps, int32_t g)
{
    steps->bring(pass, g);
    pass_mark(pass, ULI_MARK_BROUGHT + g % pass->dist->slots);
}

static void
await_group(struct uli_pass *pass, int32_t g)
{
    const struct uli_head_group *group = &pass->dist->groups[g];
    int32_t slot = g % pass->dist->slots;
    pass_follow(pass, ULI_MARK_BROUGHT + slot);
    uli_pass_wait(pass, &pass->transfers[ULI_TRANSFER_GRAD][slot]);
    uli_pass_wait(pass, &pass->transfers[ULI_TRANSFER_INPUTS][slot]);
    uli_pass_wait(pass, &pass->transfers[ULI_TRANSFER_BACK][slot]);
    if (group->first_piece)
        uli_pass_wait(
            pass, &pass->transfers[ULI_TRANSFER_SUMS][group->kv_slot]);
}

/* All exchanges that are enqueued from here on come after the attention. */
static void
attention_ends(struct uli_pass *pass)
{
    pass_mark(pass, ULI_MARK_ATTENDED);
    pass_follow(pass, ULI_MARK_ATTENDED);
}

void
uli_pass_groups(struct uli_pass *pass, const struct uli_steps *steps)
{
    int32_t ngroups = pass->dist->ngroups, slots = pass->dist->slots;
    attention_ends(pass); /* and after all that the caller has enqueued */
    bring_group(pass, steps, 0);
    for (int32_t g = 0; g < ngroups; g++) {
        if (slots > 1 && g + 1 < ngroups)
            bring_group(pass, steps, g + 1);
        await_group(pass, g);
        if (pass->status == ULYX_SUCCESS)
            steps->attend(pass, g);
        attention_ends(pass);
        steps->send(pass, g);
        if (slots == 1 && g + 1 < ngroups)
            bring_group(pass, steps, g + 1);
    }
    for (int32_t s = 0; s < slots; s++) {
        uli_pass_wait(
            pass, &pass->transfers[ULI_TRANSFER_BACK][(ngroups + s) % slots]);
        uli_pass_wait(pass, &pass->transfers[ULI_TRANSFER_SUMS][s]);
    }
    pass_mark(pass, ULI_MARK_BROUGHT);
    pass_follow(pass, ULI_MARK_BROUGHT);
}
