/* SPDX-License-Identifier: Apache-2.0
 *
 * Races. A cell keeps the epoch of the last write of its byte and of the reads
 * since: one epoch, or, when several agents read without order between them,
 * the number of a set of epochs. Sets are shared: a transition (value, new
 * epoch) -> value is remembered, so that a row of cells with one history costs
 * one set.
 *
 *     epoch = clock << 13 | strong << 12 | async << 11 | agent, 31 bits
 *
 * An access is ordered after an epoch when it is by the same agent, or when
 * the accessor's clocks contain it: in the generic view, but for asynchronous
 * accesses after generic writes, which need a proxy fence on the way.
 */
#include "emulate/memory/memory.h"

enum { MEMO = 4096, SET_LIMIT = 256, SETS_LIMIT = 1 << 22 };
#define SET_FLAG 0x80000000u

struct read_set {
    uint32_t count;
    uint32_t epochs[];
};

static struct read_set **sets;
static size_t set_count, set_room;
static struct {
    uint32_t value, epoch, result;
} memo[MEMO];

static uint32_t
epoch_of(const struct emu_accessor *who)
{
    return who->clock << 13 | (uint32_t)who->strong << 12 |
           (uint32_t)who->async << 11 | who->agent;
}

static bool
access_is_ordered(
    const struct emu_accessor *who, uint32_t epoch, bool was_write, bool shared)
{
    uint32_t agent = epoch & 0x7ff, clock = epoch >> 13;
    bool async = epoch >> 11 & 1, strong = epoch >> 12 & 1;
    if (strong && who->strong)
        return true;
    if (agent == who->agent && async == who->async)
        return clock <= who->clock;
    enum emu_view view = !who->async || async || !was_write ? EMU_GENERIC
                         : shared                           ? EMU_ASYNC_SHARED
                                                            : EMU_ASYNC_GLOBAL;
    return agent < who->clocks->count && who->clocks->at[view][agent] >= clock;
}

/* Describes the place in memory and, where it is known, the place in the
 * program. */
static const char *
address_place(const struct emu_accessor *who, const void *address, bool shared)
{
    static char text[160];
    size_t used = 0;
    if (shared)
        used += (size_t)snprintf(text, sizeof text, "shared+%u",
            emu_shared_address(who->block, address) - EMU_SHARED_START);
    else
        used += (size_t)snprintf(text, sizeof text, "%p", address);
    if (who->pc)
        used += (size_t)snprintf(text + used, sizeof text - used,
            " (code +0x%llx)", (unsigned long long)who->pc);
    if (!emu.self && who->block)
        snprintf(text + used, sizeof text - used, " (%s, device %d, block %u)",
            who->block->launch->name, who->device, who->block->number);
    return text;
}

static void
race_report(const struct emu_accessor *who, uint32_t epoch, const void *address,
    bool write, bool was_write, bool shared)
{
    bool async = epoch >> 11 & 1;
    bool fenced = access_is_ordered(who, epoch, false, shared);
    uint64_t key = (who->pc + 1) * 64 + (uint64_t)write * 32 + was_write * 16 +
                   async * 8 + who->async * 4 + shared * 2 + fenced;
    const char *plain = write ? "a plain write" : "a plain read";
    emu_fault(EMU_FAULT_RACE, key, "race at %s: %s%s%s after %s %s by %s, %s",
        address_place(who, address, shared), who->what ? who->what : plain,
        who->async ? " (asynchronous)" : "", emu_here(),
        async ? "an asynchronous" : "a", was_write ? "write" : "read",
        emu_agent_name(epoch & 0x7ff),
        fenced ? "ordered but without a proxy fence" : "nothing orders them");
}

static void
access_check(const struct emu_accessor *who, uint32_t epoch,
    const void *address, bool write, bool was_write, bool shared)
{
    if (epoch && !emu.config.processes &&
        !access_is_ordered(who, epoch, was_write, shared))
        race_report(who, epoch, address, write, was_write, shared);
}

static uint32_t
new_set(const uint32_t *epochs, uint32_t count)
{
    struct read_set *set = malloc(sizeof *set + count * sizeof *epochs);
    if (!set)
        emu_out_of_memory("a set of readers");
    set->count = count;
    memcpy(set->epochs, epochs, count * sizeof *epochs);
    emu_grow(&sets, &set_room, set_count + 1, sizeof *sets);
    sets[set_count] = set;
    return SET_FLAG | (uint32_t)set_count++;
}

/* Returns the set of the readers in `value` that are not ordered before `who`,
 * and of `who`. */
static uint32_t
add_reader(const struct emu_accessor *who, uint32_t value, bool shared)
{
    uint32_t epoch = epoch_of(who), next[SET_LIMIT], count = 0;
    const uint32_t *old = &value;
    uint32_t old_count = 1;
    if (value & SET_FLAG) {
        old = sets[value & ~SET_FLAG]->epochs;
        old_count = sets[value & ~SET_FLAG]->count;
    }
    for (uint32_t i = 0; i < old_count && count < SET_LIMIT - 1; i++) {
        bool strong = (old[i] | epoch) >> 12 & 1;
        bool same = ((old[i] ^ epoch) & 0x1fff) == 0;
        if (old[i] && !same &&
            (strong || !access_is_ordered(who, old[i], false, shared)))
            next[count++] = old[i];
    }
    if (!count || set_count >= SETS_LIMIT)
        return epoch;
    next[count++] = epoch;
    return new_set(next, count);
}

static uint32_t
with_reader(const struct emu_accessor *who, uint32_t value, bool shared)
{
    uint32_t epoch = epoch_of(who);
    uint32_t slot = (value * 0x9e3779b1u ^ epoch * 0x85ebca6bu) >> 20;
    if (memo[slot].value == value && memo[slot].epoch == epoch)
        return memo[slot].result;
    memo[slot].value = value;
    memo[slot].epoch = epoch;
    return memo[slot].result = add_reader(who, value, shared);
}

void
emu_shadow_read(const struct emu_accessor *who, struct emu_cell *cells,
    const void *address, size_t bytes, bool shared)
{
    struct emu_cell last = {0, 0};
    uint32_t epoch = epoch_of(who), result = epoch;
    const unsigned char *at = address;
    for (size_t i = 0; i < bytes; i++) {
        struct emu_cell cell = cells[i];
        if (cell.read != epoch &&
            (i == 0 || cell.write != last.write || cell.read != last.read)) {
            access_check(who, cell.write, at + i, false, true, shared);
            result = cell.read ? with_reader(who, cell.read, shared) : epoch;
            last = cell;
        } else if (cell.read == epoch) {
            if (i == 0 || cell.write != last.write)
                access_check(who, cell.write, at + i, false, true, shared);
            last = cell;
            result = epoch;
        }
        cells[i].read = result;
    }
}

static void
check_readers(
    const struct emu_accessor *who, uint32_t value, const void *at, bool shared)
{
    if (!(value & SET_FLAG)) {
        access_check(who, value, at, true, false, shared);
        return;
    }
    const struct read_set *set = sets[value & ~SET_FLAG];
    for (uint32_t k = 0; k < set->count; k++)
        access_check(who, set->epochs[k], at, true, false, shared);
}

void
emu_shadow_write(const struct emu_accessor *who, struct emu_cell *cells,
    const void *address, size_t bytes, bool shared)
{
    struct emu_cell last = {0, 0};
    uint32_t epoch = epoch_of(who);
    const unsigned char *at = address;
    for (size_t i = 0; i < bytes; i++) {
        struct emu_cell cell = cells[i];
        if (cell.write != last.write)
            access_check(who, cell.write, at + i, true, true, shared);
        if (cell.read != last.read)
            check_readers(who, cell.read, at + i, shared);
        last = cell;
        cells[i].write = epoch;
        cells[i].read = 0;
    }
}

void
emu_shadow_reset(void)
{
    for (size_t i = 0; i < set_count; i++)
        free(sets[i]);
    set_count = 0;
    memset(memo, 0, sizeof memo);
}
