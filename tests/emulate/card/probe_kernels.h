/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of probe_test.c. Pointers to words of host memory are the
 * addresses that the device uses. Launches return a cudaError_t.
 */
#ifndef TESTS_EMULATE_CARD_PROBE_KERNELS_H
#define TESTS_EMULATE_CARD_PROBE_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Launches a kernel that adds 1 to *running, then waits, at most ns, until
 * *stop is not 0. */
int probe_spin_launch(
    uint32_t *running, const uint64_t *stop, uint64_t ns, void *stream);
/* Launches a kernel that does nothing and that probe_prepare has loaded. */
int probe_nothing_launch(void *stream);
/* Launches `count` loads of *word, each of which depends on the one before.
 * *ns_p: the time of all. */
int probe_loads_launch(
    const uint64_t *word, int32_t count, uint64_t *ns_p, void *stream);
/* Launches `count` rounds, each of which stores *own, then *word; the second
 * store is a release where `release` is not 0. *ns_p: the time of all. */
int probe_stores_launch(uint64_t *own, uint64_t *word, int32_t count,
    int32_t release, uint64_t *ns_p, void *stream);
/* Loads all kernels on the current device. */
int probe_prepare(void);

#ifdef __cplusplus
}
#endif
#endif
