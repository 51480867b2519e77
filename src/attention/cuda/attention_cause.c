/* SPDX-License-Identifier: Apache-2.0
 *
 * Causes of calls on device memory, in words.
 */
#include <inttypes.h>
#include "attention/cuda/attention_gpu.h"
#include "base/status.h"

/* From ULI_GPU_ATTN_FLAG_Q on. */
static const char *const inputs[] = {
    "q", "k", "v", "out", "lse", "dout", "delta", "dlse"};

ulyx_status_t
uli_gpu_attn_error(uint64_t cause)
{
    ulyx_status_t status = -(ulyx_status_t)(cause & 255);
    uint64_t what = cause >> 8 & 255, index = cause >> 16;
    bool keys = what == ULI_GPU_ATTN_DOCS_K_ORDER ||
                what == ULI_GPU_ATTN_DOCS_K_CROSSES;
    const char *docs = keys ? "docs_k" : "docs_q";
    if (!cause)
        return ULYX_SUCCESS;
    switch (what) {
    case ULI_GPU_ATTN_DOCS_Q_ORDER:
    case ULI_GPU_ATTN_DOCS_K_ORDER:
        return uli_error(status,
            "%s: document %" PRIu64 " has negative rows, begins before the one "
            "before it ends, or ends past the rows",
            docs, index);
    case ULI_GPU_ATTN_DOCS_Q_CROSSES:
    case ULI_GPU_ATTN_DOCS_K_CROSSES:
        return uli_error(status,
            "%s: document %" PRIu64 " crosses a batch item", docs, index);
    case ULI_GPU_ATTN_FLAG_Q:
    case ULI_GPU_ATTN_FLAG_K:
    case ULI_GPU_ATTN_FLAG_V:
    case ULI_GPU_ATTN_FLAG_OUT:
    case ULI_GPU_ATTN_FLAG_LSE:
    case ULI_GPU_ATTN_FLAG_DOUT:
    case ULI_GPU_ATTN_FLAG_DELTA:
    case ULI_GPU_ATTN_FLAG_DLSE:
        return uli_error(status,
            "attention: the flag of piece %" PRIu64 " of %s did not come",
            index, inputs[what - ULI_GPU_ATTN_FLAG_Q]);
    default:
        return uli_error(status, "attention: cause %" PRIx64, cause);
    }
}
