/* SPDX-License-Identifier: Apache-2.0
 *
 * Shuffles, votes, election, register budgets, time, and a thread's own
 * indices.
 */
#include "emulate/core/emu.h"

struct emu_dim3
emu_thread_index(void)
{
    return emu.self->at;
}

struct emu_dim3
emu_block_index(void)
{
    return emu.self->block->at;
}

struct emu_dim3
emu_block_dim(void)
{
    return emu.self->block->launch->block;
}

struct emu_dim3
emu_grid_dim(void)
{
    return emu.self->block->launch->grid;
}

uint32_t
emu_lane(void)
{
    return emu.self->lane;
}

struct collective_lane {
    uint64_t in, out;
    uint32_t arg;
};

/* operands: how, width. The source lane may differ from lane to lane. */
static void
act_shfl(const struct emu_meet *meet, struct emu_warp *warp, void **data)
{
    uint32_t width = (uint32_t)meet->operands[1];
    for (uint32_t i = 0; i < EMU_WARP; i++) {
        if (!(meet->mask >> i & 1))
            continue;
        struct collective_lane *lane = data[i];
        uint32_t base = i & ~(width - 1), at = i & (width - 1), from = at;
        switch ((int)meet->operands[0]) {
        case EMU_SHFL_IDX:
            from = lane->arg & (width - 1);
            break;
        case EMU_SHFL_UP:
            from = at >= lane->arg ? at - lane->arg : at;
            break;
        case EMU_SHFL_DOWN:
            from = at + lane->arg < width ? at + lane->arg : at;
            break;
        default:
            from = (at ^ lane->arg) < width ? at ^ lane->arg : at;
        }
        if (!(meet->mask >> (base + from) & 1))
            emu_fault(EMU_FAULT_DIVERGENT, 0,
                "shfl.sync: lane %u of warp %u reads lane %u, which is not in "
                "mask %08x%s",
                i, warp->index, base + from, meet->mask, emu_here());
        else
            lane->out = ((struct collective_lane *)data[base + from])->in;
    }
}

uint64_t
emu_shfl(int how, uint32_t mask, uint64_t value, uint32_t lane, uint32_t width)
{
    struct collective_lane mine = {value, value, lane};
    struct emu_meet meet = {
        "shfl.sync", mask, {(uint64_t)how, width}, act_shfl};
    if (!width || width > EMU_WARP || width & (width - 1))
        emu_fault_fatal(
            EMU_FAULT_DIVERGENT, "shfl.sync of width %u%s", width, emu_here());
    emu_meet_warp(&meet, &mine);
    return mine.out;
}

static void
act_ballot(const struct emu_meet *meet, struct emu_warp *warp, void **data)
{
    uint64_t votes = 0;
    (void)warp;
    for (uint32_t i = 0; i < EMU_WARP; i++)
        if (meet->mask >> i & 1)
            votes |= ((struct collective_lane *)data[i])->in << i;
    for (uint32_t i = 0; i < EMU_WARP; i++)
        if (meet->mask >> i & 1)
            ((struct collective_lane *)data[i])->out = votes;
}

uint32_t
emu_ballot(uint32_t mask, bool predicate)
{
    struct collective_lane mine = {predicate, 0, 0};
    struct emu_meet meet = {"vote.sync", mask, {0}, act_ballot};
    emu_meet_warp(&meet, &mine);
    return (uint32_t)mine.out;
}

void
emu_syncwarp(uint32_t mask)
{
    struct emu_meet meet = {"bar.warp.sync", mask, {0}, NULL};
    emu_meet_warp(&meet, NULL);
}

static uint32_t
reduce_two(int rmw, uint32_t a, uint32_t b)
{
    switch (rmw) {
    case EMU_ADD:
        return a + b;
    case EMU_MIN:
        return a < b ? a : b;
    case EMU_MAX:
        return a > b ? a : b;
    case EMU_AND:
        return a & b;
    default:
        return a | b;
    }
}

static void
act_reduce(const struct emu_meet *meet, struct emu_warp *warp, void **data)
{
    bool any = false;
    uint32_t result = 0;
    (void)warp;
    for (uint32_t i = 0; i < EMU_WARP; i++) {
        if (!(meet->mask >> i & 1))
            continue;
        uint32_t value = (uint32_t)((struct collective_lane *)data[i])->in;
        result =
            any ? reduce_two((int)meet->operands[0], result, value) : value;
        any = true;
    }
    for (uint32_t i = 0; i < EMU_WARP; i++)
        if (meet->mask >> i & 1)
            ((struct collective_lane *)data[i])->out = result;
}

uint32_t
emu_reduce(int rmw, uint32_t mask, uint32_t value)
{
    struct collective_lane mine = {value, 0, 0};
    struct emu_meet meet = {"redux.sync", mask, {(uint64_t)rmw}, act_reduce};
    emu_meet_warp(&meet, &mine);
    return (uint32_t)mine.out;
}

/* The instruction set does not define which lane is elected; all calls within a
 * warp elect the same one. */
bool
emu_elect(void)
{
    struct emu_meet meet = {"elect.sync", UINT32_MAX, {0}, NULL};
    emu_meet_warp(&meet, NULL);
    return emu.self->lane == emu.self->block->serial * 7 % EMU_WARP;
}

/* Returns the registers of the block if this warp had `count` and every other
 * warp what it has. */
static uint32_t
total_registers(const struct emu_warp *warp, uint32_t count)
{
    const struct emu_block *block = warp->block;
    uint32_t sum = 0;
    for (uint32_t w = 0; w < block->warp_count; w++)
        sum +=
            EMU_WARP * (w == warp->index ? count : block->warps[w].registers);
    return sum;
}

static void
act_registers(const struct emu_meet *meet, struct emu_warp *warp, void **data)
{
    uint32_t count = (uint32_t)meet->operands[1];
    bool increase = meet->operands[0];
    (void)data;
    if (count < 24 || count > 256 || count % 8)
        emu_fault_fatal(EMU_FAULT_DIVERGENT,
            "setmaxnreg of %u: 24 to 256, a multiple of 8%s", count,
            emu_here());
    if (increase ? count < warp->registers : count > warp->registers)
        emu_fault(EMU_FAULT_DIVERGENT, 0,
            "setmaxnreg.%s to %u from %u registers%s", increase ? "inc" : "dec",
            count, warp->registers, emu_here());
    if (!increase) {
        warp->registers = count;
        emu_wake_all(&warp->block->register_queue);
    }
}

/* An increase waits until other warps have given back enough registers, as on a
 * card. */
void
emu_setmaxnreg(bool increase, uint32_t count)
{
    struct emu_warp *warp = emu.self->warp;
    struct emu_meet meet = {
        "setmaxnreg", UINT32_MAX, {increase, count}, act_registers};
    emu_meet_warp(&meet, NULL);
    while (increase && total_registers(warp, count) > EMU_SM_REGISTERS)
        emu_park(&warp->block->register_queue,
            "%llu registers a thread (setmaxnreg.inc)", count, 0, false);
    if (increase)
        warp->registers = count;
}

uint64_t
emu_globaltimer(void)
{
    return emu.now_ns;
}

void
emu_nanosleep(uint32_t ns)
{
    emu_park_asleep(ns);
}

void
emu_trap(void)
{
    emu_fault_fatal(EMU_FAULT_LAUNCH, "trap%s", emu_here());
    abort();
}
