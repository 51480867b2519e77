/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes and decodes frames byte by byte; no struct is sent as it lies in
 * memory.
 */
#include "bootstrap/meet/frame.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"

enum { JOIN_FIXED_BYTES = 8 }; /* rank, nranks; then the name */

static void
frame_put32(unsigned char *at, uint32_t value)
{
    uint32_t little = htole32(value);
    memcpy(at, &little, sizeof(little));
}

static void
frame_put64(unsigned char *at, uint64_t value)
{
    uint64_t little = htole64(value);
    memcpy(at, &little, sizeof(little));
}

static uint32_t
frame_get32(const unsigned char *at)
{
    uint32_t little;
    memcpy(&little, at, sizeof(little));
    return le32toh(little);
}

static uint64_t
frame_get64(const unsigned char *at)
{
    uint64_t little;
    memcpy(&little, at, sizeof(little));
    return le64toh(little);
}

void
uli_frame_encode(const struct uli_frame *frame, unsigned char *header_p)
{
    header_p[0] = 'U';
    header_p[1] = 'F';
    header_p[2] = (unsigned char)frame->type;
    header_p[3] = 0;
    frame_put32(header_p + 4, frame->round);
    frame_put64(header_p + 8, frame->bytes);
    frame_put64(header_p + 16, (uint64_t)frame->argument);
}

bool
uli_frame_decode(const unsigned char *header, struct uli_frame *frame_p)
{
    if (header[0] != 'U' || header[1] != 'F' || header[3] != 0)
        return false;
    if (header[2] < ULI_FRAME_JOIN || header[2] >= ULI_FRAME_TYPE_END)
        return false;
    frame_p->type = (enum uli_frame_type)header[2];
    frame_p->round = frame_get32(header + 4);
    frame_p->bytes = frame_get64(header + 8);
    frame_p->argument = (int64_t)frame_get64(header + 16);
    return true;
}

static enum uli_frame_result
reader_bad(struct uli_frame_reader *reader, const char *why)
{
    reader->why = why;
    return ULI_FRAME_BAD;
}

/* The header is complete: allocates room for its payload. */
static enum uli_frame_result
begin_payload(struct uli_frame_reader *reader)
{
    if (!uli_frame_decode(reader->header, &reader->frame))
        return reader_bad(reader, "not a frame");
    if (reader->frame.bytes > reader->payload_max)
        return reader_bad(reader, "frame too long");
    size_t bytes = (size_t)reader->frame.bytes;
    if (bytes > reader->capacity) {
        unsigned char *payload = realloc(reader->payload, bytes);
        if (!payload)
            return reader_bad(reader, "out of memory");
        reader->payload = payload;
        reader->capacity = bytes;
    }
    return ULI_FRAME_MORE;
}

/* Copies the available bytes of [have, end) and returns their number. */
static size_t
reader_take(struct uli_frame_reader *reader, unsigned char *to, uint64_t end,
    const unsigned char *data, size_t bytes)
{
    size_t needed =
        (size_t)uli_min((int64_t)(end - reader->have), (int64_t)bytes);
    if (needed)
        memcpy(to, data, needed);
    reader->have += needed;
    return needed;
}

enum uli_frame_result
uli_frame_reader_feed(struct uli_frame_reader *reader, const void *data,
    size_t bytes, size_t *used_p)
{
    const unsigned char *from = data;
    size_t used = 0;
    *used_p = 0;
    if (reader->have < ULI_FRAME_HEADER_BYTES) {
        used = reader_take(reader, reader->header + reader->have,
            ULI_FRAME_HEADER_BYTES, from, bytes);
        if (reader->have < ULI_FRAME_HEADER_BYTES) {
            *used_p = used;
            return ULI_FRAME_MORE;
        }
        if (begin_payload(reader) == ULI_FRAME_BAD)
            return ULI_FRAME_BAD;
    }
    uint64_t end = ULI_FRAME_HEADER_BYTES + reader->frame.bytes;
    if (reader->have < end)
        used += reader_take(reader,
            reader->payload + (reader->have - ULI_FRAME_HEADER_BYTES), end,
            from + used, bytes - used);
    *used_p = used;
    return reader->have == end ? ULI_FRAME_READY : ULI_FRAME_MORE;
}

void
uli_frame_reader_next(struct uli_frame_reader *reader)
{
    reader->have = 0;
}

void
uli_frame_reader_free(struct uli_frame_reader *reader)
{
    free(reader->payload);
    reader->payload = NULL;
    reader->capacity = 0;
}

size_t
uli_join_encode(const struct uli_join *join, unsigned char *payload_p)
{
    size_t length = strnlen(join->name, sizeof(join->name) - 1);
    frame_put32(payload_p, (uint32_t)join->rank);
    frame_put32(payload_p + 4, (uint32_t)join->nranks);
    memcpy(payload_p + JOIN_FIXED_BYTES, join->name, length);
    return JOIN_FIXED_BYTES + length;
}

/* Logs and errors have the name, so it may have printable ASCII only. */
bool
uli_join_decode(
    const unsigned char *payload, uint64_t bytes, struct uli_join *join_p)
{
    if (bytes < JOIN_FIXED_BYTES ||
        bytes - JOIN_FIXED_BYTES >= sizeof(join_p->name))
        return false;
    size_t length = (size_t)bytes - JOIN_FIXED_BYTES;
    join_p->rank = (int32_t)frame_get32(payload);
    join_p->nranks = (int32_t)frame_get32(payload + 4);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = payload[JOIN_FIXED_BYTES + i];
        join_p->name[i] = c > ' ' && c < 0x7F ? (char)c : '?';
    }
    join_p->name[length] = 0;
    return true;
}
