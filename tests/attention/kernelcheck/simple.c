/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases made by hand, and the comparison of results bit for bit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/kernelcheck/kc.h"

void
kc_simple(struct kc_case *kc, const ulyx_attention_t *problem,
    struct test_random *random)
{
    memset(kc, 0, sizeof(*kc));
    kc->problem = *problem;
    if (kc->problem.heads_global == 0)
        kc->problem.heads_global = problem->heads_q;
    kc_alloc_values(kc);
    kc_fill_random(kc, random, 1);
}

void
kc_set_docs(struct kc_case *kc, bool keys, const int64_t *begin,
    const int64_t *length, int64_t count)
{
    ulyx_docs_t *docs = keys ? &kc->docs_k : &kc->docs_q;
    ulyx_docs_t init = ULYX_DOCS_INIT;
    void **arrays = &kc->docs_arrays[keys ? 2 : 0];
    for (int n = 0; n < 2; n++) {
        free(arrays[n]);
        arrays[n] = kc_alloc(8 * count);
        memcpy(arrays[n], n ? length : begin, (size_t)count * 8);
    }
    *docs = init;
    docs->count = count;
    docs->begin = arrays[0];
    docs->length = arrays[1];
    if (keys)
        kc->problem.docs_k = docs;
    else
        kc->problem.docs_q = docs;
}

static bool
same_rows(const struct kc_case *kc, const char *what, enum kc_name name,
    const struct kc_values *a, const struct kc_values *b)
{
    bool keys = name == KC_DK || name == KC_DV;
    for (int64_t i = 0; i < a->shape.batch; i++)
        for (int64_t n = 0; n < a->shape.heads; n++)
            for (int64_t r = 0; r < a->shape.rows; r++) {
                if (!kc_holds(kc, keys, i, n, r) ||
                    memcmp(kc_row(a, i, n, r), kc_row(b, i, n, r),
                        (size_t)a->shape.columns * 8) == 0)
                    continue;
                printf("FAILED %s: %s[%lld][%lld] row %lld differs\n", what,
                    kc_names[name], (long long)i, (long long)n, (long long)r);
                return false;
            }
    return true;
}

bool
kc_same(const struct kc_case *kc, const char *what, const struct kc_result *a,
    const struct kc_result *b, enum kc_name first, enum kc_name last)
{
    for (int t = first; t <= (int)last; t++)
        if (!same_rows(kc, what, (enum kc_name)t, &a->values[t], &b->values[t]))
            return false;
    return true;
}
