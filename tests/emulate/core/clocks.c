/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector clocks and the table of agents. Only the first `count` entries of a
 * clock are ever touched, so joins cost what the run's agents cost.
 */
#include "emulate/core/emu.h"

struct agent {
    uint32_t clock;
    bool taken;
    const char *kind;
    uint32_t block, warp;
};

/* A clock must fit an epoch (memory/shadow.h); agents near it are retired. */
enum { CLOCK_LIMIT = 1 << 18, CLOCK_RETIRE = CLOCK_LIMIT - (1 << 14) };

static struct agent agents[EMU_AGENTS];
static uint32_t agents_top, agents_taken;

struct emu_clocks *
emu_clocks_new(void)
{
    struct emu_clocks *clocks = malloc(sizeof *clocks);
    if (!clocks)
        emu_out_of_memory("a vector clock");
    clocks->count = 0;
    return clocks;
}

void
emu_clocks_clear(struct emu_clocks *clocks)
{
    clocks->count = 0;
}

void
emu_clocks_copy(struct emu_clocks *to, const struct emu_clocks *from)
{
    to->count = from->count;
    for (int view = 0; view < EMU_VIEWS; view++)
        memcpy(to->at[view], from->at[view], from->count * sizeof(uint32_t));
}

static void
clocks_extend(struct emu_clocks *clocks, uint32_t count)
{
    if (count <= clocks->count)
        return;
    for (int view = 0; view < EMU_VIEWS; view++)
        memset(clocks->at[view] + clocks->count, 0,
            (count - clocks->count) * sizeof(uint32_t));
    clocks->count = count;
}

static void
join_view(uint32_t *restrict to, const uint32_t *restrict from, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        to[i] = to[i] < from[i] ? from[i] : to[i];
}

void
emu_clocks_join(struct emu_clocks *to, const struct emu_clocks *from)
{
    if (to == from)
        return;
    clocks_extend(to, from->count);
    for (int view = 0; view < EMU_VIEWS; view++)
        join_view(to->at[view], from->at[view], from->count);
}

void
emu_clocks_meet(struct emu_clocks *to, const struct emu_clocks *from)
{
    if (to->count > from->count)
        to->count = from->count;
    for (int view = 0; view < EMU_VIEWS; view++)
        for (uint32_t i = 0; i < to->count; i++)
            if (to->at[view][i] > from->at[view][i])
                to->at[view][i] = from->at[view][i];
}

void
emu_clocks_raise(struct emu_clocks *to, uint32_t agent, uint32_t clock)
{
    clocks_extend(to, agent + 1);
    if (to->at[EMU_GENERIC][agent] < clock)
        to->at[EMU_GENERIC][agent] = clock;
}

void
emu_clocks_fence(struct emu_clocks *clocks, enum emu_view view)
{
    join_view(clocks->at[view], clocks->at[EMU_GENERIC], clocks->count);
}

/* Returns a random free number below agents_top, which is raised when few
 * numbers are free. */
uint32_t
emu_agent_take(const char *kind, uint32_t block, uint32_t warp)
{
    uint32_t found = EMU_AGENTS;
    if (agents_top - agents_taken < 8 && agents_top < EMU_AGENTS)
        agents_top =
            agents_top + 32 < EMU_AGENTS ? agents_top + 32 : EMU_AGENTS;
    uint32_t start = emu_random(agents_top);
    for (uint32_t i = 0; i < agents_top && found == EMU_AGENTS; i++) {
        uint32_t a = (start + i) % agents_top;
        if (!agents[a].taken && agents[a].clock < CLOCK_RETIRE)
            found = a;
    }
    if (found == EMU_AGENTS)
        emu_out_of_memory("agents");
    agents[found].taken = true;
    agents[found].clock++;
    agents[found].kind = kind;
    agents[found].block = block;
    agents[found].warp = warp;
    agents_taken++;
    return found;
}

void
emu_agent_give(uint32_t agent)
{
    agents[agent].taken = false;
    agents_taken--;
}

uint32_t
emu_agent_clock(uint32_t agent)
{
    return agents[agent].clock;
}

uint32_t
emu_agent_advance(uint32_t agent)
{
    if (agents[agent].clock + 1 >= CLOCK_LIMIT)
        emu_out_of_memory("an agent's clock");
    return agents[agent].clock++;
}

const char *
emu_agent_name(uint32_t agent)
{
    static char text[2][96];
    static int turn;
    char *t = text[turn ^= 1];
    snprintf(t, sizeof text[0], "%s %u of block %u", agents[agent].kind,
        agents[agent].warp, agents[agent].block);
    return t;
}

uint32_t
emu_agents_free(void)
{
    return EMU_AGENTS - agents_taken;
}

void
emu_agents_reset(void)
{
    memset(agents, 0, sizeof agents);
    agents_top = agents_taken = 0;
}
