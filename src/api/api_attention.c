/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of attention.h. A call's structs, of any version, are copied
 * into structs of this version, translated into an internal call, and run as a
 * pass. Attention keeps no state, so it also works in a forked child.
 */
#include "ulyx/attention.h"

#include <inttypes.h>
#include <stdio.h>
#include "api/params.h"
#include "attention/attention.h"
#include "attention/cuda/attention_gpu.h"
#include "attention/kernels/kernels.h"
#include "attention/translate/translate.h"
#include "base/params/held.h"
#include "base/status.h"
#include "base/text.h"

/* Copies, in this version's size, of every struct that the call points to. */
struct own {
    ulyx_attention_t problem;
    ulyx_docs_t docs_q, docs_k;
    ulyx_attention_exec_t exec;
    ulyx_attention_tensor_t tensors[ULI_ATTN_TENSORS];
};

static ulyx_status_t
own_tensor(struct own *own, enum uli_attn_tensor tensor, const char *name,
    const ulyx_attention_tensor_t **given)
{
    ulyx_attention_tensor_t *copy = &own->tensors[tensor];
    if (!*given)
        return ULYX_SUCCESS;
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_ATTENTION_TENSOR], *given, copy, name));
    *given = copy;
    return ULYX_SUCCESS;
}

/* Copies and checks the problem and how to run it. */
static ulyx_status_t
attention_begin(const ulyx_attention_t *problem, ulyx_attention_pass_t pass,
    const ulyx_attention_exec_t *exec, bool tensors, struct own *own,
    struct uli_attn_call *call_p)
{
    ULI_CHECK_POINTER(problem);
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_ATTENTION], problem, &own->problem, NULL));
    ULI_TRY(uli_struct_take_or_default(
        &uli_structs[ULI_STRUCT_ATTENTION_EXEC], exec, &own->exec));
    ULI_TRY(uli_docs_take(&own->problem.docs_q, &own->docs_q, "docs_q"));
    ULI_TRY(uli_docs_take(&own->problem.docs_k, &own->docs_k, "docs_k"));
    return uli_attn_translate(&own->problem, pass, &own->exec, tensors, call_p);
}

static ulyx_status_t
call_finish(struct uli_attn_call *call, ulyx_attention_pass_t pass,
    const struct own *own, void *workspace, int64_t workspace_bytes,
    void *stream)
{
    if (stream && call->problem.memory == ULYX_MEMORY_HOST)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "attention: stream is given, and memory kind is HOST: streams are "
            "for CUDA memory");
    call->stream = stream;
    call->workspace = workspace;
    call->workspace_bytes = workspace_bytes;
    ULI_TRY(uli_attn_run_pass(call, pass));
    if (own->exec.scores_p)
        *own->exec.scores_p = atomic_load(&call->scores);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_attention_workspace(const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, const ulyx_attention_exec_t *exec,
    int64_t *bytes_p)
{
    struct own own = {0};
    struct uli_attn_call call = {0};
    int64_t bytes;
    ULI_CHECK_POINTER(bytes_p);
    ULI_TRY(attention_begin(problem, pass, exec, false, &own, &call));
    ULI_TRY(uli_attn_workspace(&call, pass, &bytes));
    *bytes_p = bytes;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_attention_forward(const ulyx_attention_t *problem,
    const ulyx_attention_forward_t *tensors, const ulyx_attention_exec_t *exec,
    void *workspace, int64_t workspace_bytes, void *stream)
{
    struct own own = {0};
    struct uli_attn_call call = {0};
    ulyx_attention_forward_t t;
    const ulyx_attention_pass_t pass = ULYX_ATTENTION_PASS_FORWARD;
    ULI_CHECK_POINTER(tensors);
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_ATTENTION_FORWARD], tensors, &t, NULL));
    ULI_TRY(attention_begin(problem, pass, exec, true, &own, &call));
    ULI_TRY(own_tensor(&own, ULI_ATTN_Q, "q", &t.q));
    ULI_TRY(own_tensor(&own, ULI_ATTN_K, "k", &t.k));
    ULI_TRY(own_tensor(&own, ULI_ATTN_V, "v", &t.v));
    ULI_TRY(own_tensor(&own, ULI_ATTN_OUT, "out", &t.out));
    ULI_TRY(own_tensor(&own, ULI_ATTN_LSE, "lse", &t.lse));
    ULI_TRY(uli_attn_translate_forward(&t, &call));
    return call_finish(&call, pass, &own, workspace, workspace_bytes, stream);
}

ulyx_status_t
ulyx_attention_backward(const ulyx_attention_t *problem,
    const ulyx_attention_backward_t *tensors, const ulyx_attention_exec_t *exec,
    void *workspace, int64_t workspace_bytes, void *stream)
{
    struct own own = {0};
    struct uli_attn_call call = {0};
    ulyx_attention_backward_t t;
    const ulyx_attention_pass_t pass = ULYX_ATTENTION_PASS_BACKWARD;
    ULI_CHECK_POINTER(tensors);
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_ATTENTION_BACKWARD], tensors, &t, NULL));
    ULI_TRY(attention_begin(problem, pass, exec, true, &own, &call));
    ULI_TRY(own_tensor(&own, ULI_ATTN_Q, "q", &t.q));
    ULI_TRY(own_tensor(&own, ULI_ATTN_K, "k", &t.k));
    ULI_TRY(own_tensor(&own, ULI_ATTN_V, "v", &t.v));
    ULI_TRY(own_tensor(&own, ULI_ATTN_OUT, "out", &t.out));
    ULI_TRY(own_tensor(&own, ULI_ATTN_LSE, "lse", &t.lse));
    ULI_TRY(own_tensor(&own, ULI_ATTN_DOUT, "dout", &t.dout));
    ULI_TRY(own_tensor(&own, ULI_ATTN_DELTA, "delta", &t.delta));
    ULI_TRY(own_tensor(&own, ULI_ATTN_DLSE, "dlse", &t.dlse));
    ULI_TRY(own_tensor(&own, ULI_ATTN_DQ, "dq", &t.dq));
    ULI_TRY(own_tensor(&own, ULI_ATTN_DK, "dk", &t.dk));
    ULI_TRY(own_tensor(&own, ULI_ATTN_DV, "dv", &t.dv));
    ULI_TRY(uli_attn_translate_backward(&t, &call));
    return call_finish(&call, pass, &own, workspace, workspace_bytes, stream);
}

ulyx_status_t
ulyx_attention_describe(const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, const ulyx_attention_exec_t *exec, char *text_p,
    size_t text_bytes)
{
    struct own own = {0};
    struct uli_attn_call call = {0};
    char passed_over[512];
    int64_t bytes;
    ULI_CHECK_POINTER(text_p);
    ULI_TRY(attention_begin(problem, pass, exec, false, &own, &call));
    ULI_TRY(uli_attn_workspace(&call, pass, &bytes));
    const char *name =
        pass == ULYX_ATTENTION_PASS_FORWARD ? "forward" : "backward";
    uli_attn_kernel_passed_over(call.kernel, &call.problem, pass, passed_over,
        own.exec.kernel ? 0 : sizeof(passed_over));
    const char *others = own.exec.kernel ? "" : passed_over;
    struct uli_text text = {text_p, text_bytes, 0};
    uli_text_add(&text, "attention %s: kernel %s (%s)", name, call.kernel->name,
        call.kernel->what);
    if (call.problem.memory == ULYX_MEMORY_HOST)
        uli_text_add(&text, ", at most %d thread%s", call.threads,
            uli_plural(call.threads));
    uli_text_add(&text, ", workspace %" PRId64 " bytes%s", bytes, others);
    uli_text_mark_cut(&text);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_attention_list_kernels(ulyx_memory_kind_t memory, const char **names_p,
    int32_t names_max, int32_t *count_p)
{
    const struct uli_attn_kernel *kernel;
    const struct uli_attn_kernel *(*row_of)(int n) =
        memory == ULYX_MEMORY_HOST ? uli_attn_kernel_at
                                   : uli_attn_device_kernel_at;
    int32_t count = 0;
    ULI_CHECK_POINTER(count_p);
    if (memory != ULYX_MEMORY_HOST && memory != ULYX_MEMORY_CUDA)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "memory is %d, expected HOST or CUDA", (int)memory);
    if (names_max < 0 || (names_max > 0 && !names_p))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            names_max < 0 ? "names_max is %d, expected 0 or more"
                          : "names_p is NULL, and names_max is %d",
            (int)names_max);
    for (int n = 0; (kernel = row_of(n)); n++) {
        if (!kernel->usable())
            continue;
        if (count < names_max)
            names_p[count] = kernel->name;
        count++;
    }
    *count_p = count;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_attention_status(uint64_t cause)
{
    return uli_gpu_attn_error(cause);
}
