/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of probe_test.c. Pointers that a host word is named by are addresses
 * of the device. Launches return a cudaError_t.
 */
#ifndef TESTS_EMULATE_CARD_PROBE_KERNELS_H
#define TESTS_EMULATE_CARD_PROBE_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds 1 to *running, then waits until *stop is not 0, at most ns. */
int probe_spin_launch(
    uint32_t *running, const uint64_t *stop, uint64_t ns, void *stream);
/* Does nothing; loaded by prepare. */
int probe_nothing_launch(void *stream);
/* `count` loads of *word, each after the last one; *ns_p: what all took. */
int probe_loads_launch(
    const uint64_t *word, int32_t count, uint64_t *ns_p, void *stream);
/* `count` times: stores *own, then *word, the second a release where release is
 * not 0; *ns_p: what all took. */
int probe_stores_launch(uint64_t *own, uint64_t *word, int32_t count,
    int32_t release, uint64_t *ns_p, void *stream);
/* Loads all of them on the current device. */
int probe_prepare(void);

#ifdef __cplusplus
}
#endif
#endif
