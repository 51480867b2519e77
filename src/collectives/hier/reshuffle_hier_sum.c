/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of the hierarchical schedule at their owner: the shares of nodes, each
 * the partials of one rank or the accumulators of several, added in node order
 * and rounded once. One sum after another, as far as all shares have arrived.
 */
#include "base/dtype.h"
#include "base/size.h"
#include "collectives/hier/hier.h"
#include "collectives/plan/plan.h"

/* Elements of which all shares have arrived; 0: wait. */
static int64_t
elements_here(const struct uli_hier *h, const struct uli_hier_sum *sum)
{
    int64_t elements = uli_min(sum->elements - h->sum_done, uli_hier_step(h));
    for (int32_t i = 0; i < sum->nparts; i++) {
        const struct uli_hier_part *part = &h->now->parts[sum->first_part + i];
        const struct uli_hier_rail *rail = &h->rails[part->rail];
        const char *bytes;
        if (rail->take != part->take)
            return 0;
        int64_t at = rail->stream->takes[rail->take].at + rail->took;
        elements =
            uli_min(elements, uli_hier_here(h, rail, at, &bytes) / part->unit);
    }
    return elements;
}

/* Adds one node's elements to the sum in acc. */
static void
merge_part(struct uli_hier *h, const struct uli_shape_tensor *t,
    int32_t partial, const struct uli_hier_part *part, int64_t elements,
    bool first)
{
    struct uli_hier_rail *rail = &h->rails[part->rail];
    const char *bytes;
    uli_hier_here(
        h, rail, rail->stream->takes[rail->take].at + rail->took, &bytes);
    if (!part->acc) {
        uli_sum_accumulate(
            t->dtype, partial, h->exchange->group_acc, bytes, elements, true);
        bytes = h->exchange->group_acc;
    }
    uli_sum_merge(t->dtype, partial, h->exchange->acc, bytes, elements, first);
    uli_hier_took(h, rail, elements * part->unit);
}

static int64_t
sum_step(struct uli_hier *h, const struct uli_hier_sum *sum, int64_t elements)
{
    const struct uli_shape_tensor *t =
        &uli_layout_shape(h->layout)->tensors[sum->tensor];
    int32_t partial =
        uli_plan_dtype(t, uli_plan_side(h->exchange->direction, true));
    int64_t elem = uli_dtype_size(t->dtype);
    struct uli_box part;
    const struct uli_box *box;
    struct uli_box_span span;
    elements = uli_box_cut(&sum->box, &h->sum_run, &h->sum_in_run,
                   elements * elem, &part, &box, &span) /
               elem;
    for (int32_t i = 0; i < sum->nparts; i++)
        merge_part(h, t, partial, &h->now->parts[sum->first_part + i], elements,
            i == 0);
    struct uli_sum out = {
        .extent = {box->extent[0], box->extent[1], box->extent[2]},
        .run = box->run_bytes / elem,
        .dtype = t->dtype,
        .partial_dtype = partial,
        .dst_offset = box->dst_offset,
        .dst_stride = {
            box->dst_stride[0], box->dst_stride[1], box->dst_stride[2]}};
    uli_sum_store(&out, span, h->exchange->dst[sum->tensor], h->exchange->acc);
    return elements;
}

bool
uli_hier_sums(struct uli_hier *h)
{
    bool advanced = false;
    while (h->sum < h->now->nsums) {
        const struct uli_hier_sum *sum = &h->now->sums[h->sum];
        int64_t elements = elements_here(h, sum);
        if (!elements)
            return advanced;
        elements = sum_step(h, sum, elements);
        h->sum_done += elements;
        advanced = true;
        if (h->sum_done == sum->elements) {
            h->sum++;
            h->sum_done = h->sum_run = h->sum_in_run = 0;
        }
        if (!uli_exchange_check(h->exchange, elements * 8 * sum->nparts))
            return true;
    }
    return advanced;
}
