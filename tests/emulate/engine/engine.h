/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the engines: asynchronous copies through memory, and completion
 * on mbarriers.
 *
 * An operation takes a copy of its issuer's clocks when issued and acts later,
 * in steps: it reads, it writes, it completes. Its accesses have an agent of
 * their own, which whoever waits for it gets ordered after.
 */
#ifndef EMULATE_ENGINE_ENGINE_H
#define EMULATE_ENGINE_ENGINE_H

#include "emulate/memory/memory.h"

/* Counts bytes down; this may complete the phase. `agent` and `clock` are those
 * of the write. */
void emu_mbarrier_complete_tx(struct emu_block *block, uint32_t bar,
    uint32_t bytes, uint32_t agent, uint32_t clock);
/* Makes an arrival by an engine, ordered after this clock of the agent. */
void emu_mbarrier_engine_arrive(
    struct emu_block *block, uint32_t bar, uint32_t agent, uint32_t clock);
/* Checks a barrier that the running fibre hands to an engine. It must be
 * initialised and, for engines of the asynchronous proxy, visible to that
 * proxy. */
void emu_mbarrier_check_engine(uint32_t bar, bool async_proxy);

/* Returns a copy of the issuer's clocks, and starts a new interval of the
 * issuer: what it does next is not ordered before the operation. */
struct emu_clocks *emu_issue_clocks(void);

/* Fills a destination with NaN (0xff bytes), which it holds until it is
 * written. Not memset, because the calling fibre is instrumented. */
void emu_poison(void *p, size_t bytes);

/* Reports a fault for an address or size that an engine does not take. */
void emu_check_multiple(
    const char *what, const char *field, uint64_t value, uint64_t multiple);

float emu_bf16_to_float(uint16_t v);

/* emu_bulk_enter adds an operation to the running thread's open bulk group.
 * emu_bulk_read_done and emu_bulk_write_done report its read and its write, and
 * wake the threads that wait for them. */
struct emu_bulk_ticket {
    struct emu_bulk *bulk;
    uint32_t group, read_agent, read_clock, write_agent, write_clock;
};
struct emu_bulk_ticket emu_bulk_enter(void);
void emu_bulk_read_done(const struct emu_bulk_ticket *ticket);
void emu_bulk_write_done(const struct emu_bulk_ticket *ticket);

/* The layout of a tensor map, which the stand-in encoder writes. */
enum { EMU_MAP_MAGIC = 0x756d6170, EMU_MAP_RANK = 5 };
struct emu_map {
    uint32_t magic, element_bytes, rank, swizzle_bytes;
    uint64_t base, extents[EMU_MAP_RANK], strides[EMU_MAP_RANK - 1];
    uint32_t box[EMU_MAP_RANK];
};
_Static_assert(sizeof(struct emu_map) <= 128, "fits a CUtensorMap");

/* The swizzle exchanges 16-byte pieces within rows of 32, 64 or 128 bytes, by
 * the address bits from bit 7 up. 0 = no swizzle. */
static inline uint32_t
emu_swizzle(uint32_t address, uint32_t swizzle_bytes)
{
    uint32_t mask = swizzle_bytes ? swizzle_bytes / 16 - 1 : 0;
    return address ^ ((address >> 7 & mask) << 4);
}

#endif
