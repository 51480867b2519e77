/* SPDX-License-Identifier: Apache-2.0
 *
 * kernelcheck's table of kernels, with the real source of the GPU kernels on an
 * emulated device: the rows "sm90", "mma" (16 bits) and "plain" (fp32). The
 * calls that sm90 passes to the portable kernels are counted, and the count is
 * printed at the end. A call's tensors are copied to device memory of exactly
 * their extent, so that a byte read or written beside them is a fault. The
 * library's own row for device memory then translates and enqueues the call,
 * and outputs are copied back. All rows have the portable backward.
 *
 * Built with nvcc's kernels (card_kernelcheck) the same program runs on a card.
 *
 * This file defines the functions of src/attention/kernels/kernels.c, which is
 * therefore not linked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/cuda/attention_gpu.h"
#include "attention/cuda/device_call.h"
#include "attention/kernels/kernels.h"
#include "attention/kernels/tile.h"
#include "base/dtype.h"
#include "base/status.h"
#include "cuda_runtime.h"
#include "support/random.h"
#ifdef ULI_EMULATE
#include "emulate.h"
#endif

#define MIRRORS_MAX 64
#define PIECES_MAX  16

/* Bytes of the host and their copy on the device. For outputs, `before` keeps
 * what the host bytes were. */
struct mirror {
    unsigned char *host, *device, *allocation, *before;
    size_t bytes;
    bool output;
};

struct bridge {
    struct uli_attn_call call; /* the call, with device pointers */
    struct mirror mirrors[MIRRORS_MAX];
    int count;
    ulyx_attention_piece_t pieces[ULI_ATTN_TENSORS][PIECES_MAX];
    uint64_t *flags[ULI_ATTN_TENSORS]; /* lie on the device */
    cudaError_t error;
};

/* Counts the calls of row sm90, and those of them that went to the portable
 * kernels. */
static struct {
    int calls, portable;
    const char *why;
} hopper;

/* Returns the library's row that a row of this table stands for. */
static const struct uli_attn_kernel *
device_row(const struct uli_attn_call *call)
{
    return strcmp(call->kernel->name, "sm90") == 0 ? &uli_attn_sm90_kernel
                                                   : &uli_attn_cuda_kernel;
}

/* In backward every row stands for the portable one. */
static const struct uli_attn_kernel *
bridge_row(const struct uli_attn_call *call, ulyx_attention_pass_t pass)
{
    return pass == ULYX_ATTENTION_PASS_FORWARD ? device_row(call)
                                               : &uli_attn_cuda_kernel;
}

static void
print_sm90(void)
{
    printf("sm90: its own kernels took %d of %d calls",
        hopper.calls - hopper.portable, hopper.calls);
    printf(hopper.why ? "; last refused: %s\n" : "\n", hopper.why);
}

static void
count_sm90(const struct uli_attn_call *call)
{
    if (device_row(call) != &uli_attn_sm90_kernel)
        return;
    if (hopper.calls++ == 0)
        atexit(print_sm90);
    if (call->why_portable) {
        hopper.portable++;
        hopper.why = call->why_portable;
    }
}

/* Opens an emulated device, whose order of threads differs from call to call.
 * Every second backward with head dimensions up to 256 has the shared memory of
 * compute capability 8.9, and two of three have as many registers per thread as
 * ptxas gives; streaming tiles then have two slots instead of one. On a card,
 * selects the card's device, or ends the program where there is none. */
static cudaError_t
open_device(const struct uli_attn_call *call, ulyx_attention_pass_t pass)
{
#ifdef ULI_EMULATE
    static uint64_t seed;
    bool small = pass == ULYX_ATTENTION_PASS_BACKWARD &&
                 uli_max(call->problem.dim_qk, call->problem.dim_v) <= 256;
    seed = seed ? seed + 1 : test_seed(1);
    const struct emu_config config = {.seed = seed,
        .shared_bytes = small && seed % 2 ? 99 * 1024 : 0,
        .registers = seed % 3 ? 255 : 0};
    return emu_open(&config) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
#else
    (void)call;
    (void)pass;
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0)
        return cudaSuccess;
    printf("kernelcheck: skipped: no CUDA device\n");
    exit(77);
#endif
}

static bool
device_faulted(void)
{
#ifdef ULI_EMULATE
    return emu_fault_count() != 0;
#else
    return cudaGetLastError() != cudaSuccess;
#endif
}

static void
close_device(void)
{
#ifdef ULI_EMULATE
    emu_close();
#endif
}

static void
bridge_check(struct bridge *b, cudaError_t error)
{
    if (b->error == cudaSuccess)
        b->error = error;
}

/* Copies host bytes to device memory of their size. Returns the device address,
 * or NULL where there are no bytes or on an error. */
static unsigned char *
bridge_mirror(struct bridge *b, void *low, size_t bytes, bool output)
{
    struct mirror *m = &b->mirrors[b->count];
    /* the device address has the alignment of the host address */
    size_t lead = (uintptr_t)low % 64;
    if (bytes == 0 || b->count == MIRRORS_MAX)
        return NULL;
    *m = (struct mirror){.host = low, .bytes = bytes, .output = output};
    bridge_check(b, cudaMalloc((void **)&m->allocation, lead + bytes));
    if (b->error != cudaSuccess)
        return NULL;
    m->device = m->allocation + lead;
    b->count++;
    bridge_check(b, cudaMemcpy(m->device, low, bytes, cudaMemcpyHostToDevice));
    if (output)
        m->before = memcpy(malloc(bytes), low, bytes);
    return m->device;
}

/* Returns the number of bytes from base to the end of the last row, or 0 where
 * there are no elements. */
static size_t
view_extent(const struct uli_attn_view *view, int64_t rows,
    int64_t batch_stride, int64_t row_stride, int64_t head_stride)
{
    if (view->packed_rows >= 0)
        return view->packed_rows
                   ? (size_t)((view->packed_rows - 1) * view->row_stride +
                              view->row_bytes)
                   : 0;
    if (rows <= 0 || view->batch <= 0 || view->heads <= 0)
        return 0;
    return (size_t)((view->batch - 1) * batch_stride +
                    (view->heads - 1) * head_stride + (rows - 1) * row_stride +
                    view->row_bytes);
}

static void
mirror_pieces(struct bridge *b, enum uli_attn_tensor name)
{
    struct uli_attn_view *view = &b->call.views[name];
    uint64_t values[PIECES_MAX] = {0};
    size_t bytes = sizeof(uint64_t) * (size_t)view->piece_count;
    bridge_check(b, cudaMalloc((void **)&b->flags[name], sizeof(values)));
    for (int64_t n = 0; n < view->piece_count && n < PIECES_MAX; n++) {
        ulyx_attention_piece_t *p = &b->pieces[name][n];
        *p = *(const ulyx_attention_piece_t *)(const void
                *)((const unsigned char *)view->pieces + n * view->piece_size);
        bool own = p->batch_stride || p->row_stride || p->head_stride;
        size_t size = view_extent(view, p->rows,
            own ? p->batch_stride : view->batch_stride,
            own ? p->row_stride : view->row_stride,
            own ? p->head_stride : view->head_stride);
        if (p->flag && !view->output)
            values[n] = *p->flag;
        p->flag = p->flag ? b->flags[name] + n : NULL;
        p->base = bridge_mirror(b, p->base, size, view->output);
    }
    bridge_check(
        b, cudaMemcpy(b->flags[name], values, bytes, cudaMemcpyHostToDevice));
    view->pieces = b->pieces[name];
    view->piece_size = sizeof(b->pieces[name][0]);
}

static void
mirror_tensor(struct bridge *b, enum uli_attn_tensor name)
{
    struct uli_attn_view *view = &b->call.views[name];
    if (!view->given)
        return;
    if (view->pieces)
        mirror_pieces(b, name);
    else
        view->base = bridge_mirror(b, view->base,
            view_extent(view, view->rows, view->batch_stride, view->row_stride,
                view->head_stride),
            view->output);
}

static void
mirror_call(struct bridge *b, ulyx_attention_pass_t pass)
{
    struct uli_attn_problem *problem = &b->call.problem;
    size_t each = (size_t)uli_dtype_size(problem->param_dtype);
    size_t params = (size_t)problem->heads_global * each;
    for (int t = ULI_ATTN_Q; t < ULI_ATTN_TENSORS; t++)
        mirror_tensor(b, (enum uli_attn_tensor)t);
    if (problem->sinks)
        problem->sinks =
            bridge_mirror(b, (void *)problem->sinks, params, false);
    if (problem->slopes)
        problem->slopes =
            bridge_mirror(b, (void *)problem->slopes, params, false);
    if (b->call.max_logit)
        b->call.max_logit = bridge_mirror(
            b, b->call.max_logit, (size_t)problem->heads_q * 4, true);
    b->call.workspace_bytes =
        bridge_row(&b->call, pass)->workspace(problem, pass, 1);
    if (b->call.d_sink)
        b->call.d_sink = bridge_mirror(b, b->call.d_sink, params, true);
    bridge_check(b, cudaMalloc((void **)&b->call.workspace,
                        (size_t)b->call.workspace_bytes));
    bridge_check(b,
        cudaMemset(b->call.workspace, 0xFF, (size_t)b->call.workspace_bytes));
}

/* Checks that the flags of all output pieces are set. */
static void
check_flags(struct bridge *b, enum uli_attn_tensor name)
{
    const struct uli_attn_view *view = &b->call.views[name];
    uint64_t values[PIECES_MAX];
    if (!view->given || !view->pieces)
        return;
    bridge_check(b, cudaMemcpy(values, b->flags[name], sizeof(values),
                        cudaMemcpyDeviceToHost));
    for (int64_t n = 0; n < view->piece_count; n++)
        if (b->pieces[name][n].flag && values[n] != view->pieces[n].flag_value)
            b->error = cudaErrorUnknown;
}

/* Copies an output back. One output may lie between the rows of another, so
 * only the bytes that the device has changed are copied. */
static void
mirror_back(struct bridge *b, const struct mirror *m)
{
    unsigned char *after = malloc(m->bytes);
    bridge_check(
        b, cudaMemcpy(after, m->device, m->bytes, cudaMemcpyDeviceToHost));
    for (size_t n = 0; n < m->bytes; n++)
        if (after[n] != m->before[n])
            m->host[n] = after[n];
    free(after);
}

static ulyx_status_t
bridge_finish(struct bridge *b)
{
    struct uli_gpu_attn_state state;
    int32_t sms = 0, capability;
    bridge_check(b, cudaDeviceSynchronize());
    bridge_check(b, cudaMemcpy(&state, b->call.workspace, sizeof(state),
                        cudaMemcpyDeviceToHost));
    if (b->error == cudaSuccess && state.failed)
        return uli_gpu_attn_error(state.failed);
    check_flags(b, ULI_ATTN_OUT);
    check_flags(b, ULI_ATTN_LSE);
    bridge_check(b, (cudaError_t)uli_gpu_attn_device(&sms, &capability));
    if (b->call.max_sms > 0 && b->call.max_sms < sms &&
        state.blocks > (uint64_t)b->call.max_sms)
        b->error = cudaErrorUnknown;
    for (int n = 0; n < b->count; n++)
        if (b->mirrors[n].output)
            mirror_back(b, &b->mirrors[n]);
    if (device_faulted() || b->error != cudaSuccess)
        return uli_error(ULYX_ERR_INTERNAL, "device: error %d", b->error);
    return ULYX_SUCCESS;
}

static void
bridge_run(struct uli_attn_call *call, ulyx_attention_pass_t pass)
{
    struct bridge *b = calloc(1, sizeof(*b));
    memcpy(&b->call, call, sizeof(b->call));
    b->error = open_device(call, pass);
    b->call.max_sms = call->threads; /* any number of blocks is allowed */
    mirror_call(b, pass);
    if (b->error == cudaSuccess) {
        if (pass == ULYX_ATTENTION_PASS_FORWARD)
            device_row(call)->forward(&b->call);
        else
            bridge_row(call, pass)->backward(&b->call);
    }
    if (pass == ULYX_ATTENTION_PASS_FORWARD)
        count_sm90(&b->call);
    ulyx_status_t status = atomic_load(&b->call.failed);
    if (status == ULYX_SUCCESS)
        status = bridge_finish(b);
    if (status != ULYX_SUCCESS) {
        fprintf(stderr, "bridge: %s\n", ulyx_last_error());
        atomic_store(&call->failed, status);
    }
    for (int n = 0; n < b->count; n++) {
        cudaFree(b->mirrors[n].allocation);
        free(b->mirrors[n].before);
    }
    for (int t = 0; t < ULI_ATTN_TENSORS; t++)
        cudaFree(b->flags[t]);
    cudaFree(b->call.workspace);
    close_device();
    free(b);
}

static void
bridge_forward(struct uli_attn_call *call)
{
    bridge_run(call, ULYX_ATTENTION_PASS_FORWARD);
}

static void
bridge_backward(struct uli_attn_call *call)
{
    bridge_run(call, ULYX_ATTENTION_PASS_BACKWARD);
}

static bool
always_applies(void)
{
    return true;
}

/* "mma" and "plain" are separate rows so that --mutate has one dtype per kind
 * of kernel. */
static const char *
mma_refuses(const struct uli_attn_problem *problem)
{
    return problem->dtype == ULYX_DTYPE_F32
               ? "another row"
               : uli_attn_cuda_kernel.refuses(problem);
}

static const char *
plain_refuses(const struct uli_attn_problem *problem)
{
    return problem->dtype != ULYX_DTYPE_F32
               ? "another row"
               : uli_attn_cuda_kernel.refuses(problem);
}

static const char *
sm90_refuses(const struct uli_attn_problem *problem)
{
    return uli_attn_sm90_kernel.refuses(problem);
}

/* The bridge allocates the workspace itself, on the device. */
static int64_t
bridge_workspace(const struct uli_attn_problem *problem,
    ulyx_attention_pass_t pass, int threads)
{
    (void)problem;
    (void)pass;
    (void)threads;
    return 0;
}

#define ROW(id, text)                                                          \
    static const struct uli_attn_kernel id##_row = {                           \
        .name = #id,                                                           \
        .what = text,                                                          \
        .usable = always_applies,                                              \
        .refuses = id##_refuses,                                               \
        .workspace = bridge_workspace,                                         \
        .forward = bridge_forward,                                             \
        .backward = bridge_backward,                                           \
        .tile = &uli_attn_tile_portable,                                       \
    }
ROW(sm90, "the Hopper kernels on a device");
ROW(mma, "16-bit kernels on a device");
ROW(plain, "the fp32 kernel on a device");

static const struct uli_attn_kernel *const table[] = {
    &sm90_row, &mma_row, &plain_row, &uli_attn_reference_kernel};
#define ROWS (int)(sizeof(table) / sizeof(table[0]))

const struct uli_attn_kernel *
uli_attn_kernel_at(int n)
{
    return n >= 0 && n < ROWS ? table[n] : NULL;
}

ulyx_status_t
uli_attn_kernel_find(const char *name, const struct uli_attn_problem *problem,
    ulyx_attention_pass_t pass, const struct uli_attn_kernel **kernel_p)
{
    (void)pass;
    for (int n = 0; n < ROWS; n++) {
        const struct uli_attn_kernel *kernel = uli_attn_kernel_at(n);
        if (name && strcmp(name, kernel->name) != 0)
            continue;
        if (kernel->usable() && !kernel->refuses(problem)) {
            *kernel_p = kernel;
            return ULYX_SUCCESS;
        }
    }
    return uli_error(ULYX_ERR_UNSUPPORTED, "no kernel %s takes the problem",
        name ? name : "here");
}
