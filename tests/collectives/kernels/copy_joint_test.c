/* SPDX-License-Identifier: Apache-2.0
 *
 * Several boxes in one pass, for up to 40 peers with uneven heads, on every
 * kernel, against the byte-by-byte oracle of each box alone.
 */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include "collectives/kernels/copy.h"
#include "collectives/kernels/copy_cases.h"
#include "support/buffers.h"

/* Peers with uneven heads out of one source [items][rows][heads][run], each
 * into a destination of its own, heads outside or inside the rows. */
struct peers {
    struct uli_box boxes[40];
    struct test_buffer dst[40];
    unsigned char *expected[40];
    void *to[40];
    const void *from[40];
    int32_t count;
};

static int64_t
draw_peers(struct peers *peers, int64_t *rows)
{
    int64_t items = test_random_in(&case_rng, 1, 3), heads = 0;
    int64_t run = test_random_in(&case_rng, 0, 1)
                      ? 64 * test_random_in(&case_rng, 1, 4)
                      : test_random_in(&case_rng, 1, 300);
    bool heads_outside = test_random_in(&case_rng, 0, 1);
    *rows = test_random_in(&case_rng, 1, 150);
    peers->count = (int32_t)test_random_in(&case_rng, 1, 40);
    int64_t h[40];
    for (int32_t n = 0; n < peers->count; n++)
        heads += h[n] = test_random_in(&case_rng, 1, 3);
    int64_t row = heads * run, before = 0;
    for (int32_t n = 0; n < peers->count; n++) {
        struct uli_box *box = &peers->boxes[n];
        *box = (struct uli_box){
            .extent = {items, heads_outside ? h[n] : 1, *rows},
            .run_bytes = heads_outside ? run : h[n] * run,
            .dst_stride = {h[n] * *rows * run, *rows * run,
                heads_outside ? run : h[n] * run},
            .src_stride = {*rows * row, run, row},
            .src_offset = before,
        };
        before += h[n] * run;
    }
    *rows *= items;
    return row * *rows;
}

static void
run_peers(struct peers *peers, int64_t rows, const unsigned char *src)
{
    for (int32_t n = 0; n < peers->count; n++) {
        size_t bytes = (size_t)uli_box_bytes(&peers->boxes[n]);
        test_buffer_init(
            &peers->dst[n], bytes, (size_t)test_random_in(&case_rng, 0, 63));
        peers->to[n] = peers->dst[n].data;
        peers->from[n] = src;
        peers->expected[n] = malloc(bytes);
        assert_non_null(peers->expected[n]);
        case_oracle(&peers->boxes[n], peers->expected[n], src);
    }
    bool stream = test_random_in(&case_rng, 0, 2);
    for (int64_t begin = 0; begin < rows;)
        uli_box_copy_joint(peers->boxes, peers->count, case_cut(&begin, rows),
            peers->to, peers->from, stream);
    for (int32_t n = 0; n < peers->count; n++) {
        assert_memory_equal(
            peers->dst[n].data, peers->expected[n], peers->dst[n].bytes);
        assert_true(test_buffer_guards_ok(&peers->dst[n]));
        test_buffer_free(&peers->dst[n]);
        free(peers->expected[n]);
    }
}

static void
check_joint(void)
{
    for (int64_t draw = test_draws(40); draw > 0; draw--) {
        struct peers peers;
        struct test_buffer src;
        int64_t rows, bytes = draw_peers(&peers, &rows);
        test_buffer_init(
            &src, (size_t)bytes, (size_t)test_random_in(&case_rng, 0, 63));
        for (int64_t i = 0; i < bytes; i++)
            src.data[i] = (unsigned char)(test_random_next(&case_rng) >> 24);
        run_peers(&peers, rows, src.data);
        assert_true(test_buffer_guards_ok(&src));
        test_buffer_free(&src);
    }
}

static void
box_copy_joint_equals_oracle_for_every_peer(void **state)
{
    (void)state;
    case_rng.state = test_seed(6);
    case_each_kernel(check_joint);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(box_copy_joint_equals_oracle_for_every_peer),
};

ULI_TEST_MAIN("CopyJoint", tests)
