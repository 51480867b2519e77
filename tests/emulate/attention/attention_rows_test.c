/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the device table, apart from their kernels, on the emulator:
 * which kernels take a call, how many blocks they use, and calls that fail.
 * kernelcheck tests the results.
 */
#include "support/test.h"
#include <string.h>
#include "attention/cuda/device_call.h"
#include "attention/kernels/kernels.h"
#include "base/status.h"
#include "cuda_runtime.h"
#include "emulate.h"
#include "sm90_case.h"

enum { HEADS = 2, ROWS = 300, DIM = 64, ROW_BYTES = HEADS * DIM * 2, MOST = 9 };

/* A call whose q, k, v and out are [1][ROWS][HEADS][DIM] in device memory. */
struct fixture {
    struct uli_attn_call call;
    const struct uli_attn_kernel *row;
    ulyx_attention_piece_t pieces[ULI_ATTN_TENSORS][MOST];
    unsigned char *memory[ULI_ATTN_TENSORS];
    /* the cause, the poison, then the flags of q, k, v and out */
    uint64_t *words;
};
enum { CAUSE, POISON, FLAGS, OUT_FLAGS = FLAGS + 3 * MOST, WORDS = 64 };

static void *
memory_allocate(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    memset(p, 0, bytes);
    return p;
}

static void
fixture_lay(struct fixture *f, enum uli_attn_tensor name)
{
    struct uli_attn_view *view = &f->call.views[name];
    bool lse = name == ULI_ATTN_LSE;
    int64_t size = lse ? 4 : 2, columns = lse ? 1 : DIM;
    f->memory[name] = memory_allocate(ROWS * (size_t)ROW_BYTES + 64);
    *view = (struct uli_attn_view){.name = "tensor",
        .base = f->memory[name],
        .head_stride = columns * size,
        .row_stride = HEADS * columns * size,
        .batch_stride = ROWS * HEADS * columns * size,
        .dtype = lse ? ULYX_DTYPE_F32 : ULYX_DTYPE_BF16,
        .element_bytes = size,
        .row_bytes = columns * size,
        .rows = ROWS,
        .heads = HEADS,
        .columns = columns,
        .batch = 1,
        .packed_rows = -1,
        .given = true,
        .output = name >= ULI_ATTN_OUT};
}

static void
open_fixture(struct fixture *f, const struct uli_attn_kernel *row)
{
    memset(f, 0, sizeof(*f));
    f->row = row;
    f->call.problem = (struct uli_attn_problem){.dtype = ULYX_DTYPE_BF16,
        .stat_dtype = ULYX_DTYPE_F32,
        .param_dtype = ULYX_DTYPE_F32,
        .batch = 1,
        .len_q = ROWS,
        .len_k = ROWS,
        .heads_q = HEADS,
        .heads_kv = HEADS,
        .dim_qk = DIM,
        .dim_v = DIM,
        .scale = 0.125,
        .left = ULYX_UNBOUNDED,
        .right = 0,
        .bottom_right = true,
        .heads_global = HEADS,
        .memory = ULYX_MEMORY_CUDA,
        .doc_count = 1,
        .q_rows = ROWS};
    for (int t = ULI_ATTN_Q; t <= ULI_ATTN_LSE; t++)
        fixture_lay(f, (enum uli_attn_tensor)t);
    f->words = memory_allocate(8 * WORDS);
    f->call.cause = f->words + CAUSE;
    f->call.poison = f->words + POISON;
    f->call.timeout_s = 0.5;
    f->call.workspace_bytes =
        row->workspace(&f->call.problem, ULYX_ATTENTION_PASS_FORWARD, 1);
    assert_true(f->call.workspace_bytes > 0);
    f->call.workspace = memory_allocate((size_t)f->call.workspace_bytes);
    assert_int_equal(
        cudaStreamCreate((cudaStream_t *)&f->call.stream), cudaSuccess);
}

/* Cuts a tensor into pieces. With `flags`, each piece has a flag; the call
 * waits for the flags of inputs. */
static void
fixture_cut(struct fixture *f, enum uli_attn_tensor name, int count, bool flags)
{
    struct uli_attn_view *view = &f->call.views[name];
    for (int n = 0; n < count; n++) {
        int64_t begin = ROWS * n / count;
        f->pieces[name][n] = (ulyx_attention_piece_t){.row_begin = begin,
            .rows = ROWS * (n + 1) / count - begin,
            .base = view->base + begin * view->row_stride,
            .flag = flags ? f->words + FLAGS + name * MOST + n : NULL,
            .flag_value = 3};
    }
    view->pieces = f->pieces[name];
    view->piece_count = count;
    view->piece_size = sizeof(f->pieces[name][0]);
}

static void
fixture_forward(struct fixture *f)
{
    f->row->forward(&f->call);
    assert_int_equal(atomic_load(&f->call.failed), 0);
}

static struct uli_gpu_attn_state
state_of(const struct fixture *f)
{
    struct uli_gpu_attn_state state;
    memcpy(&state, f->call.workspace, sizeof(state));
    return state;
}

static const struct uli_attn_kernel *const rows[] = {
    &uli_attn_sm90_kernel, &uli_attn_cuda_kernel};

static void
blocks_leave_room_for_the_kernel_that_sets_flags(void **state)
{
    (void)state;
    static const struct {
        int32_t sms, per_sm, max_sms, ranks, blocks;
        bool waits;
    } table[] = {
        {132, 1, 0, 1, 132, false},
        {132, 2, 0, 1, 264, false},
        {132, 2, 50, 1, 50, false},
        {132, 2, 200, 1, 264, false},
        {132, 1, 0, 1, 116, true}, /* an eighth of the device stays free */
        {132, 2, 0, 0, 116, true},
        /* four ranks on one device, each of which waits */
        {132, 1, 0, 4, 29, true},
        {132, 1, 20, 4, 20, true},
        {4, 1, 0, 2, 1, true},
        {1, 1, 0, 1, 1, true},
        {2, 1, 0, 8, 1, true},
    };
    for (size_t n = 0; n < sizeof(table) / sizeof(table[0]); n++)
        assert_int_equal(uli_gpu_attn_blocks(table[n].sms, table[n].per_sm,
                             table[n].max_sms, table[n].waits, table[n].ranks),
            table[n].blocks);
}

static void
no_more_blocks_than_max_sms(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++)
        for (int32_t max_sms = 0; max_sms < 4; max_sms++) {
            const struct emu_config config = {.sm_count = 3};
            struct fixture f;
            assert_int_equal(emu_open(&config), 0);
            open_fixture(&f, rows[r]);
            f.call.max_sms = max_sms;
            fixture_forward(&f);
            assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
            uint64_t blocks = state_of(&f).blocks;
            if (max_sms == 0 || max_sms >= 3)
                assert_true(blocks >= 3);
            else
                assert_int_equal(blocks, max_sms);
            assert_int_equal(emu_fault_count(), 0);
            emu_close();
        }
}

/* Each case has a tensor that TMA cannot read, and the reason that the call
 * records. */
static void
tensors_that_tma_cannot_read_go_to_the_portable_kernels(void **state)
{
    (void)state;
    for (int n = 0; n < 6; n++) {
        const struct emu_config config = {.sm_count = 2};
        static const char *const reasons[6] = {NULL, "multiples of 16 bytes",
            "a stride that is 0", "rows of out", "more than 8 pieces", NULL};
        struct fixture f;
        assert_int_equal(emu_open(&config), 0);
        open_fixture(&f, &uli_attn_sm90_kernel);
        if (n == 1)
            f.call.views[ULI_ATTN_Q].base += 8;
        if (n == 2)
            f.call.views[ULI_ATTN_K].head_stride = 0;
        if (n == 3)
            f.call.views[ULI_ATTN_OUT].base += 8;
        if (n >= 4)
            fixture_cut(&f, ULI_ATTN_V, 9, false);
        if (n == 4) /* the pieces are no longer one after another */
            f.pieces[ULI_ATTN_V][5].base = f.memory[ULI_ATTN_V];
        fixture_forward(&f);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        assert_int_equal(emu_fault_count(), 0);
        if (reasons[n])
            assert_non_null(strstr(f.call.why_portable, reasons[n]));
        else
            assert_null(f.call.why_portable);
        emu_close();
    }
}

static void
every_refusal_has_a_reason(void **state)
{
    (void)state;
    struct uli_attn_problem p = {
        .dtype = ULYX_DTYPE_F32, .dim_qk = 64, .dim_v = 64};
    assert_string_equal(
        uli_attn_sm90_kernel.refuses(&p), "it takes bf16 and fp16");
    p.dtype = ULYX_DTYPE_F16;
    assert_null(uli_attn_sm90_kernel.refuses(&p));
    p.dim_v = 256;
    assert_null(uli_attn_sm90_kernel.refuses(&p));
    p.dim_v = 264;
    p.memory = ULYX_MEMORY_CUDA;
    assert_string_equal(
        uli_attn_sm90_kernel.refuses(&p), "its head dimensions");
    char text[64];
    uli_attn_kernel_passed_over(&uli_attn_cuda_kernel, &p,
        ULYX_ATTENTION_PASS_FORWARD, text, sizeof(text));
    assert_string_equal(text, "; not sm90: its head dimensions");
    uli_attn_kernel_passed_over(
        &uli_attn_cuda_kernel, &p, ULYX_ATTENTION_PASS_FORWARD, text, 12);
    assert_string_equal(text, "; not sm90:");
    uli_attn_kernel_passed_over(&uli_attn_sm90_kernel, &p,
        ULYX_ATTENTION_PASS_FORWARD, text, sizeof(text));
    assert_string_equal(text, "");
}

/* The alignment covers the row stride of a packed tensor, even where each head
 * has one row. */
static void
alignment_is_that_of_all_rows(void **state)
{
    (void)state;
    struct uli_attn_call call = {.timeout_s = 1,
        .problem = {.dtype = ULYX_DTYPE_BF16,
            .dim_qk = DIM,
            .dim_v = DIM,
            .heads_q = 4,
            .heads_kv = 4,
            .len_k = 1}};
    struct uli_gpu_attn_args args;
    struct uli_attn_view view = {.base = (unsigned char *)NULL + 4096,
        .row_stride = 136,
        .rows = 1,
        .heads = 4,
        .batch = 2,
        .packed_rows = 8,
        .given = true};
    call.views[ULI_ATTN_Q] = view;
    view.packed_rows = 1;
    call.views[ULI_ATTN_K] = view;
    view.packed_rows = -1;
    call.views[ULI_ATTN_V] = view;
    view.head_stride = 4;
    call.views[ULI_ATTN_OUT] = view;
    assert_int_equal(uli_gpu_attn_call_describe(&call, &args), ULYX_SUCCESS);
    assert_int_equal(args.q.align, 8);
    assert_int_equal(args.k.align, 16);
    assert_int_equal(args.v.align, 16);
    assert_int_equal(args.out.align, 4);
    assert_int_equal(args.lse.align, 16); /* not given, so the largest */
}

/* The build has no code for this device. */
static void
missing_code_for_the_device_is_reported(void **state)
{
    const int errors[] = {209, 222};
    (void)state;
    for (int n = 0; n < 2; n++) {
        struct uli_attn_call call = {.timeout_s = 1};
        uli_gpu_attn_launch_failed(&call, "sm90 128", errors[n]);
        assert_int_equal(atomic_load(&call.failed), ULYX_ERR_UNSUPPORTED);
        assert_non_null(strstr(ulyx_last_error(), "no code for the device"));
    }
}

/* One piece of one tensor never arrives. The call ends at its deadline, names
 * the piece, and sets no flag of an output. */
static void
flag_that_never_comes_is_named(void **state)
{
    (void)state;
    for (int n = 0; n < 6; n++) {
        const struct emu_config config = {.sm_count = 4};
        const enum uli_attn_tensor name = (enum uli_attn_tensor)(n % 3);
        struct fixture f;
        assert_int_equal(emu_open(&config), 0);
        open_fixture(&f, rows[n / 3]);
        for (int t = ULI_ATTN_Q; t <= ULI_ATTN_V; t++)
            fixture_cut(&f, (enum uli_attn_tensor)t, 3, true);
        fixture_cut(&f, ULI_ATTN_OUT, 2, true);
        for (int w = FLAGS; w < OUT_FLAGS; w++)
            f.words[w] = 3;
        f.words[FLAGS + name * MOST + 1] = 2;
        fixture_forward(&f);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        uint64_t cause = ULI_GPU_ATTN_CAUSE(
            -ULYX_ERR_TIMEOUT, ULI_GPU_ATTN_FLAG_Q + name, 1);
        assert_int_equal(state_of(&f).failed, cause);
        assert_int_equal(f.words[CAUSE], cause);
        assert_int_equal(uli_gpu_attn_error(cause), ULYX_ERR_TIMEOUT);
        assert_non_null(strstr(ulyx_last_error(), "piece 1 of"));
        assert_int_equal(f.words[OUT_FLAGS], 0);
        assert_int_equal(f.words[OUT_FLAGS + 1], 0);
        assert_int_equal(emu_fault_count(), 0);
        emu_close();
    }
}

/* The poison of a failed communicator ends a wait long before the deadline. */
static void
poison_ends_the_wait(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        const struct emu_config config = {.sm_count = 4};
        struct fixture f;
        assert_int_equal(emu_open(&config), 0);
        open_fixture(&f, rows[r]);
        fixture_cut(&f, ULI_ATTN_K, 3, true);
        fixture_cut(&f, ULI_ATTN_OUT, 2, true);
        f.call.timeout_s = 3600;
        f.words[POISON] = 1;
        fixture_forward(&f);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        assert_true(emu_clock_ns() < UINT64_C(3600000000000));
        assert_int_equal(state_of(&f).failed, 0);
        assert_int_equal(f.words[OUT_FLAGS], 0);
        assert_int_equal(emu_fault_count(), 0);
        emu_close();
    }
}

/* Two ranks share one device, and each waits for all its pieces. The kernel
 * that sets the flags is launched last and needs a whole multiprocessor. Here
 * its shared memory is the reason, because the emulator does not model
 * registers. */
static void
waiting_ranks_leave_room_for_the_kernel_that_sets_flags(void **state)
{
    (void)state;
    for (int n = 0; n < 6; n++) {
        const struct emu_config config = {
            .sm_count = 4, .seed = (uint64_t)n + 1};
        struct fixture f[2];
        cudaStream_t stream;
        assert_int_equal(emu_open(&config), 0);
        for (int r = 0; r < 2; r++) {
            open_fixture(&f[r], rows[n / 3]);
            f[r].call.device_ranks = 2;
            for (int t = ULI_ATTN_Q; t <= ULI_ATTN_V; t++)
                fixture_cut(&f[r], (enum uli_attn_tensor)t, 3, true);
            fixture_cut(&f[r], ULI_ATTN_OUT, 2, true);
            fixture_forward(&f[r]);
        }
        assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
        /* A small block is launched first. It sleeps until the other kernels
         * are waiting. */
        uint64_t *unused = memory_allocate(8 * 1000);
        const struct sm90_flags none = {{unused, unused, unused}};
        assert_int_equal(sm90_flags_set(&none, 1000, 3, 0, stream), 0);
        for (int r = 0; r < 2; r++) {
            const struct sm90_flags flags = {
                {f[r].words + FLAGS + ULI_ATTN_V * MOST,
                    f[r].words + FLAGS + ULI_ATTN_Q * MOST,
                    f[r].words + FLAGS + ULI_ATTN_K * MOST}};
            assert_int_equal(
                sm90_flags_set(&flags, 3, 3, 220 << 10, stream), 0);
        }
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(state_of(&f[r]).failed, 0);
            assert_int_equal(f[r].words[OUT_FLAGS], 3);
            assert_int_equal(f[r].words[OUT_FLAGS + 1], 3);
        }
        assert_int_equal(emu_fault_count(), 0);
        emu_close();
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(blocks_leave_room_for_the_kernel_that_sets_flags),
    cmocka_unit_test(no_more_blocks_than_max_sms),
    cmocka_unit_test(tensors_that_tma_cannot_read_go_to_the_portable_kernels),
    cmocka_unit_test(every_refusal_has_a_reason),
    cmocka_unit_test(alignment_is_that_of_all_rows),
    cmocka_unit_test(missing_code_for_the_device_is_reported),
    cmocka_unit_test(flag_that_never_comes_is_named),
    cmocka_unit_test(poison_ends_the_wait),
    cmocka_unit_test(waiting_ranks_leave_room_for_the_kernel_that_sets_flags),
};

ULI_TEST_MAIN("EmulateAttentionRows", tests)
