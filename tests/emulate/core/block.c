/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks: where they fit, how their threads begin and end. A device has
 * multiprocessors with the limits of the card (threads, blocks, shared
 * memory); blocks of a launch start in an order drawn from the seed, so a
 * kernel that needs another one is caught.
 */
#include "emulate/memory/memory.h"

enum { SM_SHARED_BYTES = 233472, BLOCK_RESERVED = 1024 };

static void
thread_main(void)
{
    struct emu_launch *launch = emu.self->block->launch;
    launch->invoke(launch->args);
    emu.self->state = EMU_DEAD;
    void *unused;
    emu_fibre_switch(&unused, emu.scheduler_sp);
}

static struct emu_dim3
block_unflatten(uint64_t i, struct emu_dim3 extent)
{
    struct emu_dim3 at = {(unsigned)(i % extent.x),
        (unsigned)(i / extent.x % extent.y),
        (unsigned)(i / extent.x / extent.y)};
    return at;
}

static void
start_warps(struct emu_block *block)
{
    uint32_t budget = EMU_SM_REGISTERS / (block->warp_count * EMU_WARP) / 8 * 8;
    for (uint32_t w = 0; w < block->warp_count; w++) {
        struct emu_warp *warp = &block->warps[w];
        warp->block = block;
        warp->index = w;
        warp->agent = emu_agent_take("warp", block->number, w);
        warp->now = emu_clocks_new();
        emu_clocks_copy(warp->now, block->launch->op->clocks);
        emu_clocks_fence(warp->now, EMU_ASYNC_SHARED);
        emu_clocks_fence(warp->now, EMU_ASYNC_GLOBAL);
        warp->copy_agent = EMU_AGENTS;
        warp->registers = budget > 255 ? 255 : budget;
    }
}

static void
start_threads(struct emu_block *block)
{
    for (uint32_t i = 0; i < block->thread_count; i++) {
        struct emu_thread *t = &block->threads[i];
        t->block = block;
        t->warp = &block->warps[i / EMU_WARP];
        t->lane = i % EMU_WARP;
        t->index = i;
        t->at = block_unflatten(i, block->launch->block);
        t->warp->live |= 1u << t->lane;
        t->stack = emu_stack_take();
        if (!t->stack)
            emu_out_of_memory("a stack");
        t->sp = emu_fibre_start(t->stack, thread_main);
        emu_ready_add(t);
    }
}

static void
start_block(struct emu_launch *launch, uint32_t sm)
{
    struct emu_dim3 size = launch->block;
    struct emu_block *block = calloc(1, sizeof *block);
    if (!block)
        emu_out_of_memory("a block");
    block->launch = launch;
    block->number = launch->order[--launch->waiting];
    block->serial = ++emu.serial;
    block->sm = sm;
    block->at = block_unflatten(block->number, launch->grid);
    block->thread_count = block->live = size.x * size.y * size.z;
    block->warp_count = (block->live + EMU_WARP - 1) / EMU_WARP;
    block->threads = calloc(block->thread_count, sizeof *block->threads);
    block->warps = calloc(block->warp_count, sizeof *block->warps);
    if (!block->threads || !block->warps ||
        !emu_shared_take(block, launch->shared_bytes))
        emu_out_of_memory("a block");
    launch->live++;
    emu_grow(
        &emu.blocks, &emu.block_room, emu.block_count + 1, sizeof *emu.blocks);
    block->slot = emu.block_count;
    emu.blocks[emu.block_count++] = block;
    start_warps(block);
    start_threads(block);
}

static bool
launch_fits(const struct emu_launch *launch, uint32_t sm)
{
    uint32_t threads = launch->block.x * launch->block.y * launch->block.z;
    const struct emu_device *device = &emu.devices[launch->device];
    return device->sms[sm].threads + threads <= EMU_SM_THREADS &&
           device->sms[sm].blocks < EMU_SM_BLOCKS &&
           device->sms[sm].shared + launch->shared_bytes + BLOCK_RESERVED <=
               SM_SHARED_BYTES &&
           emu_agents_free() > threads / EMU_WARP + 64;
}

static void
launch_occupy(const struct emu_launch *launch, uint32_t sm, int sign)
{
    uint32_t threads = launch->block.x * launch->block.y * launch->block.z;
    struct emu_device *device = &emu.devices[launch->device];
    device->sms[sm].threads += (uint32_t)sign * threads;
    device->sms[sm].blocks += (uint32_t)sign;
    device->sms[sm].shared +=
        (size_t)sign * (launch->shared_bytes + BLOCK_RESERVED);
}

static void
order_blocks(struct emu_launch *launch)
{
    uint32_t count = launch->waiting;
    launch->order = malloc(count * sizeof *launch->order);
    if (!launch->order)
        emu_out_of_memory("a grid");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = emu_random(i + 1);
        launch->order[i] = launch->order[j];
        launch->order[j] = i;
    }
}

static bool
admit_one(struct emu_launch *launch)
{
    uint32_t sms = (uint32_t)emu.config.sm_count, first = emu_random(sms);
    for (uint32_t i = 0; i < sms; i++) {
        uint32_t sm = (first + i) % sms;
        if (!launch_fits(launch, sm))
            continue;
        launch_occupy(launch, sm, 1);
        start_block(launch, sm);
        return true;
    }
    return false;
}

void
emu_admit_blocks(void)
{
    if (!emu.admit || !emu.launch_count || emu.failed)
        return;
    emu.admit = false;
    size_t first = emu_random((uint32_t)emu.launch_count);
    for (size_t i = 0; i < emu.launch_count; i++) {
        struct emu_launch *l = emu.launches[(first + i) % emu.launch_count];
        if (l->waiting && !l->order)
            order_blocks(l);
        while (l->waiting && admit_one(l))
            ;
    }
}

static void
finish_launch(struct emu_launch *launch)
{
    for (size_t i = 0; i < emu.launch_count; i++)
        if (emu.launches[i] == launch) {
            emu.launches[i] = emu.launches[--emu.launch_count];
            break;
        }
    pthread_mutex_lock(&emu.lock);
    emu_op_finish(launch->op);
    pthread_mutex_unlock(&emu.lock);
}

static void
free_warp(struct emu_warp *warp)
{
    if (warp->copy_agent != EMU_AGENTS)
        emu_agent_give(warp->copy_agent);
    for (int s = 0; s < EMU_SCOPES; s++) {
        free(warp->fence[s]);
        free(warp->seen[s]);
    }
    free(warp->now);
    emu_agent_give(warp->agent);
}

static void
free_block(struct emu_block *block)
{
    for (uint32_t g = 0; g * 128 < block->thread_count; g++)
        emu_wgmma_end(block, g);
    emu_mbarriers_end(block);
    emu_meetings_free(block);
    for (uint32_t i = 0; i < block->thread_count; i++) {
        struct emu_thread *t = &block->threads[i];
        emu_bulk_end(t);
        emu_copies_end(t);
        free(t->touched);
        if (t->stack)
            emu_stack_give(t->stack);
    }
    for (uint32_t w = 0; w < block->warp_count; w++)
        free_warp(&block->warps[w]);
    for (int b = 0; b < EMU_BARRIERS; b++)
        free(block->barriers[b].clocks);
    emu_shared_give(block);
    struct emu_block *last = emu.blocks[--emu.block_count];
    emu.blocks[block->slot] = last;
    last->slot = block->slot;
    free(block->threads);
    free(block->warps);
    free(block);
}

/* Ends the block if all its threads have ended and no engine works for it. */
void
emu_block_try_end(struct emu_block *block)
{
    struct emu_launch *launch = block->launch;
    if (block->live || block->async_count)
        return;
    for (uint32_t w = 0; w < block->warp_count; w++) {
        struct emu_warp *warp = &block->warps[w];
        emu_clocks_join(launch->op->clocks, warp->now);
        emu_clocks_raise(
            launch->op->clocks, warp->agent, emu_agent_advance(warp->agent));
    }
    launch_occupy(launch, block->sm, -1);
    free_block(block);
    emu.admit = true;
    launch->live--;
    if (!launch->live && !launch->waiting)
        finish_launch(launch);
}

void
emu_thread_ended(struct emu_thread *thread)
{
    struct emu_block *block = thread->block;
    emu_progress();
    emu_meetings_check_exit(thread);
    thread->warp->live &= ~(1u << thread->lane);
    block->live--;
    emu_stack_give(thread->stack);
    thread->stack = NULL;
    if (emu.failed)
        return;
    if (block->live)
        emu_barrier_thread_ended(block);
    else
        emu_block_try_end(block);
}

/* Called after a fatal fault: nothing that runs or waits is continued.
 * Operations in flight, and what they hold, are forgotten. */
void
emu_abort_all(void)
{
    emu.async_count = 0;
    emu.ready_count = 0;
    while (emu.block_count) {
        struct emu_block *block = emu.blocks[emu.block_count - 1];
        launch_occupy(block->launch, block->sm, -1);
        block->live = 0;
        free_block(block);
    }
    while (emu.launch_count)
        finish_launch(emu.launches[0]);
}
