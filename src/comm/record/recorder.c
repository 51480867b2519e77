/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder; see recorder.h.
 */
#include "comm/record/recorder.h"

#include <stdio.h>
#include <string.h>
#include "comm/comm.h"

/* The most ranks of a communicator (api_comm.c): bounds the work of readers. */
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
        &call->fingerprint, entry->fingerprint, memory_order_release);
    atomic_store_explicit(
        &call->begun_ns, entry->begun_ns, memory_order_release);
    atomic_store_explicit(&call->ended_ns, 0, memory_order_release);
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
uli_recorder_end(struct uli_recorder *recorder, uint64_t serial,
    ulyx_status_t status, int64_t ended_ns)
{
    struct uli_recorded_call *call = recorder_at(recorder, serial);

    if (!recorder_holds(recorder, serial))
        return;
    atomic_store_explicit(&call->ended_ns, ended_ns, memory_order_relaxed);
    atomic_store_explicit(&call->status, status, memory_order_release);
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

/* ---- awaited peers ------------------------------------------------------- */

const char *
uli_recorder_stage_name(int32_t stage)
{
    static const char *const names[ULI_STAGES] = {
        [ULI_STAGE_UNKNOWN] = "unknown",
        [ULI_STAGE_AWAY] = "away",
        [ULI_STAGE_OPENS] = "opens",
        [ULI_STAGE_MOVES] = "moves"};

    return stage >= 0 && stage < ULI_STAGES ? names[stage] : "unknown";
}

void
uli_recorder_miss(struct uli_recorder_progress *progress,
    const struct uli_recorded_peer *peer)
{
    if (progress->missing++ < ULI_RECORDED_PEERS)
        progress->peers[progress->npeers++] = *peer;
}

void
uli_recorder_note(
    struct uli_recorder *recorder, const struct uli_recorder_progress *progress)
{
    struct uli_recorded_progress *to = &recorder->progress;

    if (progress->serial == 0 ||
        atomic_exchange_explicit(&to->writing, 1, memory_order_acquire) != 0)
        return;
    atomic_store_explicit(&to->serial, 0, memory_order_relaxed);
    atomic_store_explicit(&to->stage, progress->stage, memory_order_release);
    atomic_store_explicit(
        &to->missing, progress->missing, memory_order_release);
    for (int i = 0; i < progress->npeers; i++) {
        const struct uli_recorded_peer *peer = &progress->peers[i];

        atomic_store_explicit(
            &to->peers[i].rank, peer->rank, memory_order_release);
        atomic_store_explicit(
            &to->peers[i].stage, peer->stage, memory_order_release);
        atomic_store_explicit(
            &to->peers[i].sent_chunks, peer->sent_chunks, memory_order_release);
        atomic_store_explicit(&to->peers[i].received_chunks,
            peer->received_chunks, memory_order_release);
    }
    atomic_store_explicit(&to->serial, progress->serial, memory_order_release);
    atomic_store_explicit(&to->writing, 0, memory_order_release);
}

bool
uli_recorder_doubts(const struct uli_recorder *recorder, int32_t rank)
{
    const struct uli_recorded_progress *progress = &recorder->progress;

    int32_t missing = atomic_load(&progress->missing);

    if (atomic_load(&progress->serial) != atomic_load(&recorder->serial))
        return false;
    for (int32_t i = 0; i < missing && i < ULI_RECORDED_PEERS; i++)
        if (atomic_load(&progress->peers[i].rank) == rank)
            return atomic_load(&progress->peers[i].stage) == ULI_STAGE_UNKNOWN;
    return false;
}

/* ---- calls begun --------------------------------------------------------- */

void
uli_recorder_count(
    struct uli_recorder *recorder, uint64_t plan, uint64_t number)
{
    struct uli_recorded_plan *place =
        &recorder->plans[plan % ULI_RECORDED_PLANS];

    if (atomic_load_explicit(&place->plan, memory_order_relaxed) != plan) {
        atomic_store(&place->number, 0);
        atomic_store(&place->plan, plan);
    }
    atomic_store_explicit(&place->number, number, memory_order_release);
}

enum uli_begun
uli_recorder_begun(
    const struct uli_recorder *recorder, const struct uli_call_key *key)
{
    const struct uli_recorded_plan *place =
        &recorder->plans[key->plan % ULI_RECORDED_PLANS];
    uint64_t number;

    if (key->call != ULI_CALL_RESHUFFLE && key->call != ULI_CALL_ALLTOALL)
        return atomic_load(&recorder->collectives) > key->number ? ULI_BEGUN_YES
                                                                 : ULI_BEGUN_NO;
    number = atomic_load(&place->number);
    if (number == 0)
        return atomic_load(&place->plan) == 0 ? ULI_BEGUN_NO
                                              : ULI_BEGUN_UNKNOWN;
    if (atomic_load(&place->plan) != key->plan ||
        atomic_load(&place->number) != number)
        return ULI_BEGUN_UNKNOWN;
    return number >= key->number ? ULI_BEGUN_YES : ULI_BEGUN_NO;
}

/* ---- reading ------------------------------------------------------------- */

/* Unprintable characters become '?': the text goes to terminals. */
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
    copy.fingerprint =
        atomic_load_explicit(&call->fingerprint, memory_order_acquire);
    copy.begun_ns = atomic_load_explicit(&call->begun_ns, memory_order_acquire);
    copy.call = atomic_load_explicit(&call->call, memory_order_acquire);
    copy.direction =
        atomic_load_explicit(&call->direction, memory_order_acquire);
    copy.awaited = atomic_load_explicit(&call->awaited, memory_order_acquire);
    copy.status = atomic_load_explicit(&call->status, memory_order_acquire);
    copy.ended_ns = atomic_load_explicit(&call->ended_ns, memory_order_acquire);
    if (atomic_load_explicit(&call->serial, memory_order_relaxed) != serial)
        return false;
    if (copy.awaited < 0 || copy.awaited >= nranks)
        copy.awaited = -1;
    *call_p = copy;
    return true;
}

static bool
peer_read(const struct uli_recorded_progress *progress, int at, int32_t nranks,
    struct uli_recorded_peer *peer_p)
{
    struct uli_recorded_peer peer = {
        .rank = atomic_load_explicit(
            &progress->peers[at].rank, memory_order_acquire),
        .stage = atomic_load_explicit(
            &progress->peers[at].stage, memory_order_acquire),
        .sent_chunks = atomic_load_explicit(
            &progress->peers[at].sent_chunks, memory_order_acquire),
        .received_chunks = atomic_load_explicit(
            &progress->peers[at].received_chunks, memory_order_acquire)};

    *peer_p = peer;
    return peer.rank >= 0 && peer.rank < nranks && peer.stage >= 0 &&
           peer.stage < ULI_STAGES;
}

/* Empty where the record makes no sense, or is overwritten during the read. */
static void
progress_read(const struct uli_recorded_progress *progress, int32_t nranks,
    struct uli_recorder_progress *progress_p)
{
    struct uli_recorder_progress copy = {
        .serial =
            atomic_load_explicit(&progress->serial, memory_order_acquire)};

    *progress_p = (struct uli_recorder_progress){0};
    copy.stage = atomic_load_explicit(&progress->stage, memory_order_acquire);
    copy.missing =
        atomic_load_explicit(&progress->missing, memory_order_acquire);
    if (copy.serial == 0 || copy.stage < 0 || copy.stage >= ULI_STAGES ||
        copy.missing < 0 || copy.missing > nranks)
        return;
    for (; copy.npeers < copy.missing && copy.npeers < ULI_RECORDED_PEERS;
         copy.npeers++)
        if (!peer_read(progress, copy.npeers, nranks, &copy.peers[copy.npeers]))
            return;
    if (atomic_load_explicit(&progress->serial, memory_order_relaxed) ==
        copy.serial)
        *progress_p = copy;
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
    progress_read(&recorder->progress, copy.nranks, &copy.progress);
    *copy_p = copy;
    return true;
}
