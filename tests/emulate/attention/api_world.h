/* SPDX-License-Identifier: Apache-2.0
 *
 * A random problem of attention on strided tensors of a device that end where
 * their memory ends, and the same in double precision on the host, for tests of
 * the public calls. On emulated devices or on a card.
 */
#ifndef TESTS_EMULATE_API_WORLD_H
#define TESTS_EMULATE_API_WORLD_H

#include "cuda_runtime.h"
#include "support/random.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum {
    Q,
    K,
    V,
    OUT,
    LSE,
    FORWARD_TENSORS,
    DOUT = FORWARD_TENSORS,
    DELTA,
    DLSE,
    DQ,
    DK,
    DV,
    BACKWARD_TENSORS,
    DOCS_MAX = 8,
    HEADS_MAX = 8,
    GUARD = 64
};

#define good(call) assert_int_equal((int)(call), 0)

/* One tensor: doubles on the host, elements on the device. */
struct tensor {
    ulyx_attention_tensor_t device, host;
    double *values;
    unsigned char *memory, *image; /* on the device; a copy on the host */
    int64_t count, bytes, element;
    ulyx_dtype_t dtype;
    int64_t heads, rows, columns, pitch; /* elements from row to row */
};

struct world {
    struct test_random random;
    ulyx_attention_pass_t pass;
    int tensors; /* that the pass has */
    ulyx_attention_t problem;
    struct tensor t[BACKWARD_TENSORS];
    bool wide; /* gradients are fp32 whatever the dtype */
    ulyx_attention_exec_t exec;
    ulyx_docs_t docs;
    int32_t begins[DOCS_MAX + 1], *begins_there;
    float sinks[HEADS_MAX], slopes[HEADS_MAX];
    float *sinks_there, *slopes_there;
    void *workspace;
    int64_t workspace_bytes;
    uint64_t *cause; /* on the device */
    cudaStream_t stream;
};

/* Setup and teardown of a test; the second fails where the emulator has
 * something to report. */
int world_open(void **state);
int world_close(void **state);

/* A world of nothing; draw its problem, then make it. Skips without a card. */
void world_init(struct world *w, ulyx_attention_pass_t pass, uint64_t seed);
void world_draw_problem(struct world *w);
void world_draw_docs(struct world *w, bool on_device);
void world_draw_sinks(struct world *w);
void world_draw_slopes(struct world *w);
int64_t world_below(struct world *w, int64_t bound);

/* Tensors, workspace, cause and stream, all poison. */
void world_make(struct world *w);
void world_free(struct world *w);

/* Normal data, rounded to the dtype on both sides; between rows of inputs, too.
 */
void world_fill_random(struct world *w, int n);
/* The host's values to the device, rounded on both sides. */
void world_fill_values(struct world *w, int n);
void world_fill_poison(struct world *w, int n);

/* The problem as the host's reference takes it; docs_p keeps what it points to.
 */
ulyx_attention_t world_host_problem(const struct world *w, ulyx_docs_t *docs_p);
/* A workspace of the host's reference, to be freed, and the structs of its
 * call. */
void *world_host_workspace(const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, ulyx_attention_exec_t *exec_p,
    int64_t *bytes_p);

/* Checks each element by near(w, n, is, wanted), and every other byte for
 * poison; checked false: all bytes for poison. */
typedef bool (*world_near)(
    const struct world *w, int n, double is, double wanted);
void world_compare(
    struct world *w, int n, bool checked, world_near near_enough);
/* The cause's status, and a word of its text. */
void world_expect_cause(
    struct world *w, ulyx_status_t status, const char *word);
/* The last error's text has a word. */
void world_expect_error(const char *word);

#endif
