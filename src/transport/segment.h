/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments: host memory that can be handed to other processes, whichever
 * transport maps it there (transport.h, MAP).
 */
#ifndef ULI_TRANSPORT_SEGMENT_H
#define ULI_TRANSPORT_SEGMENT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include "ulyx/types.h"

/* The seals of every segment's descriptor: no process can shrink the segment
 * while a peer has it mapped, grow it, or remove the seals. */
#define ULI_SEGMENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Destroyed, or never made: fd -1, address NULL. */
struct uli_segment {
    int fd;
    void *address;
    int64_t bytes; /* rounded up to pages */
};

/* A memory file of 0 bytes, which can be sealed but not executed; -1 with
 * errno: none.
 */
int uli_segment_file(const char *name);
/* Zeroed memory, mapped here. shared: a sealed memfd, reserved in full, that
 * other processes can map; else anonymous memory of this process (fd -1).
 * Errors: INVALID_ARGUMENT, NO_MEMORY (with needed and available bytes),
 * SYSTEM; then *segment_p is untouched. Any thread. */
ulyx_status_t uli_segment_create(
    int64_t bytes, bool shared, bool hugepages, struct uli_segment *segment_p);
/* Checks a peer's descriptor: it is a memfd with the seals of segments and at
 * least `bytes` long. A transport that maps by the descriptor calls it first,
 * because a segment that could shrink would turn a later load of this process
 * into SIGBUS. Errors: SYSTEM. Any thread. */
ulyx_status_t uli_segment_check(int fd, int64_t bytes);
/* May be called twice. Mappings of peers stay. */
void uli_segment_destroy(struct uli_segment *segment);

#endif
