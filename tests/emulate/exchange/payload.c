/* SPDX-License-Identifier: Apache-2.0
 *
 * See payload.h.
 */
#include "emulate/exchange/payload.h"

#include <stdlib.h>
#include "support/test.h"

struct payload {
    struct world *w;
    int direction;
    int64_t bytes;
};

static bool
add_payload(void *context, const struct uli_move *move)
{
    struct payload *p = context;
    p->bytes += move->batches * move->rows * move->heads *
                p->w->c.shape.tensors[move->tensor].dim *
                world_elem_bytes(
                    p->w, move->tensor, uli_plan_side(p->direction, false));
    return true;
}

int64_t
payload_bytes(struct world *w, int32_t rank, int op, int32_t tensor)
{
    struct payload p = {w, op, 0};
    struct uli_place *scratch =
        malloc((size_t)(uli_layout_scratch(w->layout) + 1) * sizeof(*scratch));
    assert_non_null(scratch);
    uli_layout_each_move(
        w->layout, op, tensor, rank, -1, scratch, add_payload, &p);
    free(scratch);
    return p.bytes;
}
