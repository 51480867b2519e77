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
    /* epochs; `read` may be the number of a set of epochs */
    uint32_t write, read;
};

/* Who makes an access, and the clocks that the accessor is ordered after. */
struct emu_accessor {
    const struct emu_clocks *clocks;
    uint32_t agent, clock;
    bool async; /* whether the access goes through the asynchronous proxy */
    /* whether the access is ordered by itself: atomics, acquire, volatile,
     * reductions */
    bool strong;
    /* whose shared memory and peers it reaches; NULL = copy engine */
    struct emu_block *block;
    int device;
    /* for reports, for example "TMA load"; NULL = a plain access */
    const char *what;
    uint64_t pc;
};

struct emu_allocation {
    unsigned char *base;
    size_t bytes;
    int device; /* -1 = host memory that all devices reach */
    bool freed;
    /* whether this maps physical memory, which owns the cells */
    bool mapped;
    uint32_t granted; /* bits of the devices that may access mapped memory */
    uint64_t id;      /* never used twice */
    struct emu_cell *cells;
    /* counts of writes for the whole allocation, while tracked */
    uint8_t *writes;
    size_t track_offset, track_bytes;
};

int emu_memory_open(void);
void emu_memory_close(void);
/* Returns NULL without memory. New memory holds 0xff bytes. */
void *emu_memory_allocate(size_t bytes, int device);
int emu_memory_release(void *base);
/* Returns the live allocation that contains the address, or NULL. */
struct emu_allocation *emu_memory_find(const void *address);
bool emu_memory_in_arena(const void *address);

/* Virtual memory. reserve takes addresses without memory. map puts the bytes of
 * a memfd there, with the cells of its creator; no device may access them until
 * access is granted. unmap removes the mapping. */
void *emu_memory_reserve(size_t bytes);
struct emu_allocation *emu_memory_map(
    void *base, size_t bytes, int device, int fd, struct emu_cell *cells);
void emu_memory_unmap(struct emu_allocation *allocation);
/* alias makes pages of the host accessible at an address of the arena as well;
 * unalias undoes this, and the pages stay. The caller ensures that no other
 * thread writes the pages during alias. */
struct emu_allocation *emu_memory_alias(void *host, size_t bytes);
void emu_memory_unalias(struct emu_allocation *allocation);

/* Checks an access for bounds and races, and records it. Returns false, after a
 * fatal fault, when the bytes must not be touched. */
bool emu_memory_access(const struct emu_accessor *who, const void *address,
    size_t bytes, bool write);
/* Returns the accessor of the running fibre. */
struct emu_accessor emu_accessor_self(void);

/* The shared memory of a block and its shadow. */
bool emu_shared_take(struct emu_block *block, size_t bytes);
void emu_shared_give(struct emu_block *block);
/* Returns the byte at a 32-bit shared address of the block. */
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
