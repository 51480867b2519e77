/* SPDX-License-Identifier: Apache-2.0
 *
 * Collective instructions. The lanes that the mask names meet, each with its
 * operands, which must be equal; the last lane to arrive performs the
 * instruction for all. It is a fault if a lane arrives at another instruction
 * with the same mask, or ends, while others wait for it. Lanes may wait under
 * several masks, so a wrong mask shows as a lane that never arrives
 * (core/stall.c).
 */
#include "emulate/core/emu.h"

enum { MEETINGS = 8, GROUP = 128 };

struct emu_meeting {
    bool open;
    struct emu_meet meet;
    uint32_t arrived, expected;
    uint32_t lanes[GROUP / EMU_WARP]; /* masks of the lanes that have arrived */
    void *data[GROUP];
    struct emu_queue queue;
};

static void
check_equal(const struct emu_meeting *m, const struct emu_meet *meet)
{
    if (strcmp(m->meet.name, meet->name) != 0)
        emu_fault_fatal(EMU_FAULT_DIVERGENT,
            "a lane comes to %s while others wait for it at %s%s", meet->name,
            m->meet.name, emu_here());
    for (int i = 0; i < EMU_MEET_OPERANDS; i++)
        if (m->meet.operands[i] != meet->operands[i])
            emu_fault_fatal(EMU_FAULT_DIVERGENT,
                "lanes of one %s come with operands %d of %llx and %llx%s",
                meet->name, i, (unsigned long long)m->meet.operands[i],
                (unsigned long long)meet->operands[i], emu_here());
}

/* place: index of the lane in data[] */
static void
meeting_arrive(struct emu_meeting *m, const struct emu_meet *meet,
    uint32_t place, void *lane_data)
{
    struct emu_warp *warp = emu.self->warp;
    m->data[place] = lane_data;
    m->lanes[place / EMU_WARP] |= 1u << place % EMU_WARP;
    if (++m->arrived < m->expected) {
        emu_park(&m->queue,
            "all lanes (mask %llx, %llu have to come) of a "
            "collective instruction",
            meet->mask, m->expected, false);
        return;
    }
    emu_progress();
    if (meet->act)
        meet->act(meet, warp, m->data);
    m->open = false;
    emu_wake_all(&m->queue);
}

static void
open_meeting(
    struct emu_meeting *m, const struct emu_meet *meet, uint32_t expected)
{
    memset(m, 0, sizeof *m);
    m->open = true;
    m->meet = *meet;
    m->expected = expected;
}

static struct emu_meeting *
meeting_of(struct emu_warp *warp, const struct emu_meet *meet)
{
    struct emu_meeting *empty = NULL;
    for (int i = 0; i < MEETINGS; i++) {
        struct emu_meeting *m = &warp->meetings[i];
        if (!m->open) {
            empty = m;
            continue;
        }
        if (m->meet.mask == meet->mask) {
            check_equal(m, meet);
            return m;
        }
    }
    if (!empty)
        emu_fault_fatal(
            EMU_FAULT_LIMIT, "too many open collectives%s", emu_here());
    open_meeting(empty, meet, (uint32_t)__builtin_popcount(meet->mask));
    return empty;
}

void
emu_meet_warp(const struct emu_meet *meet, void *lane_data)
{
    struct emu_thread *self = emu.self;
    struct emu_warp *warp = self->warp;
    if (!(meet->mask >> self->lane & 1))
        emu_fault_fatal(EMU_FAULT_DIVERGENT,
            "%s with mask %08x, which lacks the lane itself%s", meet->name,
            meet->mask, emu_here());
    if (meet->mask & ~warp->live)
        emu_fault_fatal(EMU_FAULT_DIVERGENT,
            "%s with mask %08x, but lanes %08x have ended%s", meet->name,
            meet->mask, meet->mask & ~warp->live, emu_here());
    if (!warp->meetings)
        warp->meetings = calloc(MEETINGS, sizeof *warp->meetings);
    meeting_arrive(meeting_of(warp, meet), meet, self->lane, lane_data);
}

void
emu_meet_group(const struct emu_meet *meet, void *lane_data)
{
    struct emu_thread *self = emu.self;
    struct emu_block *block = self->block;
    uint32_t group = self->index / GROUP;
    struct emu_meeting **m = &block->group_meetings[group];
    if ((group + 1) * GROUP > block->thread_count)
        emu_fault_fatal(EMU_FAULT_DIVERGENT,
            "%s by a warpgroup of less than 128 threads%s", meet->name,
            emu_here());
    for (uint32_t w = group * 4; w < group * 4 + 4; w++)
        if (block->warps[w].live != UINT32_MAX)
            emu_fault_fatal(EMU_FAULT_DIVERGENT,
                "%s, but lanes of warp %u have ended%s", meet->name, w,
                emu_here());
    if (!*m)
        *m = calloc(1, sizeof **m);
    if ((*m)->open)
        check_equal(*m, meet);
    else
        open_meeting(*m, meet, GROUP);
    meeting_arrive(*m, meet, self->index % GROUP, lane_data);
}

static void
check_exit(const struct emu_meeting *m, const struct emu_thread *t)
{
    if (!m || !m->open)
        return;
    if (m->expected == GROUP || m->meet.mask >> t->lane & 1)
        emu_fault_fatal(EMU_FAULT_DIVERGENT,
            "block %u warp %u lane %u of %s ended while others wait for it "
            "at %s",
            t->block->number, t->warp->index, t->lane, t->block->launch->name,
            m->meet.name);
}

void
emu_meetings_check_exit(struct emu_thread *thread)
{
    for (int i = 0; thread->warp->meetings && i < MEETINGS; i++)
        check_exit(&thread->warp->meetings[i], thread);
    check_exit(thread->block->group_meetings[thread->index / GROUP], thread);
}

void
emu_meetings_free(struct emu_block *block)
{
    for (uint32_t w = 0; w < block->warp_count; w++)
        free(block->warps[w].meetings);
    for (uint32_t g = 0; g * GROUP < block->thread_count; g++)
        free(block->group_meetings[g]);
}
