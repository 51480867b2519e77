/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of ULI_TR_MAP_DEVICE on nvlink.
 */
#include "transport/map_device_conformance.h"

const struct uli_tr_ops *const map_device_subject = &uli_tr_nvlink_ops;

ULI_TEST_MAIN("NvlinkMap", map_device_tests)
