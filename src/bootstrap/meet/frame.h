/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of the bootstrap's streams, used after a connection was
 * authenticated: a header of 24 bytes, little-endian, and a payload.
 *
 *     0  'U' 'F'   2  type   3  zero   4  round (32 bits)
 *     8  payload bytes (64 bits)      16  argument (64 bits, signed)
 *
 * The reader accepts a stream in pieces of any size, never reads past the end
 * of a frame, and allocates no more than the maximum payload that its owner
 * sets.
 */
#ifndef ULI_BOOTSTRAP_MEET_FRAME_H
#define ULI_BOOTSTRAP_MEET_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ULI_FRAME_HEADER_BYTES = 24,
    ULI_RECORD_BYTES_MAX = 65536, /* of one rank in one gather */
    ULI_JOIN_BYTES_MAX = 256,
    ULI_FRAME_TEXT_MAX = 1024
};

enum uli_frame_type {
    ULI_FRAME_JOIN = 1, /* rank to root: the rank's join; argument: how long it
                         * will wait, ms */
    ULI_FRAME_RECORD,   /* rank to root: its record; argument: how long it will
                         * wait, ms */
    ULI_FRAME_BYE,      /* rank to root: the rank leaves in order */
    ULI_FRAME_TABLE,    /* root to rank: all ranks' bytes */
    ULI_FRAME_ERROR,    /* both ways: argument = status, payload = text */
    ULI_FRAME_TYPE_END
};

struct uli_frame {
    enum uli_frame_type type;
    uint32_t round;
    uint64_t bytes; /* of the payload */
    int64_t argument;
};

void uli_frame_encode(const struct uli_frame *frame, unsigned char *header_p);
/* False: the header is not one of ulyx. */
bool uli_frame_decode(const unsigned char *header, struct uli_frame *frame_p);

enum uli_frame_result {
    ULI_FRAME_MORE,  /* all given bytes are taken, the frame is not complete */
    ULI_FRAME_READY, /* frame and payload are complete */
    ULI_FRAME_BAD,   /* `why` has the reason; the stream is lost */
};

/* Zeroed by its owner, then payload_max is set. */
struct uli_frame_reader {
    uint64_t payload_max; /* a longer payload is BAD */
    struct uli_frame frame;
    unsigned char *payload; /* frame.bytes bytes, owned by the reader */
    const char *why;        /* static */
    unsigned char header[ULI_FRAME_HEADER_BYTES];
    size_t capacity;
    uint64_t have; /* bytes of header and payload so far */
};

/* Takes up to `bytes` bytes, *used_p of them. After READY the frame stays
 * until uli_frame_reader_next; after BAD only free may follow. */
enum uli_frame_result uli_frame_reader_feed(struct uli_frame_reader *reader,
    const void *data, size_t bytes, size_t *used_p);
void uli_frame_reader_next(struct uli_frame_reader *reader);
void uli_frame_reader_free(struct uli_frame_reader *reader);

/* A rank's own description, sent when it joins. */
struct uli_join {
    int32_t rank, nranks;
    char name[80]; /* host:pid */
};
/* returns the payload's length, at most ULI_JOIN_BYTES_MAX. */
size_t uli_join_encode(const struct uli_join *join, unsigned char *payload_p);
bool uli_join_decode(
    const unsigned char *payload, uint64_t bytes, struct uli_join *join_p);

#endif
