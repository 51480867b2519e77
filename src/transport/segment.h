/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments: host memory that can be handed to other processes, whatever
 * transport maps it there (transport.h, MAP).
 */
#ifndef ULI_TRANSPORT_SEGMENT_H
#define ULI_TRANSPORT_SEGMENT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include "ulyx/types.h"

/* The seals of every segment's descriptor: nobody can shrink it under a peer
 * that has it mapped, grow it, or lift these rules. */
#define ULI_SEGMENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Destroyed, or never made: fd -1, address NULL. */
struct uli_segment {
    int fd;
    void *address;
    int64_t bytes; /* rounded up to pages */
};

/* A memory file of 0 bytes that can be sealed and not executed, or -1 (errno).
 */
int uli_segment_file(const char *name);
/* Zeroed memory, mapped here. shared: a sealed memfd reserved in full, that
 * other processes can map; else anonymous memory of this process (fd -1).
 * Errors: INVALID_ARGUMENT, NO_MEMORY (with needed and available bytes),
 * SYSTEM; *segment_p is untouched then. Any thread. */
ulyx_status_t uli_segment_create(
    int64_t bytes, bool shared, bool hugepages, struct uli_segment *segment_p);
/* Harmless twice. Peers' mappings stay theirs. */
void uli_segment_destroy(struct uli_segment *segment);

#endif
