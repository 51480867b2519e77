/* SPDX-License-Identifier: Apache-2.0
 *
 * When no fibre is ready and no engine works, time passes, in steps that
 * double, so that deadlines of hours are reached at once. Past the limit, or
 * with no thread that could poll again, the run is in a deadlock, and the
 * report groups the waiting lanes of each warp by what they wait for.
 *
 * With config.wall_time a host that is not in the emulator may be on its way:
 * until it enters, the clock follows the wall's, so that a deadline has the
 * same meaning for the host's waits and for the kernels'.
 */
#include "emulate/core/emu.h"
#include <time.h>

enum { FIRST_STEP_NS = 1000, REPORT_BYTES = 3500 };
#define WALL_LIMIT_NS UINT64_C(50000000000)

static bool
same_wait(const struct emu_thread *a, const struct emu_thread *b)
{
    return a->what == b->what && a->what_a == b->what_a &&
           a->what_b == b->what_b;
}

static size_t
describe_warp(const struct emu_warp *warp, char *text, size_t room)
{
    const struct emu_thread *threads =
        warp->block->threads + warp->index * EMU_WARP;
    uint32_t left = warp->live;
    size_t used = 0;
    while (left && used + 160 < room) {
        const struct emu_thread *first = &threads[__builtin_ctz(left)];
        uint32_t lanes = 0;
        for (uint32_t i = 0; i < EMU_WARP; i++)
            if (left >> i & 1 && same_wait(first, &threads[i]))
                lanes |= 1u << i;
        left &= ~lanes;
        used += (size_t)snprintf(text + used, room - used,
            "\n  %s device %d block %u warp %u lanes %08x wait for ",
            warp->block->launch->name, warp->block->launch->device,
            warp->block->number, warp->index, lanes);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        used += (size_t)snprintf(text + used, room - used, first->what,
            (unsigned long long)first->what_a,
            (unsigned long long)first->what_b);
#pragma GCC diagnostic pop
    }
    return used;
}

static void
report_deadlock(void)
{
    char text[REPORT_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; i < emu.launch_count; i++)
        if (emu.launches[i]->waiting && used + 160 < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used,
                "\n  %u blocks of %s have no room to start",
                emu.launches[i]->waiting, emu.launches[i]->name);
    for (size_t b = 0; b < emu.block_count; b++)
        for (uint32_t w = 0; w < emu.blocks[b]->warp_count; w++)
            if (used + 320 < sizeof text)
                used += describe_warp(
                    &emu.blocks[b]->warps[w], text + used, sizeof text - used);
    emu_fault_fatal(EMU_FAULT_DEADLOCK, "deadlock, nothing can move:%s", text);
}

/* Resumes every fibre that polls. Returns false when none does. */
static bool
wake_polls(void)
{
    bool any = false;
    for (size_t b = 0; b < emu.block_count; b++) {
        struct emu_block *block = emu.blocks[b];
        for (uint32_t i = 0; i < block->thread_count; i++) {
            struct emu_thread *t = &block->threads[i];
            if (t->state != EMU_PARKED || !(t->poll || t->wake_ns))
                continue;
            any = true;
            if (t->poll)
                emu_wake(t);
        }
    }
    return any;
}

static uint64_t
wall_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Moves the clock by the time that has passed on the wall clock. Returns true
 * when the stall has lasted too long. */
static bool
follow_wall(void)
{
    uint64_t wall = wall_clock();
    emu.now_ns += wall - emu.wall_ns;
    emu.wall_ns = wall;
    return wall - emu.wall_start_ns > WALL_LIMIT_NS;
}

void
emu_stalled(bool hosts_wait)
{
    bool over = false;
    if (emu.progress != emu.progress_seen) {
        emu.progress_seen = emu.progress;
        emu.stall_start_ns = emu.now_ns;
        emu.stall_step_ns = FIRST_STEP_NS;
        emu.wall_ns = emu.wall_start_ns = wall_clock();
    }
    if (hosts_wait) {
        emu.now_ns += emu.stall_step_ns;
        emu.stall_step_ns *= 2;
    } else if (emu.config.wall_time) {
        over = follow_wall();
    }
    bool polls = wake_polls();
    if (over)
        report_deadlock();
    if (!hosts_wait)
        return;
    if (!polls || emu.now_ns - emu.stall_start_ns > emu.config.stall_limit_ns)
        report_deadlock();
}
