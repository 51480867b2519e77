/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a dump: JSON of version 1, read by ulyx_info report. Times are
 * microseconds since 1970: the monotonic clock plus one difference, so that
 * dumps of several hosts can be compared. All numbers are whole, because a
 * locale does not change those; fingerprints and ids are hexadecimal text. Of a
 * communicator's id only the half that grants no access over a network is
 * written.
 *
 *     {"ulyx_dump": 1, "version": "0.2.0", "cause": "error", "host": "node5",
 *      "pid": 412, "time_us": ..., "communicators": [{"name": "train",
 *       "id": "...", "rank": 3, "nranks": 8, "host": ..., "pid": ...,
 *       "node": 0, "nodes": 2, "failure": null or {"status": ..., "text": ...},
 *       "collectives": 5,
 *       "calls": [{"serial": 9, "call": "reshuffle", "kind": 10, "plan": 2,
 *        "fingerprint": "...", "number": 7, "direction": 0, "begun_us": ...,
 *        "ended_us": null, "status": 1, "awaited": 5}, ...], newest first
 *       "progress": null or {"serial": 9, "stage": "moves", "missing": 1,
 *        "peers": [{"rank": 5, "host": ..., "pid": ..., "stage": "away",
 *         "sent_chunks": 0, "received_chunks": 0}]}}]}
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "comm/record/dump.h"
#include "ulyx/version.h"

enum { FIRST_BYTES = 16384 };

/* ---- pieces -------------------------------------------------------------- */

static bool
text_reserve(struct uli_dump_text *text, size_t more)
{
    size_t bytes = text->bytes > 0 ? text->bytes : FIRST_BYTES;
    char *at;

    while (bytes - text->length <= more)
        bytes *= 2;
    if (bytes == text->bytes)
        return true;
    at = realloc(text->at, bytes);
    if (!at) {
        text->failed = true;
        return false;
    }
    text->at = at;
    text->bytes = bytes;
    return true;
}

__attribute__((format(printf, 2, 3))) static void
text_print(struct uli_dump_text *text, const char *format, ...)
{
    va_list arguments;
    char piece[512];
    int length;

    va_start(arguments, format);
    length = vsnprintf(piece, sizeof(piece), format, arguments);
    va_end(arguments);
    if (length < 0 || length >= (int)sizeof(piece))
        text->failed = true;
    if (text->failed || !text_reserve(text, (size_t)length))
        return;
    memcpy(text->at + text->length, piece, (size_t)length + 1);
    text->length += (size_t)length;
}

/* Other characters than printable ASCII become '?'. */
static void
text_print_string(struct uli_dump_text *text, const char *string)
{
    size_t length = strlen(string);

    if (text->failed || !text_reserve(text, 2 * length + 2))
        return;
    text->at[text->length++] = '"';
    for (size_t i = 0; i < length; i++) {
        char c = string[i];

        if (c == '"' || c == '\\')
            text->at[text->length++] = '\\';
        text->at[text->length++] = (char)(c < ' ' || c > '~' ? '?' : c);
    }
    text->at[text->length++] = '"';
    text->at[text->length] = 0;
}

/* Numbers come from memory that peers can write; bits beyond the range of JSON
 * readers are cut off. */
static uint64_t
number_of(uint64_t number)
{
    return number & INT64_MAX;
}

static int64_t
clock_wall_us(const struct uli_dump_text *text, int64_t monotonic_ns)
{
    int64_t sum;

    if (__builtin_add_overflow(text->wall_ns, monotonic_ns, &sum))
        return 0;
    return sum / 1000;
}

/* ---- parts --------------------------------------------------------------- */

static void
text_add_call(
    struct uli_dump_text *text, const struct uli_recorder_call *call, bool next)
{
    text_print(text, "%s\n{\"serial\":%" PRIu64 ",\"call\":", next ? "," : "",
        number_of(call->serial));
    text_print_string(text, uli_call_name((enum uli_call)call->call));
    text_print(text,
        ",\"kind\":%" PRIu32 ",\"plan\":%" PRIu64
        ",\"fingerprint\":\"%016" PRIx64 "\",\"number\":%" PRIu64
        ",\"direction\":%" PRId32 ",\"begun_us\":%" PRId64 ",\"ended_us\":",
        call->call, number_of(call->plan), call->fingerprint,
        number_of(call->number), call->direction,
        clock_wall_us(text, call->begun_ns));
    if (call->status != ULYX_IN_PROGRESS && call->ended_ns != 0)
        text_print(text, "%" PRId64, clock_wall_us(text, call->ended_ns));
    else
        text_print(text, "null");
    text_print(text, ",\"status\":%" PRId32 ",\"awaited\":%" PRId32 "}",
        call->status, call->awaited);
}

static void
text_add_identity(
    struct uli_dump_text *text, const ulyx_comm_t *comm, int32_t p)
{
    const struct uli_identity *identity = &comm->peers[p].identity;

    text_print(text, "\"rank\":%" PRId32 ",\"host\":", p);
    text_print_string(text, identity->host);
    text_print(text, ",\"pid\":%" PRId32, identity->pid);
}

static void
text_add_progress(struct uli_dump_text *text, const ulyx_comm_t *comm,
    const struct uli_recorder_progress *progress)
{
    if (progress->serial == 0) {
        text_print(text, "null");
        return;
    }
    text_print(text,
        "{\"serial\":%" PRIu64 ",\"stage\":\"%s\",\"missing\":%d,"
        "\"peers\":[",
        number_of(progress->serial), uli_recorder_stage_name(progress->stage),
        progress->missing);
    for (int i = 0; i < progress->npeers; i++) {
        const struct uli_recorded_peer *peer = &progress->peers[i];

        text_print(text, "%s\n{", i > 0 ? "," : "");
        text_add_identity(text, comm, peer->rank);
        text_print(text,
            ",\"stage\":\"%s\",\"sent_chunks\":%" PRIu64
            ",\"received_chunks\":%" PRIu64 "}",
            uli_recorder_stage_name(peer->stage), number_of(peer->sent_chunks),
            number_of(peer->received_chunks));
    }
    text_print(text, "]}");
}

static void
text_add_failure(struct uli_dump_text *text, ulyx_comm_t *comm)
{
    ulyx_status_t status = atomic_load(&comm->failed);
    char words[ULI_FAILURE_BYTES];

    text_print(text, ",\"failure\":");
    if (status == ULYX_SUCCESS) {
        text_print(text, "null");
        return;
    }
    text_print(text, "{\"status\":");
    text_print_string(text, ulyx_status_name(status));
    text_print(text, ",\"text\":");
    text_print_string(text, uli_comm_failure_text(comm, words));
    text_print(text, "}");
}

static void
text_add_recorder(struct uli_dump_text *text, ulyx_comm_t *comm,
    const struct uli_recorder_copy *copy)
{
    text_print(text, "%s\n{\"name\":", text->ncomms++ > 0 ? "," : "");
    text_print_string(text, comm->name);
    text_print(text, ",\"id\":\"");
    for (size_t i = sizeof(comm->id) / 2; i < sizeof(comm->id); i++)
        text_print(text, "%02x", comm->id[i]);
    text_print(text, "\",\"nranks\":%d,\"nodes\":%d,\"node\":%d,", comm->nranks,
        comm->nnodes, comm->peers[comm->rank].node);
    text_add_identity(text, comm, comm->rank);
    text_add_failure(text, comm);
    text_print(text, ",\"collectives\":%" PRIu64 ",\"calls\":[",
        number_of(copy->collectives));
    for (int i = 0; i < copy->ncalls; i++)
        text_add_call(text, &copy->calls[i], i > 0);
    text_print(text, "],\"progress\":");
    text_add_progress(text, comm, &copy->progress);
    text_print(text, "}");
}

/* ---- the whole ----------------------------------------------------------- */

void
uli_dump_text_begin(
    struct uli_dump_text *text, enum uli_dump_cause cause, const char *host)
{
    static const char *const causes[] = {[ULI_DUMP_ERROR] = "error",
        [ULI_DUMP_SIGNAL] = "signal",
        [ULI_DUMP_CALL] = "call"};
    struct timespec wall;
    int64_t now_ns = uli_clock_ns();

    *text = (struct uli_dump_text){0};
    clock_gettime(CLOCK_REALTIME, &wall);
    text->wall_ns =
        (int64_t)wall.tv_sec * 1000000000 + (int64_t)wall.tv_nsec - now_ns;
    text_print(text,
        "{\"ulyx_dump\":1,\"version\":\"%d.%d.%d\",\"cause\":\"%s\",\"host\":",
        ULYX_VERSION_MAJOR, ULYX_VERSION_MINOR, ULYX_VERSION_PATCH,
        causes[cause]);
    text_print_string(text, host);
    text_print(text, ",\"pid\":%d,\"time_us\":%" PRId64 ",\"communicators\":[",
        (int)getpid(), clock_wall_us(text, now_ns));
}

/* A communicator that is being created has no recorder yet. */
void
uli_dump_text_add(struct uli_dump_text *text, ulyx_comm_t *comm)
{
    struct uli_recorder_copy copy;

    if (uli_recorder_read(
            &comm->control->recorder, sizeof(comm->control->recorder), &copy))
        text_add_recorder(text, comm, &copy);
}

void
uli_dump_text_end(struct uli_dump_text *text)
{
    text_print(text, "]}\n");
    if (!text->failed)
        return;
    free(text->at);
    text->at = NULL;
}
