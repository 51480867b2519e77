/* SPDX-License-Identifier: Apache-2.0
 *
 * wgmma: a warpgroup's products, in order, each at some moment between issue
 * and wait. While a product is in flight its accumulators belong to the
 * engine: the lanes' arrays hold NaN, and touching them is a fault; the wait
 * that covers the product puts the results back. wgmma.fence is checked by
 * noting which words of a fibre's stack plain code touched since the last one.
 *
 * Row r of A belongs to warp r/16 of the group, so its bytes must be ordered
 * before that warp's issue; B's before the issue of all four warps.
 */
#include "emulate/engine/wgmma.h"

enum { GROUP = 128, WARPS = 4, ROWS = 64 };

struct accumulator {
    int n;
    uint32_t last_group, lanes_left;
    float *lane[GROUP]; /* the lane's array, on the stack of its fibre */
    float *value;       /* [64][n] */
    struct accumulator *next;
};

struct product {
    int type, n, scale_d, trans_a, trans_b;
    bool registers, computed;
    uint32_t (*a)[4]; /* of each lane, when A is in registers */
    uint64_t desc_a, desc_b;
    struct accumulator *d;
    uint32_t group, clock;
    /* of each warp; the last one has only what all warps have */
    struct emu_clocks *clocks[WARPS + 1];
    struct product *next;
};

struct emu_wgmma {
    struct emu_async async;
    /* whether the engine is in the list of asynchronous operations */
    bool running;
    uint32_t agent;
    struct product *first, **last;
    struct accumulator *accumulators;
    /* groups that are closed; those of them that are computed */
    uint32_t groups, done_groups;
    /* of each group: products left, and the clock of its last product */
    uint32_t *left, *clock;
    size_t left_room, clock_room;
    struct emu_queue queue;
};

struct wgmma_lane {
    float *d;
    const uint32_t *a;
};

static void
open_group(struct emu_wgmma *engine)
{
    emu_grow(&engine->left, &engine->left_room, engine->groups + 1,
        sizeof *engine->left);
    emu_grow(&engine->clock, &engine->clock_room, engine->groups + 1,
        sizeof *engine->clock);
    engine->left[engine->groups] = engine->clock[engine->groups] = 0;
}

static struct emu_wgmma *
engine_of(struct emu_thread *self)
{
    struct emu_wgmma **slot = &self->block->wgmma[self->index / GROUP];
    if (*slot)
        return *slot;
    struct emu_wgmma *engine = calloc(1, sizeof *engine);
    if (!engine)
        emu_out_of_memory("wgmma");
    engine->agent = emu_agent_take(
        "wgmma of warpgroup", self->block->number, self->index / GROUP);
    engine->last = &engine->first;
    open_group(engine);
    return *slot = engine;
}

/* Returns the row and the column of register i of thread t. */
static uint32_t
acc_place(uint32_t t, uint32_t i, int n)
{
    uint32_t row = 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 & 1);
    return row * (uint32_t)n + 8 * (i / 4) + 2 * (t % 4) + (i & 1);
}

/* ---- registers ---- */
static bool
operand_touched(const struct emu_thread *t, const void *p, size_t bytes)
{
    size_t first = (size_t)((const unsigned char *)p - t->stack) / 4;
    for (size_t i = first; i < first + bytes / 4; i++)
        if (i < EMU_STACK_BYTES / 4 && t->touched[i / 64] >> i % 64 & 1)
            return true;
    return false;
}

void
emu_wgmma_fence(void)
{
    struct emu_thread *self = emu.self;
    size_t bytes = EMU_STACK_BYTES / 4 / 8;
    if (!self->touched)
        self->touched = malloc(bytes);
    if (!self->touched)
        emu_out_of_memory("register marks");
    memset(self->touched, 0, bytes);
}

void
emu_register_access(
    struct emu_thread *self, uintptr_t address, size_t bytes, bool write)
{
    size_t first = (address - (uintptr_t)self->stack) / 4;
    for (size_t i = first; i < first + (bytes + 3) / 4; i++)
        if (i < EMU_STACK_BYTES / 4)
            self->touched[i / 64] |= 1ull << i % 64;
    if (!self->in_flight)
        return;
    const struct emu_wgmma *engine = self->block->wgmma[self->index / GROUP];
    for (const struct accumulator *d = engine->accumulators; d; d = d->next) {
        uintptr_t base = (uintptr_t)d->lane[self->index % GROUP];
        if (base && address < base + (size_t)d->n * 2 && base < address + bytes)
            emu_fault(EMU_FAULT_WGMMA, 1 + write,
                "an accumulator is %s while its wgmma is in flight%s",
                write ? "written" : "read", emu_here());
    }
}

static void
check_fenced(const struct emu_thread *threads, void **data, int n)
{
    for (uint32_t t = 0; t < GROUP; t++) {
        const struct wgmma_lane *lane = data[t];
        if (threads[t].touched &&
            !operand_touched(&threads[t], lane->d, (size_t)n * 2) &&
            !(lane->a && operand_touched(&threads[t], lane->a, 16)))
            continue;
        emu_fault(EMU_FAULT_WGMMA, 3,
            "wgmma on registers that were touched since the last wgmma.fence, "
            "or without one (thread %u)%s",
            t, emu_here());
        return;
    }
}

static struct accumulator *
find_accumulator(struct emu_wgmma *engine, void **data, int n)
{
    struct accumulator *d = engine->accumulators;
    while (d && d->lane[0] != ((struct wgmma_lane *)data[0])->d)
        d = d->next;
    if (d && d->n != n)
        emu_fault_fatal(EMU_FAULT_WGMMA,
            "wgmma of n = %d on accumulators in flight with n = %d%s", n, d->n,
            emu_here());
    return d;
}

static struct accumulator *
take_accumulator(
    struct emu_wgmma *engine, struct emu_thread *threads, void **data, int n)
{
    struct accumulator *d = find_accumulator(engine, data, n);
    if (d)
        return d;
    d = calloc(1, sizeof *d);
    if (!d || !(d->value = malloc((size_t)ROWS * (size_t)n * sizeof(float))))
        emu_out_of_memory("accumulators");
    d->n = n;
    d->lanes_left = GROUP;
    for (uint32_t t = 0; t < GROUP; t++) {
        float *array = ((struct wgmma_lane *)data[t])->d;
        for (uint32_t i = 0; i < (uint32_t)n / 2; i++)
            d->value[acc_place(t, i, n)] = array[i];
        emu_poison(array, (size_t)n * 2);
        d->lane[t] = array;
        threads[t].in_flight++;
    }
    d->next = engine->accumulators;
    engine->accumulators = d;
    return d;
}

/* ---- issue ---- */
static void
keep_clocks(struct product *p, struct emu_warp *warps)
{
    struct emu_clocks *all = emu_clocks_new();
    for (uint32_t w = 0; w < WARPS; w++) {
        struct emu_warp *warp = &warps[w];
        emu_clocks_raise(warp->now, warp->agent, emu_agent_clock(warp->agent));
        emu_agent_advance(warp->agent);
        p->clocks[w] = emu_clocks_new();
        emu_clocks_copy(p->clocks[w], warp->now);
    }
    emu_clocks_copy(all, p->clocks[0]);
    for (uint32_t w = 1; w < WARPS; w++)
        emu_clocks_meet(all, p->clocks[w]);
    p->clocks[WARPS] = all;
}

static void
keep_registers(struct product *p, void **data)
{
    p->a = malloc(GROUP * sizeof *p->a);
    if (!p->a)
        emu_out_of_memory("wgmma");
    for (uint32_t t = 0; t < GROUP; t++)
        for (uint32_t j = 0; j < 4; j++)
            p->a[t][j] = ((struct wgmma_lane *)data[t])->a[j];
}

static void
check_descriptor(uint64_t bits, const char *name)
{
    struct emu_descriptor d = emu_descriptor_decode(bits);
    const char *problem = emu_descriptor_problem(&d);
    if (problem)
        emu_fault(EMU_FAULT_WGMMA, (uint64_t)(uintptr_t)problem,
            "wgmma descriptor of %s: %s%s", name, problem, emu_here());
}

static bool wgmma_step(struct emu_async *async);

/* operands: type and n; a; b; scale_d, the transposes and whether A is in
 * registers */
static void
meet_act(const struct emu_meet *meet, struct emu_warp *warp, void **data)
{
    struct emu_block *block = warp->block;
    struct emu_wgmma *engine = engine_of(emu.self);
    uint32_t group = emu.self->index / GROUP;
    struct emu_thread *threads = block->threads + group * GROUP;
    struct product *p = calloc(1, sizeof *p);
    if (!p)
        emu_out_of_memory("wgmma");
    p->type = (int)(meet->operands[0] >> 16);
    p->n = (int)(meet->operands[0] & 0xffff);
    p->desc_a = meet->operands[1];
    p->desc_b = meet->operands[2];
    p->scale_d = (int)(meet->operands[3] & 1);
    p->trans_a = (int)(meet->operands[3] >> 1 & 1);
    p->trans_b = (int)(meet->operands[3] >> 2 & 1);
    p->registers = meet->operands[3] >> 3 & 1;
    check_fenced(threads, data, p->n);
    if (p->registers)
        keep_registers(p, data);
    else
        check_descriptor(p->desc_a, "A");
    check_descriptor(p->desc_b, "B");
    keep_clocks(p, block->warps + group * WARPS);
    p->d = take_accumulator(engine, threads, data, p->n);
    p->d->last_group = p->group = engine->groups;
    p->clock = emu_agent_advance(engine->agent);
    engine->left[p->group]++;
    engine->clock[p->group] = p->clock;
    *engine->last = p;
    engine->last = &p->next;
    engine->async.step = wgmma_step;
    if (!engine->running)
        emu_async_add(&engine->async, block);
    engine->running = true;
}

void
emu_wgmma(int type, int n, float *d, const uint32_t *a_registers, uint64_t a,
    uint64_t b, int scale_d, int trans_a, int trans_b)
{
    struct wgmma_lane mine = {d, a_registers};
    struct emu_meet meet = {"wgmma.mma_async", UINT32_MAX,
        {(uint64_t)type << 16 | (uint64_t)n, a, b,
            (uint64_t)(scale_d != 0) | (uint64_t)trans_a << 1 |
                (uint64_t)trans_b << 2 | (uint64_t)(a_registers != NULL) << 3},
        meet_act};
    emu_meet_group(&meet, &mine);
}

/* ---- execution ---- */
static void
unpack_registers(const struct product *p, float (*tile)[EMU_K16])
{
    for (uint32_t t = 0; t < GROUP; t++)
        for (uint32_t j = 0; j < 4; j++)
            for (uint32_t h = 0; h < 2; h++) {
                uint16_t v = (uint16_t)(p->a[t][j] >> 16 * h);
                uint32_t row = 16 * (t / 32) + t % 32 / 4 + 8 * (j & 1);
                tile[row][2 * (t % 4) + 8 * (j / 2) + h] =
                    p->type == EMU_BF16 ? emu_bf16_to_float(v)
                                        : emu_f16_to_float(v);
            }
}

static bool
load_operands(struct emu_wgmma *engine, const struct product *p,
    float (*a)[EMU_K16], float (*b)[EMU_K16])
{
    struct emu_block *block = engine->async.block;
    struct emu_accessor who[WARPS], all[WARPS];
    for (uint32_t w = 0; w < WARPS; w++) {
        who[w] = (struct emu_accessor){.clocks = p->clocks[w],
            .agent = engine->agent,
            .clock = p->clock,
            .async = true,
            .block = block,
            .device = block->launch->device,
            .what = "wgmma's read of A"};
        all[w] = who[w];
        all[w].clocks = p->clocks[WARPS];
        all[w].what = "wgmma's read of B";
    }
    struct emu_descriptor da = emu_descriptor_decode(p->desc_a);
    struct emu_descriptor db = emu_descriptor_decode(p->desc_b);
    if (p->registers)
        unpack_registers(p, a);
    else if (!emu_descriptor_load(&da, p->type, p->trans_a, ROWS, who, a))
        return false;
    return emu_descriptor_load(
        &db, p->type, p->trans_b, (uint32_t)p->n, all, b);
}

static void
product_compute(struct emu_wgmma *engine, struct product *p)
{
    static float a[ROWS][EMU_K16], b[256][EMU_K16], bt[EMU_K16][256];
    if (!load_operands(engine, p, a, b))
        return;
    for (int n = 0; n < p->n; n++)
        for (int k = 0; k < EMU_K16; k++)
            bt[k][n] = b[n][k];
    for (int m = 0; m < ROWS; m++) {
        float *restrict d = p->d->value + (size_t)m * (size_t)p->n;
        float sum[256] = {0};
        for (int k = 0; k < EMU_K16; k++)
            for (int n = 0; n < p->n; n++)
                sum[n] += a[m][k] * bt[k][n];
        for (int n = 0; n < p->n; n++)
            d[n] = p->scale_d ? d[n] + sum[n] : sum[n];
    }
}

static void
free_product(struct product *p)
{
    for (int w = 0; w <= WARPS; w++)
        free(p->clocks[w]);
    free(p->a);
    free(p);
}

static bool
wgmma_step(struct emu_async *async)
{
    struct emu_wgmma *engine = (struct emu_wgmma *)async;
    struct product *p = engine->first;
    if (!p->computed) {
        p->computed = true;
        product_compute(engine, p);
        return false;
    }
    engine->first = p->next;
    if (!engine->first)
        engine->last = &engine->first;
    engine->left[p->group]--;
    emu_wake_all(&engine->queue);
    free_product(p);
    if (engine->first)
        return false;
    engine->running = false;
    emu_async_remove(&engine->async);
    return true;
}

/* ---- groups ---- */
static void
act_commit(const struct emu_meet *meet, struct emu_warp *warp, void **data)
{
    struct emu_wgmma *engine = engine_of(emu.self);
    (void)meet, (void)warp, (void)data;
    engine->groups++;
    open_group(engine);
}

void
emu_wgmma_commit(void)
{
    struct emu_meet meet = {"wgmma.commit_group", UINT32_MAX, {0}, act_commit};
    emu_meet_group(&meet, NULL);
}

static bool
groups_pending(const struct emu_wgmma *engine, uint32_t groups)
{
    for (uint32_t g = engine->done_groups; g < groups; g++)
        if (engine->left[g])
            return true;
    return false;
}

/* Writes back the lane's part of all accumulators whose last product is in the
 * first `groups` groups. */
static void
give_back(struct emu_wgmma *engine, struct emu_thread *self, uint32_t groups)
{
    uint32_t t = self->index % GROUP;
    struct accumulator **link = &engine->accumulators;
    while (*link) {
        struct accumulator *d = *link;
        if (d->last_group < groups && d->lane[t]) {
            for (uint32_t i = 0; i < (uint32_t)d->n / 2; i++)
                d->lane[t][i] = d->value[acc_place(t, i, d->n)];
            d->lane[t] = NULL;
            self->in_flight--;
            if (--d->lanes_left == 0) {
                *link = d->next;
                free(d->value);
                free(d);
                continue;
            }
        }
        link = &d->next;
    }
}

void
emu_wgmma_wait(uint32_t left)
{
    struct emu_thread *self = emu.self;
    struct emu_wgmma *engine = engine_of(self);
    uint32_t groups = engine->groups > left ? engine->groups - left : 0;
    while (groups_pending(engine, groups))
        emu_park(
            &engine->queue, "wgmma groups, at most %llu left", left, 0, false);
    for (uint32_t g = 0; g < groups; g++)
        if (engine->clock[g])
            emu_clocks_raise(self->warp->now, engine->agent, engine->clock[g]);
    give_back(engine, self, groups);
}

void
emu_wgmma_end(struct emu_block *block, uint32_t group)
{
    struct emu_wgmma *engine = block->wgmma[group];
    if (!engine)
        return;
    if (engine->accumulators && !emu.failed)
        emu_fault(EMU_FAULT_WGMMA, 4,
            "block %u of %s ended with a wgmma that no wait_group covers",
            block->number, block->launch->name);
    while (engine->first) {
        struct product *p = engine->first;
        engine->first = p->next;
        free_product(p);
    }
    while (engine->accumulators) {
        struct accumulator *d = engine->accumulators;
        engine->accumulators = d->next;
        free(d->value);
        free(d);
    }
    emu_clocks_raise(block->launch->op->clocks, engine->agent,
        emu_agent_clock(engine->agent));
    emu_agent_give(engine->agent);
    free(engine->left);
    free(engine->clock);
    free(engine);
    block->wgmma[group] = NULL;
}
