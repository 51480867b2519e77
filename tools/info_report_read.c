/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading dumps, which may come from anywhere. A file that is cut off, of
 * another program, or malicious is refused as a whole, with a reason; nothing
 * of the file is used. Sizes are bounded before memory is allocated: those of
 * the file, the communicators of a file, and the calls and peers of a rank.
 * Texts are printed on terminals, so characters that do not print become '?'.
 */
#include "info_report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/system/file.h"
#include "info.h"
#include "ulyx/ulyx.h"

enum { MOST_BYTES = 64 << 20, MOST_COMMS = 4096, MOST_RANKS = 1 << 20 };

/* A file that is being read. */
struct reader {
    struct info_ranks *ranks;
    struct info_mentions *mentions;
    char *why;
    int64_t time_us;
    int code; /* 1: no memory */
};

/* Keeps the reason, unless an earlier one is kept already. */
__attribute__((format(printf, 2, 3))) static void
reader_note(struct reader *reader, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (reader->why[0] == 0)
        vsnprintf(reader->why, INFO_REPORT_WHY, format, arguments);
    va_end(arguments);
}
/* A macro, so that compilers see that its value is false. */
#define reader_refuse(...) (reader_note(__VA_ARGS__), false)

/* ---- members ------------------------------------------------------------- */

static bool
take_number(struct reader *reader, const json_t *object, const char *name,
    int64_t low, int64_t high, int64_t *number_p)
{
    const json_t *value = json_object_get(object, name);
    int64_t number = json_integer_value(value);

    if (!json_is_integer(value) || number < low || number > high)
        return reader_refuse(reader,
            "%s is not a whole number from %" PRId64 " to %" PRId64, name, low,
            high);
    *number_p = number;
    return true;
}

static bool
take_int(struct reader *reader, const json_t *object, const char *name,
    int32_t low, int32_t high, int32_t *number_p)
{
    int64_t number;

    if (!take_number(reader, object, name, low, high, &number))
        return false;
    *number_p = (int32_t)number;
    return true;
}

static bool
take_count(struct reader *reader, const json_t *object, const char *name,
    uint64_t *number_p)
{
    int64_t number;

    if (!take_number(reader, object, name, 0, INT64_MAX, &number))
        return false;
    *number_p = (uint64_t)number;
    return true;
}

static bool
take_text(struct reader *reader, const json_t *object, const char *name,
    char *text_p, size_t bytes)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_string(value))
        return reader_refuse(reader, "%s is not a text", name);
    snprintf(text_p, bytes, "%s", json_string_value(value));
    for (char *c = text_p; *c != 0; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return true;
}

/* 16 hexadecimal digits. */
static bool
take_hex(struct reader *reader, const json_t *object, const char *name,
    uint64_t *number_p)
{
    const char *text = json_string_value(json_object_get(object, name));

    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return reader_refuse(reader, "%s is not 16 hexadecimal digits", name);
    *number_p = strtoull(text, NULL, 16);
    return true;
}

/* Microseconds as nanoseconds; a number that would not fit is refused. */
static bool
take_time(struct reader *reader, const json_t *object, const char *name,
    int64_t *ns_p)
{
    int64_t us;

    if (!take_number(reader, object, name, 0, INT64_MAX / 1000, &us))
        return false;
    *ns_p = us * 1000;
    return true;
}

/* ---- parts --------------------------------------------------------------- */

static bool
reader_take_call(struct reader *reader, const json_t *object, int32_t nranks,
    struct uli_recorder_call *call_p)
{
    struct uli_recorder_call call = {0};
    int32_t kind;

    if (!json_is_object(object))
        return reader_refuse(reader, "a call is not an object");
    if (!take_count(reader, object, "serial", &call.serial) ||
        !take_int(reader, object, "kind", 0, INT32_MAX, &kind) ||
        !take_count(reader, object, "plan", &call.plan) ||
        !take_hex(reader, object, "fingerprint", &call.fingerprint) ||
        !take_count(reader, object, "number", &call.number) ||
        !take_int(reader, object, "direction", INT32_MIN, INT32_MAX,
            &call.direction) ||
        !take_time(reader, object, "begun_us", &call.begun_ns) ||
        !take_int(
            reader, object, "status", INT32_MIN, INT32_MAX, &call.status) ||
        !take_int(reader, object, "awaited", -1, nranks - 1, &call.awaited))
        return false;
    if (!json_is_null(json_object_get(object, "ended_us")) &&
        !take_time(reader, object, "ended_us", &call.ended_ns))
        return false;
    call.call = (uint32_t)kind;
    *call_p = call;
    return true;
}

static bool
reader_take_calls(
    struct reader *reader, const json_t *object, struct uli_recorder_copy *copy)
{
    const json_t *calls = json_object_get(object, "calls");

    if (!json_is_array(calls) || json_array_size(calls) > ULI_RECORDED_CALLS)
        return reader_refuse(
            reader, "calls is not an array of at most %d", ULI_RECORDED_CALLS);
    for (; copy->ncalls < (int)json_array_size(calls); copy->ncalls++)
        if (!reader_take_call(reader,
                json_array_get(calls, (size_t)copy->ncalls), copy->nranks,
                &copy->calls[copy->ncalls]))
            return false;
    return true;
}

static bool
reader_mention(struct reader *reader, const struct uli_recorder_copy *copy,
    int32_t rank, const char *host, int32_t pid)
{
    struct info_mentions *mentions = reader->mentions;
    struct info_mention *mention;

    if (mentions->count == mentions->capacity) {
        size_t capacity = mentions->capacity > 0 ? 2 * mentions->capacity : 64;
        struct info_mention *at = realloc(mentions->at, capacity * sizeof(*at));

        if (!at) {
            reader->code = 1;
            return reader_refuse(reader, "no memory");
        }
        mentions->at = at;
        mentions->capacity = capacity;
    }
    mention = &mentions->at[mentions->count++];
    *mention =
        (struct info_mention){.nranks = copy->nranks, .rank = rank, .pid = pid};
    memcpy(mention->id, copy->id, sizeof(mention->id));
    memcpy(mention->name, copy->name, sizeof(mention->name));
    snprintf(mention->host, sizeof(mention->host), "%s", host);
    return true;
}

static bool
reader_take_stage(struct reader *reader, const json_t *object, int32_t *stage_p)
{
    char name[16];

    if (!take_text(reader, object, "stage", name, sizeof(name)))
        return false;
    for (int32_t stage = 0; stage < ULI_STAGES; stage++)
        if (strcmp(uli_recorder_stage_name(stage), name) == 0) {
            *stage_p = stage;
            return true;
        }
    return reader_refuse(reader, "\"%s\" is not a stage", name);
}

static bool
reader_take_peer(
    struct reader *reader, const json_t *object, struct uli_recorder_copy *copy)
{
    struct uli_recorded_peer *peer =
        &copy->progress.peers[copy->progress.npeers];
    char host[ULI_RECORDER_TEXT];
    int32_t pid;

    if (!take_int(reader, object, "rank", 0, copy->nranks - 1, &peer->rank) ||
        !take_text(reader, object, "host", host, sizeof(host)) ||
        !take_int(reader, object, "pid", 0, INT32_MAX, &pid) ||
        !reader_take_stage(reader, object, &peer->stage) ||
        !take_count(reader, object, "sent_chunks", &peer->sent_chunks) ||
        !take_count(reader, object, "received_chunks", &peer->received_chunks))
        return false;
    copy->progress.npeers++;
    return reader_mention(reader, copy, peer->rank, host, pid);
}

static bool
reader_take_progress(
    struct reader *reader, const json_t *object, struct uli_recorder_copy *copy)
{
    const json_t *progress = json_object_get(object, "progress"), *peers;

    if (json_is_null(progress))
        return true;
    peers = json_object_get(progress, "peers");
    if (!json_is_array(peers) || json_array_size(peers) > ULI_RECORDED_PEERS)
        return reader_refuse(reader,
            "progress has no array of at most %d peers", ULI_RECORDED_PEERS);
    if (!take_count(reader, progress, "serial", &copy->progress.serial) ||
        !reader_take_stage(reader, progress, &copy->progress.stage) ||
        !take_int(reader, progress, "missing", 0, copy->nranks,
            &copy->progress.missing))
        return false;
    for (size_t i = 0; i < json_array_size(peers); i++)
        if (!reader_take_peer(reader, json_array_get(peers, i), copy))
            return false;
    return true;
}

static bool
reader_take_failure(
    struct reader *reader, const json_t *object, struct info_rank *rank)
{
    const json_t *failure = json_object_get(object, "failure");
    char status[64], text[sizeof(rank->failure) - 66];

    if (json_is_null(failure))
        return true;
    if (!take_text(reader, failure, "status", status, sizeof(status)) ||
        !take_text(reader, failure, "text", text, sizeof(text)))
        return false;
    snprintf(rank->failure, sizeof(rank->failure), "%s: %s", status, text);
    return true;
}

/* Adds a mention for each rank that a call awaits: such a rank need not be
 * among the peers. */
static bool
reader_mention_awaited(
    struct reader *reader, const struct uli_recorder_copy *copy)
{
    for (int i = 0; i < copy->ncalls; i++)
        if (copy->calls[i].awaited >= 0 &&
            !reader_mention(reader, copy, copy->calls[i].awaited, "", 0))
            return false;
    return true;
}

static bool
reader_take_comm(struct reader *reader, const json_t *object)
{
    struct info_rank rank = {
        .now_ns = reader->time_us * 1000, .next = -1, .state = '?'};
    struct uli_recorder_copy *copy = &rank.copy;
    uint64_t id;

    if (!json_is_object(object))
        return reader_refuse(reader, "a communicator is not an object");
    if (!take_int(reader, object, "nranks", 1, MOST_RANKS, &copy->nranks) ||
        !take_int(reader, object, "rank", 0, copy->nranks - 1, &copy->rank) ||
        !take_hex(reader, object, "id", &id) ||
        !take_int(reader, object, "pid", 0, INT32_MAX, &copy->pid) ||
        !take_text(reader, object, "name", copy->name, sizeof(copy->name)) ||
        !take_text(reader, object, "host", copy->host, sizeof(copy->host)) ||
        !take_count(reader, object, "collectives", &copy->collectives))
        return false;
    for (int i = 0; i < 8; i++)
        copy->id[i] = (unsigned char)(id >> (56 - 8 * i));
    rank.pid = copy->pid;
    if (!reader_take_failure(reader, object, &rank) ||
        !reader_take_calls(reader, object, copy) ||
        !reader_take_progress(reader, object, copy) ||
        !reader_mention_awaited(reader, copy))
        return false;
    reader->code = info_ranks_add(reader->ranks, &rank);
    return reader->code == 0 || reader_refuse(reader, "no memory");
}

static bool
reader_take_dump(struct reader *reader, const json_t *root)
{
    const json_t *comms = json_object_get(root, "communicators");
    int64_t form;

    if (!json_is_object(root) || !json_object_get(root, "ulyx_dump"))
        return reader_refuse(reader, "not a dump of ulyx");
    if (!take_number(reader, root, "ulyx_dump", INT64_MIN, INT64_MAX, &form))
        return false;
    if (form != 1)
        return reader_refuse(reader,
            "a dump of form %" PRId64 "; this program reads form 1", form);
    if (!take_number(
            reader, root, "time_us", 0, INT64_MAX / 1000, &reader->time_us))
        return false;
    if (!json_is_array(comms) || json_array_size(comms) > MOST_COMMS)
        return reader_refuse(
            reader, "communicators is not an array of at most %d", MOST_COMMS);
    for (size_t i = 0; i < json_array_size(comms); i++)
        if (!reader_take_comm(reader, json_array_get(comms, i)))
            return false;
    return true;
}

/* ---- the file ------------------------------------------------------------ */

int
info_report_read(const char *path, struct info_ranks *ranks,
    struct info_mentions *mentions, char why_p[INFO_REPORT_WHY])
{
    struct reader reader = {.ranks = ranks, .mentions = mentions, .why = why_p};
    char *text, why[ULI_FILE_WHY];
    int ranks_before = ranks->count;
    size_t bytes, mentions_before = mentions->count;
    json_error_t error;
    json_t *root;
    bool good;

    why_p[0] = 0;
    if (uli_file_read(path, MOST_BYTES, &text, &bytes, why) != ULYX_SUCCESS) {
        snprintf(why_p, INFO_REPORT_WHY, "%s", why);
        return -1;
    }
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!root) {
        snprintf(why_p, INFO_REPORT_WHY, "not JSON: line %d: %.120s",
            error.line, error.text);
        for (char *c = why_p; *c != 0; c++)
            *c = *c < ' ' || *c > '~' ? '?' : *c;
        return -1;
    }
    good = reader_take_dump(&reader, root);
    json_decref(root);
    if (good)
        return 0;
    ranks->count = ranks_before;
    mentions->count = mentions_before;
    return reader.code != 0 ? 1 : -1;
}
