/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder; see recorder.h.
 */
#include "comm/record/recorder.h"

#include <stdio.h>
#include <string.h>

/* What a communicator may have (api_comm.c): bounds the work of who reads. */
enum { MOST_RANKS = 1 << 20 };

void
uli_recorder_open(
    struct uli_recorder *recorder, const struct uli_recorder_owner *owner)
{
    recorder->rank = owner->rank;
    recorder->nranks = owner->nranks;
    recorder->pid = owner->pid;
    memcpy(recorder->id, owner->id, sizeof(recorder->id));
    snprintf(recorder->name, sizeof(recorder->name), "%s", owner->name);
    snprintf(recorder->host, sizeof(recorder->host), "%s", owner->host);
    atomic_store_explicit(
        &recorder->magic, ULI_RECORDER_MAGIC, memory_order_release);
}

static struct uli_recorded_call *
recorder_at(struct uli_recorder *recorder, uint64_t serial)
{
    return &recorder->calls[serial % ULI_RECORDED_CALLS];
}

uint64_t
uli_recorder_begin(
    struct uli_recorder *recorder, const struct uli_recorder_entry *entry)
{
    uint64_t serial =
        atomic_fetch_add_explicit(&recorder->serial, 1, memory_order_relaxed) +
        1;
    struct uli_recorded_call *call = recorder_at(recorder, serial);

    atomic_store_explicit(&call->serial, 0, memory_order_relaxed);
    atomic_store_explicit(&call->plan, entry->plan, memory_order_release);
    atomic_store_explicit(&call->number, entry->number, memory_order_release);
    atomic_store_explicit(
        &call->begun_ns, entry->begun_ns, memory_order_release);
    atomic_store_explicit(&call->call, entry->call, memory_order_release);
    atomic_store_explicit(
        &call->direction, entry->direction, memory_order_release);
    atomic_store_explicit(&call->awaited, -1, memory_order_release);
    atomic_store_explicit(
        &call->status, ULYX_IN_PROGRESS, memory_order_release);
    atomic_store_explicit(&call->serial, serial, memory_order_release);
    return serial;
}

static bool
recorder_holds(struct uli_recorder *recorder, uint64_t serial)
{
    return serial != 0 &&
           atomic_load_explicit(&recorder_at(recorder, serial)->serial,
               memory_order_relaxed) == serial;
}

void
uli_recorder_await(struct uli_recorder *recorder, uint64_t serial, int32_t rank)
{
    if (recorder_holds(recorder, serial))
        atomic_store_explicit(&recorder_at(recorder, serial)->awaited, rank,
            memory_order_relaxed);
}

void
uli_recorder_end(
    struct uli_recorder *recorder, uint64_t serial, ulyx_status_t status)
{
    if (recorder_holds(recorder, serial))
        atomic_store_explicit(&recorder_at(recorder, serial)->status, status,
            memory_order_release);
}

int32_t
uli_recorder_awaited(const struct uli_recorder *recorder)
{
    uint64_t serial =
        atomic_load_explicit(&recorder->serial, memory_order_acquire);
    const struct uli_recorded_call *call =
        &recorder->calls[serial % ULI_RECORDED_CALLS];

    if (serial == 0 ||
        atomic_load_explicit(&call->serial, memory_order_acquire) != serial ||
        atomic_load(&call->status) != ULYX_IN_PROGRESS)
        return -1;
    return atomic_load(&call->awaited);
}

/* ---- reading ------------------------------------------------------------- */

/* What does not print becomes '?': the text goes to terminals. */
static void
text_clean(char text[ULI_RECORDER_TEXT])
{
    text[ULI_RECORDER_TEXT - 1] = 0;
    for (char *c = text; *c != 0; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static bool
call_read(const struct uli_recorded_call *call, uint64_t serial, int32_t nranks,
    struct uli_recorder_call *call_p)
{
    struct uli_recorder_call copy = {.serial = serial};

    if (atomic_load_explicit(&call->serial, memory_order_acquire) != serial)
        return false;
    copy.plan = atomic_load_explicit(&call->plan, memory_order_acquire);
    copy.number = atomic_load_explicit(&call->number, memory_order_acquire);
    copy.begun_ns = atomic_load_explicit(&call->begun_ns, memory_order_acquire);
    copy.call = atomic_load_explicit(&call->call, memory_order_acquire);
    copy.direction =
        atomic_load_explicit(&call->direction, memory_order_acquire);
    copy.awaited = atomic_load_explicit(&call->awaited, memory_order_acquire);
    copy.status = atomic_load_explicit(&call->status, memory_order_acquire);
    if (atomic_load_explicit(&call->serial, memory_order_relaxed) != serial)
        return false;
    if (copy.awaited < 0 || copy.awaited >= nranks)
        copy.awaited = -1;
    *call_p = copy;
    return true;
}

bool
uli_recorder_read(
    const void *memory, int64_t bytes, struct uli_recorder_copy *copy_p)
{
    const struct uli_recorder *recorder = memory;
    struct uli_recorder_copy copy = {0};
    uint64_t last;

    if (bytes < (int64_t)sizeof(*recorder) ||
        atomic_load_explicit(&recorder->magic, memory_order_acquire) !=
            ULI_RECORDER_MAGIC)
        return false;
    copy.rank = recorder->rank;
    copy.nranks = recorder->nranks;
    copy.pid = recorder->pid;
    if (copy.nranks < 1 || copy.nranks > MOST_RANKS || copy.rank < 0 ||
        copy.rank >= copy.nranks)
        return false;
    memcpy(copy.id, recorder->id, sizeof(copy.id));
    memcpy(copy.name, recorder->name, sizeof(copy.name));
    memcpy(copy.host, recorder->host, sizeof(copy.host));
    text_clean(copy.name);
    text_clean(copy.host);
    copy.collectives =
        atomic_load_explicit(&recorder->collectives, memory_order_relaxed);
    last = atomic_load_explicit(&recorder->serial, memory_order_relaxed);
    for (uint64_t i = 0; i < ULI_RECORDED_CALLS && i < last; i++)
        if (call_read(&recorder->calls[(last - i) % ULI_RECORDED_CALLS],
                last - i, copy.nranks, &copy.calls[copy.ncalls]))
            copy.ncalls++;
    *copy_p = copy;
    return true;
}
