/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of streams and graphs. An operation waits for the operations that
 * it follows. It is ordered after their ends, and after what the host was
 * ordered after when it enqueued the operation. All functions except
 * emu_op_perform expect emu.lock to be held.
 */
#include "emulate/memory/memory.h"

struct emu_op *
emu_op_new(enum emu_op_kind kind, int device)
{
    struct emu_op *op = calloc(1, sizeof *op);
    if (!op)
        emu_out_of_memory("an operation");
    op->kind = kind;
    op->device = device;
    op->references = 1;
    op->waits = 1;
    op->clocks = emu_clocks_new();
    op->launch.op = op;
    op->launch.device = device;
    return op;
}

struct emu_op *
emu_op_hold(struct emu_op *op)
{
    op->references++;
    return op;
}

void
emu_op_drop(struct emu_op *op)
{
    if (!op || --op->references)
        return;
    free(op->followers);
    free(op->clocks);
    free(op->launch.args);
    free(op->launch.order);
    free(op);
}

void
emu_op_follow(struct emu_op *op, struct emu_op *earlier)
{
    if (!earlier)
        return;
    if (earlier->done) {
        emu_clocks_join(op->clocks, earlier->clocks);
        return;
    }
    earlier->followers = realloc(earlier->followers,
        (earlier->follower_count + 1) * sizeof *earlier->followers);
    if (!earlier->followers)
        emu_out_of_memory("an operation");
    earlier->followers[earlier->follower_count++] = emu_op_hold(op);
    op->waits++;
}

static void
op_queue(struct emu_op *op)
{
    emu_grow(&emu.queued, &emu.queued_room, emu.queued_count + 1,
        sizeof *emu.queued);
    emu.queued[emu.queued_count++] = op;
    atomic_store(&emu.incoming, true);
    pthread_cond_signal(&emu.work);
}

void
emu_op_start(struct emu_op *op)
{
    emu_clocks_join(op->clocks, emu.host);
    emu.unfinished++;
    emu_op_hold(op);
    if (--op->waits == 0)
        op_queue(op);
}

void
emu_op_finish(struct emu_op *op)
{
    op->done = true;
    op->end_ns = emu.now_ns;
    for (uint32_t i = 0; i < op->follower_count; i++) {
        struct emu_op *next = op->followers[i];
        emu_clocks_join(next->clocks, op->clocks);
        if (--next->waits == 0)
            op_queue(next);
        emu_op_drop(next);
    }
    op->follower_count = 0;
    emu.unfinished--;
    emu.hosts_waiting -= op->hosts;
    if (op->hosts || (!emu.unfinished && emu.hosts_draining))
        pthread_cond_broadcast(&emu.done);
    if (!emu.unfinished) {
        emu.hosts_waiting -= emu.hosts_draining;
        emu.hosts_draining = 0;
        emu.drains++;
    }
    emu_op_drop(op);
}

static bool
op_touch(const struct emu_op *op, uint32_t agent, const void *p, bool write)
{
    struct emu_accessor who = {.clocks = op->clocks,
        .agent = agent,
        .clock = emu_agent_clock(agent),
        .device = op->device,
        .what = write ? "a copy or fill (write)" : "a copy (read)"};
    return !emu_memory_in_arena(p) ||
           emu_memory_access(&who, p, op->bytes, write);
}

static bool
move_row(const struct emu_op *op, uint32_t agent, size_t z, size_t y)
{
    unsigned char *dst = (unsigned char *)op->dst + z * op->rows.dst_slice +
                         y * op->rows.dst_pitch;
    const unsigned char *src = (const unsigned char *)op->src +
                               z * op->rows.src_slice + y * op->rows.src_pitch;
    bool copy = op->kind == EMU_OP_COPY;
    if ((copy && !op_touch(op, agent, src, false)) ||
        !op_touch(op, agent, dst, true))
        return false;
    if (copy)
        memmove(dst, src, op->bytes);
    else
        memset(dst, op->value, op->bytes);
    return true;
}

static void
move_bytes(struct emu_op *op)
{
    uint32_t agent = emu_agent_take("copy engine", 0, (uint32_t)op->device);
    size_t depth = op->rows.depth ? op->rows.depth : 1;
    size_t height = op->rows.height ? op->rows.height : 1;
    bool good = true;
    for (size_t z = 0; z < depth && good; z++)
        for (size_t y = 0; y < height && good; y++)
            good = move_row(op, agent, z, y);
    emu_clocks_raise(op->clocks, agent, emu_agent_clock(agent));
    emu_agent_give(agent);
}

void
emu_op_perform(struct emu_op *op)
{
    if (!emu.failed) {
        if (op->kind == EMU_OP_HOST)
            op->call(op->data);
        else if (op->kind != EMU_OP_MARK && op->bytes)
            move_bytes(op);
        for (size_t b = 0; b < emu.block_count && op->kind != EMU_OP_MARK; b++)
            for (uint32_t i = 0; i < emu.blocks[b]->thread_count; i++)
                if (emu.blocks[b]->threads[i].poll)
                    emu_wake(&emu.blocks[b]->threads[i]);
    }
    pthread_mutex_lock(&emu.lock);
    emu_op_finish(op);
    pthread_mutex_unlock(&emu.lock);
}
