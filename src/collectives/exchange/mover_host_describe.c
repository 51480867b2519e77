/* SPDX-License-Identifier: Apache-2.0
 *
 * What the mover of host memory says of a plan, and the bytes that it holds.
 */
#include "base/text.h"
#include "collectives/exchange/exchange_schedule.h"
#include "collectives/exchange/mover_host.h"
#include "comm/remote/remote.h"

/* ---- verbs --------------------------------------------------------------- */

/* How many peers each way of moving serves, in either direction. */
struct verbs {
    int32_t slot, stored, taken, loaded, read, ring, put, nothing;
    int64_t wire_bytes;
};

static bool
has_verb(const struct uli_items *items, int32_t verb)
{
    for (int64_t i = 0; i < items->count; i++)
        if (items->at[i].verb == verb)
            return true;
    return false;
}

/* The peer acts where this rank has bytes to give or take but no verb. */
static void
count_peer(
    const ulyx_plan_t *plan, int direction, int32_t p, struct verbs *verbs)
{
    const struct uli_pair_work *pair = &plan->work[direction].pairs[p];
    const struct uli_volume *in = &plan->room[direction].in[p];
    const struct uli_volume *out = &plan->room[direction].out[p];
    if (!in->items && !out->items) {
        verbs->nothing++;
        return;
    }
    if (uli_comm_is_remote(plan->comm, p)) {
        verbs->put++;
        for (int64_t i = 0; i < pair->out.count; i++)
            verbs->wire_bytes += uli_box_bytes(&pair->out.at[i].box);
        return;
    }
    if (pair->slot) {
        verbs->slot++;
        return;
    }
    verbs->stored += has_verb(&pair->out, ULI_VERB_STORE);
    verbs->loaded +=
        has_verb(&pair->in, ULI_VERB_LOAD) ||
        (pair->last_sum >= 0 &&
            plan->ranks[p].memory[direction == ULYX_SEQ_TO_HEAD_ADJOINT] ==
                ULYX_POINTER_WINDOW);
    verbs->taken += in->items > pair->in.count || out->items > pair->out.count;
    verbs->read += has_verb(&pair->in, ULI_VERB_READ) ||
                   has_verb(&pair->out, ULI_VERB_READ);
    verbs->ring += has_verb(&pair->in, ULI_VERB_STREAM) ||
                   has_verb(&pair->out, ULI_VERB_STREAM);
}

void
uli_host_describe_direction(
    const ulyx_plan_t *plan, ulyx_direction_t direction, struct uli_text *text)
{
    struct verbs verbs = {0};
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        if (p != plan->comm->rank)
            count_peer(plan, direction, p, &verbs);
    struct {
        int32_t count;
        const char *text;
    } parts[] = {{verbs.stored, "stored to (its dst is a window)"},
        {verbs.loaded, "loaded from (a window, mine is none or sums)"},
        {verbs.taken, "that move it themselves (windows here)"},
        {verbs.read, "by process_vm_readv, else ring (no window, long rows)"},
        {verbs.ring, "by ring (no window)"}, {verbs.slot, "by slot (small)"},
        {verbs.put, "by puts (another node)"}};
    bool any = false;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i].count) {
            uli_text_add(text, "%s%d %s", any ? ", " : "", parts[i].count,
                parts[i].text);
            any = true;
        }
    if (!any)
        uli_text_add(text, "nothing between ranks");
    if (verbs.put)
        uli_text_add(
            text, ", %lld bytes to other nodes", (long long)verbs.wire_bytes);
}

/* "direct (one node)", "pairwise (2 nodes, to 8 ranks of others at a time; rule
 * on line 3 of the tuning file)" */
void
uli_host_describe(const ulyx_plan_t *plan, struct uli_text *text)
{
    long long limit = plan->exchange.peer_limit;
    uli_text_add(text, "%s (", uli_algo_name(plan->algo));
    if (plan->comm->nnodes > 1)
        uli_text_add(text, "%d nodes", plan->comm->nnodes);
    else
        uli_text_add(text, "one node");
    if (limit && plan->comm->nnodes > 1)
        uli_text_add(text, ", to %lld rank%s of others at a time", limit,
            uli_plural(limit));
    if (plan->comm->nnodes > 1)
        uli_text_add(text, "; %s", plan->reason);
    uli_text_add(text, ")");
}

/* The way to the first remote peer; the others mostly have the same. */
static void
add_network(struct uli_text *text, const ulyx_plan_t *plan)
{
    char way[128] = "";
    int32_t p = 0;
    while (p < plan->comm->nranks && !plan->exchange.pairs[p].remote)
        p++;
    if (p == plan->comm->nranks)
        return;
    uli_remote_describe(plan->comm, p, way, sizeof(way));
    uli_text_add(text, "; network: %d chunk%s of %lld, %s",
        plan->exchange.pairs[p].chunks_out,
        uli_plural(plan->exchange.pairs[p].chunks_out),
        (long long)plan->exchange.pairs[p].chunk_out_bytes, way);
}

void
uli_host_describe_rest(const ulyx_plan_t *plan, struct uli_text *text)
{
    const struct uli_host_state *host = uli_host_of(plan);
    char schedule[1024];
    host->schedule->describe(plan, schedule, sizeof(schedule));
    uli_text_add(text, "%s", schedule);
    if (host->blocks.rings.address)
        uli_text_add(
            text, "; ring chunk %lld", (long long)plan->info.chunk_bytes);
    uli_plan_describe_slots(plan, text);
    add_network(text, plan);
    if (host->holds_thread)
        uli_text_add(text, "; progress thread");
}

static int64_t
block_bytes(const struct uli_arena_block *block)
{
    return block->address ? block->bytes : 0;
}

int64_t
uli_host_bytes(const ulyx_plan_t *plan)
{
    const struct uli_host_state *host = uli_host_of(plan);
    int64_t bytes =
        (int64_t)sizeof(*host) + host->nranks * (int64_t)sizeof(bool);
    return bytes + host->schedule->bytes(&plan->exchange) +
           block_bytes(&host->blocks.pair_flags) +
           block_bytes(&host->blocks.rings) +
           block_bytes(&host->blocks.bounces);
}
