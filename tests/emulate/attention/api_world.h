/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the public calls: a random problem of attention on strided
 * tensors of a device, which end where their memory ends, and the same problem
 * in double precision on the host. Runs on emulated devices or on a card.
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
    /* memory lies on the device; image is a copy of it on the host */
    unsigned char *memory, *image;
    int64_t count, bytes, element;
    ulyx_dtype_t dtype;
    /* pitch: elements from one row to the next */
    int64_t heads, rows, columns, pitch;
};

struct world {
    struct test_random random;
    ulyx_attention_pass_t pass;
    int tensors; /* how many tensors the pass has */
    ulyx_attention_t problem;
    struct tensor t[BACKWARD_TENSORS];
    bool wide; /* gradients are fp32, whatever the dtype of the problem */
    ulyx_attention_exec_t exec;
    ulyx_docs_t docs;
    int32_t begins[DOCS_MAX + 1], *begins_there;
    float sinks[HEADS_MAX], slopes[HEADS_MAX];
    float *sinks_there, *slopes_there;
    void *workspace;
    int64_t workspace_bytes;
    uint64_t *cause; /* lies on the device */
    cudaStream_t stream;
};

/* Setup and teardown of a test; the teardown fails if the emulator has recorded
 * a fault. */
int world_open(void **state);
int world_close(void **state);

/* Begins a world without a problem, which the caller draws before world_make.
 * Skips the test where there is no card. */
void world_init(struct world *w, ulyx_attention_pass_t pass, uint64_t seed);
void world_draw_problem(struct world *w);
void world_draw_docs(struct world *w, bool on_device);
void world_draw_sinks(struct world *w);
void world_draw_slopes(struct world *w);
int64_t world_below(struct world *w, int64_t bound);

/* Makes the tensors, the workspace, the cause and the stream. All memory holds
 * poison. */
void world_make(struct world *w);
void world_free(struct world *w);

/* Fills an input with normal data, rounded to the dtype on both sides. The gaps
 * between rows are filled, too. */
void world_fill_random(struct world *w, int n);
/* Writes the values that the host has, rounded, to both sides. */
void world_fill_values(struct world *w, int n);
void world_fill_poison(struct world *w, int n);

/* Returns the problem for the host's reference; docs_p keeps what its pointers
 * refer to. */
ulyx_attention_t world_host_problem(const struct world *w, ulyx_docs_t *docs_p);
/* Returns a workspace of the host's reference, which the caller frees, and
 * fills the structs of its call. */
void *world_host_workspace(const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, ulyx_attention_exec_t *exec_p,
    int64_t *bytes_p);

/* Checks each element by near(w, n, is, wanted), and that all other bytes are
 * poison. With checked = false, all bytes must be poison. */
typedef bool (*world_near)(
    const struct world *w, int n, double is, double wanted);
void world_compare(
    struct world *w, int n, bool checked, world_near near_enough);
/* Checks the cause: its status, and that its text has the word. */
void world_expect_cause(
    struct world *w, ulyx_status_t status, const char *word);
/* Checks that the text of the last error has the word. */
void world_expect_error(const char *word);

#endif
