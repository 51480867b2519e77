/* SPDX-License-Identifier: Apache-2.0
 *
 * --mutate: does the tolerance rule detect faults? Each kernel computes a
 * problem that differs from that of the truth, in the ways in which attention
 * kernels have been wrong, and the rule must refuse its results. A fault in the
 * arguments has the effect of the same fault in a kernel, so no kernel contains
 * code for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/kernelcheck/kc.h"
#include "attention/kernels/kernels.h"

/* A fault: `plant` makes a case in which every feature matters, and the problem
 * that a faulty kernel would solve. */
struct fault {
    const char *name;
    void (*plant)(struct kc_case *kc, ulyx_attention_t *problem);
    int case_kind;
    bool backward;
};

enum { PLAIN, WINDOW, CAUSAL, DOCS, FEATURES };

static const int64_t doc_begin[3] = {0, 64, 150};
static const int64_t doc_length[3] = {64, 80, 60};

static void
make_case(struct kc_case *kc, int kind, ulyx_dtype_t dtype)
{
    ulyx_attention_t p = ULYX_ATTENTION_INIT;
    struct test_random random = {(uint64_t)kind + 1};
    p.dtype = dtype;
    p.param_dtype = ULYX_DTYPE_F32;
    p.batch = 1, p.heads_q = 4, p.heads_kv = 2;
    p.len_q = 210, p.len_k = kind == DOCS ? 210 : 240;
    p.dim_qk = 64, p.dim_v = 64;
    p.mask = kind == WINDOW   ? ULYX_MASK_WINDOW
             : kind == CAUSAL ? ULYX_MASK_CAUSAL
                              : ULYX_MASK_NONE;
    p.window_left = 11, p.window_right = 4;
    p.heads_global = kind == FEATURES ? 7 : 0;
    p.head_offset = kind == FEATURES ? 2 : 0;
    kc_simple(kc, &p, &random);
    if (kind == DOCS)
        kc_set_docs(kc, false, doc_begin, doc_length, 3);
    if (kind == FEATURES) {
        float *sinks = kc_alloc(4 * 7), *slopes = kc_alloc(4 * 7);
        for (int n = 0; n < 7; n++) {
            sinks[n] = 4 + (float)n;
            slopes[n] = 1.0f / (float)(2 << n);
        }
        kc->problem.sinks = kc->sinks = sinks;
        kc->problem.alibi_slopes = kc->slopes = slopes;
        kc->problem.softcap = 2;
    }
    kc_solve(kc);
}

static void
plant_drop_tile(struct kc_case *kc, ulyx_attention_t *problem)
{
    const int64_t q_begin[1] = {0}, q_length[1] = {210};
    const int64_t begin[1] = {128}, length[1] = {112};
    kc_set_docs(kc, false, q_begin, q_length, 1);
    kc_set_docs(kc, true, begin, length, 1);
    problem->docs_q = &kc->docs_q;
    problem->docs_k = &kc->docs_k;
    kc->problem.docs_q = kc->problem.docs_k = NULL;
}

static void
plant_move_border(struct kc_case *kc, ulyx_attention_t *problem)
{
    static const int64_t begin[3] = {0, 65, 150};
    static const int64_t length[3] = {65, 79, 60};
    static ulyx_docs_t moved = ULYX_DOCS_INIT;
    (void)kc;
    moved.count = 3;
    moved.begin = begin;
    moved.length = length;
    problem->docs_q = &moved;
}

static void
plant_ignore_documents(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->docs_q = NULL;
}

static void
plant_diagonal_up(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->diagonal = 1;
}

static void
plant_diagonal_down(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->diagonal = -1;
}

static void
plant_window_left(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->window_left--;
}

static void
plant_window_right(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->window_right++;
}

static void
plant_alignment(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->align = ULYX_ALIGN_TOP_LEFT;
}

static void
plant_kv_head(struct kc_case *kc, ulyx_attention_t *problem)
{
    static const int64_t map[4] = {0, 1, 0, 1};
    (void)kc;
    problem->kv_map = map;
}

static void
plant_scale_twice(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->scale = 1.0 / 64;
}

static void
plant_no_cap(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->softcap = 0;
}

static void
plant_no_sink(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->sinks = NULL;
}

static void
plant_local_head(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)kc;
    problem->head_offset = 0;
}

/* Query head 3 adds nothing to its KV head; its own rows stay as they are. */
static void
plant_sharer(struct kc_case *kc, ulyx_attention_t *problem)
{
    (void)problem;
    struct kc_values *dout = &kc->values[KC_DOUT];
    memset(kc_row(dout, 0, 3, 0), 0,
        (size_t)(dout->shape.rows * dout->shape.columns) * 8);
    memset(
        kc_row(&kc->values[KC_DLSE], 0, 3, 0), 0, (size_t)dout->shape.rows * 8);
    memset(kc_row(&kc->values[KC_DELTA], 0, 3, 0), 0,
        (size_t)dout->shape.rows * 8);
    memset(kc_row(&kc->values[KC_DQ], 0, 3, 0), 0,
        (size_t)dout->shape.rows * 64 * 8);
}

static const struct fault faults[] = {
    {"none (must pass)", NULL, PLAIN, true},
    {"none, all features (must pass)", NULL, FEATURES, true},
    {"a key tile dropped", plant_drop_tile, PLAIN, false},
    {"a key tile dropped, backward", plant_drop_tile, PLAIN, true},
    {"diagonal one up", plant_diagonal_up, CAUSAL, false},
    {"diagonal one down", plant_diagonal_down, CAUSAL, false},
    {"diagonal one down, backward", plant_diagonal_down, CAUSAL, true},
    {"causal aligned top left", plant_alignment, CAUSAL, false},
    {"window one short on the left", plant_window_left, WINDOW, false},
    {"window one long on the right", plant_window_right, WINDOW, false},
    {"window one long, backward", plant_window_right, WINDOW, true},
    {"wrong kv head", plant_kv_head, PLAIN, false},
    {"scale applied twice", plant_scale_twice, PLAIN, false},
    {"scale applied twice, backward", plant_scale_twice, PLAIN, true},
    {"a sharer not summed", plant_sharer, PLAIN, true},
    {"a document's border moved", plant_move_border, DOCS, false},
    {"a document's border moved, backward", plant_move_border, DOCS, true},
    {"documents ignored", plant_ignore_documents, DOCS, false},
    {"softcap forgotten", plant_no_cap, FEATURES, false},
    {"softcap forgotten, backward", plant_no_cap, FEATURES, true},
    {"sink forgotten", plant_no_sink, FEATURES, false},
    {"parameters by the local head", plant_local_head, FEATURES, false},
};

/* For a fault of a shared KV head, the truth is that of the unchanged case. */
static bool
judge_fault(const struct fault *fault, const char *kernel, ulyx_dtype_t dtype)
{
    struct kc_layout layout = {.kernel = kernel, .threads = 1};
    bool backward = fault->backward && kc_passes > 1;
    struct kc_result result;
    struct kc_case kc, truth;
    make_case(&kc, fault->case_kind, dtype);
    make_case(&truth, fault->case_kind, dtype);
    ulyx_attention_t problem = kc.problem;
    if (fault->plant)
        fault->plant(&kc, &problem);
    if (fault->plant == plant_sharer)
        memset(kc_row(&truth.values[KC_DQ], 0, 3, 0), 0,
            (size_t)truth.problem.len_q * 64 * 8);
    bool right = kc_run(&kc, &problem, &layout, backward, &result) &&
                 kc_judge(&truth, &result, backward, true);
    kc_result_free(&result);
    kc_free(&kc);
    kc_free(&truth);
    return right;
}

int
kc_mutate(const struct kc_options *options)
{
    const struct uli_attn_kernel *kernel;
    int wrong = 0, cases = 0;
    for (int n = 0; (kernel = uli_attn_kernel_at(n)) != NULL; n++) {
        ulyx_dtype_t dtype = kc_takes(kernel->name, ULYX_DTYPE_F32)
                                 ? ULYX_DTYPE_F32
                                 : ULYX_DTYPE_BF16;
        if (!kernel->usable() ||
            (options->kernel && strcmp(options->kernel, kernel->name) != 0))
            continue;
        for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++) {
            if (faults[f].backward && faults[f].plant && kc_passes == 1)
                continue;
            if (!faults[f].backward && kc_first_pass == 1)
                continue;
            bool right = judge_fault(&faults[f], kernel->name, dtype);
            bool expected = !faults[f].plant;
            cases++;
            wrong += right != expected;
            printf("%-12s %-38s %s\n", kernel->name, faults[f].name,
                right == expected ? right ? "passes" : "caught"
                : right           ? "NOT CAUGHT"
                                  : "REFUSED");
        }
    }
    printf("kernelcheck --mutate: %d cases, %d wrong\n", cases, wrong);
    return wrong != 0 || cases == 0;
}
