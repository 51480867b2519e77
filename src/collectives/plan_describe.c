/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan in one line, and the bytes it holds.
 *
 *   reshuffle direct (one node): rank 1 of 4, batch 1, 32 heads, 3 tensors;
 *   seq_to_head: 3 stored (to windows); head_to_seq: 2 loaded (from windows),
 *   1 ring (no window, rows short); ring chunk 1048576; slots of 8192
 * and between nodes
 *   reshuffle pairwise (2 nodes, to 8 ranks of others at a time; links
 *   assumed, for any network: 84.0 us, ...): rank ...;
 *   seq_to_head: 1 stored ..., 2 by puts (another node), 65536 bytes to other
 *   nodes; ...; network: 8 chunks of 524288, ucx ...
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "collectives/cuda/plan_engine.h"
#include "collectives/cuda/plan_gpu.h"
#include "collectives/cuda/plan_packed.h"
#include "collectives/exchange_schedule.h"
#include "collectives/plan.h"
#include "comm/remote.h"

struct line {
    char *text;
    size_t bytes, length;
};

__attribute__((format(printf, 2, 3))) static void
add(struct line *line, const char *format, ...)
{
    va_list arguments;
    if (line->length >= line->bytes)
        return;
    va_start(arguments, format);
    int wrote = vsnprintf(line->text + line->length, line->bytes - line->length,
        format, arguments);
    va_end(arguments);
    line->length += wrote > 0 ? (size_t)wrote : 0;
}

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
count_peer(const ulyx_plan_t *plan, int op, int32_t p, struct verbs *verbs)
{
    const struct uli_pair_work *pair = &plan->work[op].pairs[p];
    const struct uli_volume *in = &plan->room[op].in[p];
    const struct uli_volume *out = &plan->room[op].out[p];
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
            plan->ranks[p].memory[op == ULYX_SEQ_TO_HEAD_ADJOINT] ==
                ULYX_POINTER_WINDOW);
    verbs->taken += in->items > pair->in.count || out->items > pair->out.count;
    verbs->read += has_verb(&pair->in, ULI_VERB_READ) ||
                   has_verb(&pair->out, ULI_VERB_READ);
    verbs->ring += has_verb(&pair->in, ULI_VERB_STREAM) ||
                   has_verb(&pair->out, ULI_VERB_STREAM);
}

/* On a device copies are pushed and sums pulled, or all goes by slots. */
static void
add_device_operation(struct line *line, const ulyx_plan_t *plan, int op)
{
    const struct uli_gpu_table *table = &plan->gpu->op[op].table;
    int32_t peers = 0;
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        peers += p != plan->comm->rank &&
                 (plan->room[op].in[p].items || plan->room[op].out[p].items);
    if (plan->gpu->engine && !table->slots) {
        char text[200];
        uli_plan_engine_describe_operation(plan, op, text, sizeof(text));
        add(line, "; %s: %s", uli_operation_name(op), text);
    } else if (!peers)
        add(line, "; %s: nothing between ranks", uli_operation_name(op));
    else
        add(line, "; %s: %d %s, tiles of %lld bytes", uli_operation_name(op),
            peers,
            table->slots  ? "by slot (small)"
            : table->sums ? "stored to, shares of sums loaded"
                          : "stored to",
            (long long)table->tile_bytes);
}

static void
add_operation(struct line *line, const ulyx_plan_t *plan, int op)
{
    struct verbs verbs = {0};
    if (plan->packed) {
        add(line, "; %s: %d rounds of a message a peer", uli_operation_name(op),
            uli_plan_packed_rounds(plan->packed, op));
        return;
    }
    if (plan->gpu) {
        add_device_operation(line, plan, op);
        return;
    }
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        if (p != plan->comm->rank)
            count_peer(plan, op, p, &verbs);
    add(line, "; %s:", uli_operation_name(op));
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
            add(line, "%s %d %s", any ? "," : "", parts[i].count,
                parts[i].text);
            any = true;
        }
    if (!any)
        add(line, " nothing between ranks");
    if (verbs.put)
        add(line, ", %lld bytes to other nodes", (long long)verbs.wire_bytes);
}

/* "direct (one node)", "pairwise (2 nodes, to 8 ranks of others at a time; rule
 * on line 3 of the tuning file)" */
static void
add_algo(struct line *line, const ulyx_plan_t *plan)
{
    long long limit = plan->exchange.peer_limit;
    char text[720];
    if (plan->packed) {
        uli_plan_packed_describe(plan->packed, text, sizeof(text));
        add(line, "%s", text);
        return;
    }
    if (plan->gpu) {
        if (plan->gpu->engine) {
            uli_plan_engine_describe(plan, text, sizeof(text));
            add(line, "engine on device memory (%s)", text);
            return;
        }
        uli_plan_gpu_describe(plan->gpu, text, sizeof(text));
        add(line, "direct on device memory (%s", text);
        if (uli_plan_engine_wanted(plan))
            add(line, "; no copy engines: %s", uli_plan_engine_refused(plan));
        add(line, ")");
        return;
    }
    add(line, "%s (", uli_algo_name(plan->algo));
    if (plan->comm->nnodes > 1)
        add(line, "%d nodes", plan->comm->nnodes);
    else
        add(line, "one node");
    if (limit && plan->comm->nnodes > 1)
        add(line, ", to %lld ranks of others at a time", limit);
    if (plan->comm->nnodes > 1)
        add(line, "; %s", plan->reason);
    add(line, ")");
}

/* The way to the first remote peer; the others mostly have the same. */
static void
add_network(struct line *line, const ulyx_plan_t *plan)
{
    char text[128] = "";
    int32_t p = 0;
    while (p < plan->comm->nranks && !plan->exchange.pairs[p].remote)
        p++;
    if (p == plan->comm->nranks)
        return;
    uli_remote_describe(plan->comm, p, text, sizeof(text));
    add(line, "; network: %d chunks of %lld, %s",
        plan->exchange.pairs[p].chunks_out,
        (long long)plan->exchange.pairs[p].chunk_out_bytes, text);
}

void
uli_plan_describe(const ulyx_plan_t *plan, char *text_p, size_t text_bytes)
{
    const struct uli_shape *shape = uli_layout_shape(plan->layout);
    struct line line = {text_p, text_bytes, 0};
    char schedule[1024];
    add(&line, "reshuffle ");
    add_algo(&line, plan);
    add(&line,
        ": rank %d of %d, batch %lld, %lld heads, "
        "%d tensors, work %s%s",
        plan->comm->rank, plan->comm->nranks, (long long)shape->batch,
        (long long)shape->heads, shape->ntensors,
        shape->work_split == ULYX_WORK_BALANCED ? "balanced" : "by heads",
        uli_layout_packed(plan->layout) ? " (packed)" : "");
    for (int op = 0; op < ULYX_OPERATIONS; op++)
        if (plan->operations >> op & 1)
            add_operation(&line, plan, op);
    plan->exchange.schedule->describe(plan, schedule, sizeof(schedule));
    add(&line, "%s", schedule);
    if (plan->pieces.rings.address)
        add(&line, "; ring chunk %lld", (long long)plan->info.chunk_bytes);
    if (plan->slot_limit)
        add(&line, "; slots of %lld", (long long)plan->slot_limit);
    else
        add(&line, "; no slots");
    add_network(&line, plan);
    if (plan->holds_thread)
        add(&line, "; progress thread");
    if (line.length >= text_bytes && text_bytes >= 4)
        memcpy(text_p + text_bytes - 4, "...", 4);
}

int64_t
uli_plan_bytes(const ulyx_plan_t *plan)
{
    int64_t nranks = plan->comm->nranks;
    return (int64_t)sizeof(*plan) + plan->table_bytes +
           (plan->gpu ? uli_plan_gpu_bytes(plan->gpu) : 0) +
           (plan->packed ? uli_plan_packed_bytes(plan->packed) : 0) +
           plan->exchange.schedule->bytes(&plan->exchange) +
           uli_layout_bytes(plan->layout) +
           (plan->pieces.words.address ? plan->pieces.words.bytes : 0) +
           (plan->pieces.rings.address ? plan->pieces.rings.bytes : 0) +
           (plan->pieces.mirrors.address ? plan->pieces.mirrors.bytes : 0) +
           nranks * (int64_t)(sizeof(struct uli_pair) +
                              sizeof(struct uli_rank_info) +
                              ULI_SIDES * ULI_TENSORS * sizeof(int64_t) +
                              3 * sizeof(int64_t));
}
