/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of ULI_TR_BATCH on staged, over emulated devices.
 */
#include "emulate/messages/device_scene.h"
#include "transport/batch_conformance.h"

const struct batch_scene batch_subject = {
    .transport = &uli_tr_staged_ops,
    .open = device_scene_open,
    .close = device_scene_close,
    .begin = device_scene_begin,
    .end = device_scene_end,
    .alloc = device_scene_alloc,
    .copy = device_scene_copy,
    .stream = device_scene_stream,
    .settle = device_scene_settle,
};

ULI_TEST_MAIN("EmulateStagedRun", batch_tests)
