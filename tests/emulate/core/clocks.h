/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector clocks. An agent is a warp or an asynchronous engine; at[view][a] is
 * the last clock of agent a that the owner is ordered after. There are three
 * views: what generic accesses are ordered after, and what asynchronous
 * accesses to shared and to global memory are: a generic write enters the
 * latter two only through a proxy fence.
 */
#ifndef EMULATE_CORE_CLOCKS_H
#define EMULATE_CORE_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum { EMU_AGENTS = 2048 };
enum emu_view { EMU_GENERIC, EMU_ASYNC_SHARED, EMU_ASYNC_GLOBAL, EMU_VIEWS };

struct emu_clocks {
    uint32_t count; /* entries in use; all later ones are zero */
    uint32_t at[EMU_VIEWS][EMU_AGENTS];
};

struct emu_clocks *emu_clocks_new(void);
void emu_clocks_clear(struct emu_clocks *clocks);
void emu_clocks_copy(struct emu_clocks *to, const struct emu_clocks *from);
void emu_clocks_join(struct emu_clocks *to, const struct emu_clocks *from);
/* Keeps only the order that both clocks have. */
void emu_clocks_meet(struct emu_clocks *to, const struct emu_clocks *from);
/* Adds the order after this clock of this agent. A proxy fence is not
 * implied. */
void emu_clocks_raise(struct emu_clocks *to, uint32_t agent, uint32_t clock);
/* A proxy fence: the view takes over all order that the generic view has. */
void emu_clocks_fence(struct emu_clocks *clocks, enum emu_view view);

/* Agents are numbers, each with a clock that never goes back. A number that an
 * agent has given back is taken, at random, by a later agent. */
uint32_t emu_agent_take(const char *kind, uint32_t block, uint32_t warp);
void emu_agent_give(uint32_t agent);
uint32_t emu_agent_clock(uint32_t agent);
/* Starts a new interval of the agent; returns the clock that just ended. */
uint32_t emu_agent_advance(uint32_t agent);
/* Returns, for example, "warp 3 of block 1". A later call overwrites the
 * text. */
const char *emu_agent_name(uint32_t agent);
uint32_t emu_agents_free(void);
void emu_agents_reset(void);

#endif
