/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory: one arena for all devices, addresses never used twice; and
 * shadow memory, eight bytes for each byte of global and shared memory: the
 * last write and the reads since it, as epochs (agent, clock, proxy).
 */
#ifndef EMULATE_MEMORY_MEMORY_H
#define EMULATE_MEMORY_MEMORY_H

#include "emulate/core/emu.h"

struct emu_cell {
    uint32_t write, read; /* epochs; read may name a set of them */
};

/* The accessor, and the clocks that it is ordered after. */
struct emu_accessor {
    const struct emu_clocks *clocks;
    uint32_t agent, clock;
    bool async;  /* through the asynchronous proxy */
    bool strong; /* ordered by itself: atomics, acquire, volatile, reductions */
    struct emu_block *block; /* for the space and peers; NULL = copy engine */
    int device;
    const char *what; /* for reports, "TMA load"; NULL = a plain access */
    uint64_t pc;
};

struct emu_allocation {
    unsigned char *base;
    size_t bytes;
    int device; /* -1 = host memory that all devices reach */
    bool freed;
    bool mapped;      /* of physical memory, which has the cells */
    uint32_t granted; /* mapped: the devices that may access it */
    uint64_t id;      /* never used twice */
    struct emu_cell *cells;
    uint8_t *writes; /* while tracked, for the whole allocation */
    size_t track_offset, track_bytes;
};

int emu_memory_open(void);
void emu_memory_close(void);
/* NULL without memory. Fresh memory holds 0xff bytes. */
void *emu_memory_allocate(size_t bytes, int device);
int emu_memory_release(void *base);
/* The live allocation that holds the address, or NULL. */
struct emu_allocation *emu_memory_find(const void *address);
bool emu_memory_in_arena(const void *address);

/* Virtual memory: reserves addresses without memory; maps a memfd's bytes
 * there, with the cells of its creator, for no device until access is granted;
 * unmaps them. */
void *emu_memory_reserve(size_t bytes);
struct emu_allocation *emu_memory_map(
    void *base, size_t bytes, int device, int fd, struct emu_cell *cells);
void emu_memory_unmap(struct emu_allocation *allocation);
/* Pages of the host at an address of the arena as well; and away again: the
 * pages stay. Nothing else writes them while they are brought there. */
struct emu_allocation *emu_memory_alias(void *host, size_t bytes);
void emu_memory_unalias(struct emu_allocation *allocation);

/* Checks bounds and races of an access and notes it. False (after a fatal
 * fault) when the bytes must not be touched. */
bool emu_memory_access(const struct emu_accessor *who, const void *address,
    size_t bytes, bool write);
/* The accessor of the running fibre. */
struct emu_accessor emu_accessor_self(void);

/* A block's shared memory and its shadow. */
bool emu_shared_take(struct emu_block *block, size_t bytes);
void emu_shared_give(struct emu_block *block);
/* The byte at a 32-bit shared address of the block. */
unsigned char *emu_shared_at(struct emu_block *block, uint32_t address);
uint32_t emu_shared_address(struct emu_block *block, const void *p);
bool emu_shared_holds(struct emu_block *block, const void *p);

/* memory/shadow.c */
void emu_shadow_read(const struct emu_accessor *who, struct emu_cell *cells,
    const void *address, size_t bytes, bool shared);
void emu_shadow_write(const struct emu_accessor *who, struct emu_cell *cells,
    const void *address, size_t bytes, bool shared);
void emu_shadow_reset(void);

#endif
