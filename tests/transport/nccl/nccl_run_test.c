/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of ULI_TR_BATCH on nccl, over the tests' library.
 */
#include "transport/batch_conformance.h"
#include "transport/nccl/nccl_scene.h"

const struct batch_scene batch_subject = {
    .transport = &uli_tr_nccl_ops,
    .open = nccl_scene_open,
    .close = nccl_scene_close,
    .begin = nccl_scene_begin,
    .end = nccl_scene_end,
    .alloc = nccl_scene_alloc,
    .copy = nccl_scene_copy,
    .stream = nccl_scene_stream,
    .settle = nccl_scene_settle,
};

ULI_TEST_MAIN("NcclRun", batch_tests)
