/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan in one line, and the bytes it holds.
 *
 *   reshuffle direct (one node): rank 1 of 4, batch 1, 32 heads, 3 tensors;
 *   seq_to_head: 3 stored (to windows); head_to_seq: 2 loaded (from windows),
 *   1 ring (no window, rows short); ring chunk 1048576; slots of 8192
 * and between nodes
 *   reshuffle pairwise (2 nodes, to 8 ranks of others at a time; links
 *   assumed, careful choice: 84.0 us, ...): rank ...;
 *   seq_to_head: 1 stored ..., 2 by puts (another node), 65536 bytes to other
 *   nodes; ...; network: 8 chunks of 524288, ucx ...
 */
#include "base/text.h"
#include "collectives/exchange/mover.h"

void
uli_plan_describe_slots(const ulyx_plan_t *plan, struct uli_text *text)
{
    if (plan->slot_limit)
        uli_text_add(text, "; slots of %lld", (long long)plan->slot_limit);
    else
        uli_text_add(text, "; no slots");
}

void
uli_plan_describe(const ulyx_plan_t *plan, char *text_p, size_t text_bytes)
{
    const struct uli_shape *shape = uli_layout_shape(plan->layout);
    struct uli_text text = {text_p, text_bytes, 0};
    uli_text_add(&text, "reshuffle ");
    plan->mover->describe(plan, &text);
    uli_text_add(&text,
        ": rank %d of %d, batch %lld, %lld head%s, "
        "%d tensor%s, work %s%s",
        plan->comm->rank, plan->comm->nranks, (long long)shape->batch,
        (long long)shape->heads, uli_plural(shape->heads), shape->ntensors,
        uli_plural(shape->ntensors),
        shape->work_split == ULYX_WORK_BALANCED ? "balanced" : "by heads",
        uli_layout_packed(plan->layout) ? " (packed)" : "");
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++)
        if (plan->directions >> direction & 1) {
            uli_text_add(&text, "; %s: ", uli_direction_name(direction));
            plan->mover->describe_direction(plan, direction, &text);
        }
    plan->mover->describe_rest(plan, &text);
    uli_text_mark_cut(&text);
}

int64_t
uli_plan_bytes(const ulyx_plan_t *plan)
{
    int64_t nranks = plan->comm->nranks;
    return (int64_t)sizeof(*plan) + plan->table_bytes +
           plan->mover->bytes(plan) + uli_layout_bytes(plan->layout) +
           nranks * (int64_t)(sizeof(struct uli_pair) +
                              sizeof(struct uli_rank_info) +
                              ULI_SIDES * ULI_TENSORS * sizeof(int64_t) +
                              3 * sizeof(int64_t));
}
