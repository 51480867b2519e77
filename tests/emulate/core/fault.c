/* SPDX-License-Identifier: Apache-2.0
 *
 * The random numbers of a run, and the list of faults.
 */
#include "emulate/core/emu.h"
#include <stdarg.h>

enum { FAULTS_KEPT = 256, TEXT_BYTES = 4096 };

static struct {
    enum emu_fault kind;
    uint64_t key;
    char *text;
} faults[FAULTS_KEPT];
static size_t fault_count;
static bool seed_printed;
static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;

/* splitmix64 */
uint64_t
emu_random_next(void)
{
    uint64_t z = emu.random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t
emu_random(uint32_t bound)
{
    return (uint32_t)((emu_random_next() >> 32) * bound >> 32);
}

void
emu_out_of_memory(const char *what)
{
    fprintf(stderr, "emulator: no memory for %s\n", what);
    abort();
}

void
emu_grow(void *array, size_t *room, size_t needed, size_t item_bytes)
{
    void **p = array;
    if (needed <= *room)
        return;
    size_t wanted = needed * 2 + 16;
    *p = realloc(*p, wanted * item_bytes);
    if (!*p)
        emu_out_of_memory("a list");
    *room = wanted;
}

const char *
emu_here(void)
{
    static char text[160];
    struct emu_thread *t = emu_on_scheduler ? emu.self : NULL;
    if (!t)
        return "";
    snprintf(text, sizeof text, " (%s, device %d, block %u, warp %u, lane %u)",
        t->block->launch->name, t->block->launch->device, t->block->number,
        t->warp->index, t->lane);
    return text;
}

static void
fault_keep(enum emu_fault kind, uint64_t key, const char *format, va_list args)
{
    char text[TEXT_BYTES];
    pthread_mutex_lock(&fault_lock);
    for (size_t i = 0; i < fault_count; i++)
        if (key && faults[i].key == key && faults[i].kind == kind)
            goto out;
    if (fault_count == FAULTS_KEPT)
        goto out;
    vsnprintf(text, sizeof text, format, args);
    if (!emu.config.quiet && !seed_printed) {
        fprintf(stderr, "emulator: seed %llu\n",
            (unsigned long long)emu.config.seed);
        seed_printed = true;
    }
    if (!emu.config.quiet)
        fprintf(stderr, "emulator: %s\n", text);
    faults[fault_count].kind = kind;
    faults[fault_count].key = key;
    faults[fault_count].text = strdup(text);
    fault_count++;
out:
    pthread_mutex_unlock(&fault_lock);
}

void
emu_fault(enum emu_fault kind, uint64_t key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fault_keep(kind, key, format, args);
    va_end(args);
}

/* The scheduler reads emu.failed and then ends all work. */
void
emu_fault_fatal(enum emu_fault kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fault_keep(kind, 0, format, args);
    va_end(args);
    emu.failed = true;
    if (emu_on_scheduler && emu.self) {
        emu.self->state = EMU_DEAD;
        void *unused;
        emu_fibre_switch(&unused, emu.scheduler_sp);
    }
}

void
emu_faults_reset(void)
{
    for (size_t i = 0; i < fault_count; i++)
        free(faults[i].text);
    fault_count = 0;
    seed_printed = false;
}

size_t
emu_fault_count(void)
{
    return fault_count;
}

size_t
emu_fault_count_of(enum emu_fault kind)
{
    size_t count = 0;
    for (size_t i = 0; i < fault_count; i++)
        count += faults[i].kind == kind;
    return count;
}

enum emu_fault
emu_fault_kind(size_t index)
{
    return faults[index].kind;
}

const char *
emu_fault_text(size_t index)
{
    return index < fault_count && faults[index].text ? faults[index].text : "";
}
