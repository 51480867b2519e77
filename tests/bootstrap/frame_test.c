/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame reader. Whole streams, cut at random places, are compared with a
 * list of what was written. Randomly damaged streams may be refused, but the
 * reader must not read beyond them (guard bytes, and the sanitizers, find
 * this).
 */
#include "bootstrap/meet/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/buffers.h"
#include "support/random.h"
#include "support/test.h"

enum { FRAMES = 12, PAYLOAD_MAX = 300, STREAM_MAX = FRAMES * 512 };

struct stream {
    struct uli_frame frames[FRAMES];
    unsigned char payloads[FRAMES][PAYLOAD_MAX];
    unsigned char bytes[STREAM_MAX];
    size_t count;
};

static void
write_stream(struct test_random *random, struct stream *stream)
{
    stream->count = 0;
    for (int i = 0; i < FRAMES; i++) {
        struct uli_frame *frame = &stream->frames[i];
        frame->type = (enum uli_frame_type)test_random_in(
            random, ULI_FRAME_JOIN, ULI_FRAME_TYPE_END - 1);
        frame->round = (uint32_t)test_random_next(random);
        frame->bytes = (uint64_t)test_random_in(random, 0, PAYLOAD_MAX);
        if (test_random_in(random, 0, 3) == 0)
            frame->bytes = 0;
        frame->argument = (int64_t)test_random_next(random);
        uli_frame_encode(frame, stream->bytes + stream->count);
        stream->count += ULI_FRAME_HEADER_BYTES;
        for (uint64_t b = 0; b < frame->bytes; b++)
            stream->payloads[i][b] = (unsigned char)test_random_next(random);
        memcpy(stream->bytes + stream->count, stream->payloads[i],
            (size_t)frame->bytes);
        stream->count += (size_t)frame->bytes;
    }
}

static void
assert_frame(
    const struct uli_frame_reader *reader, const struct stream *stream, int i)
{
    assert_true(i < FRAMES);
    assert_int_equal(reader->frame.type, stream->frames[i].type);
    assert_int_equal(reader->frame.round, stream->frames[i].round);
    assert_int_equal(reader->frame.bytes, stream->frames[i].bytes);
    assert_int_equal(reader->frame.argument, stream->frames[i].argument);
    if (reader->frame.bytes)
        assert_memory_equal(
            reader->payload, stream->payloads[i], (size_t)reader->frame.bytes);
}

/* Each piece is fed from a buffer of its own size, so that a sanitizer reports
 * a read beyond it. */
static enum uli_frame_result
feed_piece(struct uli_frame_reader *reader, const struct stream *stream,
    size_t at, size_t bytes, size_t *used_p)
{
    unsigned char *piece = malloc(bytes + (bytes == 0));
    memcpy(piece, stream->bytes + at, bytes);
    enum uli_frame_result result =
        uli_frame_reader_feed(reader, piece, bytes, used_p);
    free(piece);
    assert_true(*used_p <= bytes);
    return result;
}

static void
reader_takes_streams_cut_anywhere(void **state)
{
    (void)state;
    struct test_random random = {test_seed(20250101)};
    int64_t draws = test_draws(400);
    static struct stream stream;
    for (int64_t draw = 0; draw < draws; draw++) {
        struct uli_frame_reader reader = {.payload_max = PAYLOAD_MAX};
        size_t at = 0, used = 0;
        int frames = 0;
        write_stream(&random, &stream);
        while (at < stream.count) {
            int64_t most = test_random_in(&random, 0, 2) ? 5 : 700;
            size_t bytes = (size_t)test_random_in(&random, 0, most);
            if (bytes > stream.count - at)
                bytes = stream.count - at;
            enum uli_frame_result result =
                feed_piece(&reader, &stream, at, bytes, &used);
            assert_int_not_equal(result, ULI_FRAME_BAD);
            at += used;
            if (result == ULI_FRAME_MORE) {
                assert_int_equal(used, bytes);
                continue;
            }
            assert_frame(&reader, &stream, frames++);
            uli_frame_reader_next(&reader);
        }
        assert_int_equal(frames, FRAMES);
        uli_frame_reader_free(&reader);
    }
}

/* Feeds a whole stream. Returns whether the reader refused it. */
static bool
read_damaged(struct test_random *random, const struct stream *stream)
{
    struct uli_frame_reader reader = {.payload_max = PAYLOAD_MAX};
    enum uli_frame_result result = ULI_FRAME_MORE;
    size_t at = 0, used = 0;
    while (at < stream->count && result != ULI_FRAME_BAD) {
        size_t bytes =
            (size_t)test_random_in(random, 1, (int64_t)(stream->count - at));
        result = feed_piece(&reader, stream, at, bytes, &used);
        at += used;
        assert_true(reader.capacity <= PAYLOAD_MAX);
        if (result == ULI_FRAME_READY) {
            assert_true(reader.frame.bytes <= PAYLOAD_MAX);
            uli_frame_reader_next(&reader);
        }
    }
    if (result == ULI_FRAME_BAD)
        assert_non_null(reader.why);
    uli_frame_reader_free(&reader);
    return result == ULI_FRAME_BAD;
}

static void
reader_survives_damage(void **state)
{
    (void)state;
    struct test_random random = {test_seed(20250102)};
    int64_t draws = test_draws(2000), refused = 0;
    static struct stream stream;
    for (int64_t draw = 0; draw < draws; draw++) {
        write_stream(&random, &stream);
        int64_t damages = test_random_in(&random, 1, 8);
        for (int64_t i = 0; i < damages; i++) {
            int64_t last = (int64_t)stream.count - 1;
            int64_t at = test_random_in(&random, 0, last);
            stream.bytes[at] ^=
                (unsigned char)(1 << test_random_in(&random, 0, 7));
        }
        refused += read_damaged(&random, &stream);
    }
    printf("%lld of %lld damaged streams refused\n", (long long)refused,
        (long long)draws);
    assert_true(refused > draws / 10);
}

static void
reader_refuses_noise(void **state)
{
    (void)state;
    struct test_random random = {test_seed(20250103)};
    int64_t draws = test_draws(2000);
    static struct stream stream;
    for (int64_t draw = 0; draw < draws; draw++) {
        stream.count = 200;
        for (size_t i = 0; i < stream.count; i++)
            stream.bytes[i] = (unsigned char)test_random_next(&random);
        stream.bytes[0] = (unsigned char)(stream.bytes[0] == 'U' ? 'V' : 'u');
        assert_true(read_damaged(&random, &stream));
    }
}

static void
reader_refuses_a_long_payload_before_it_allocates(void **state)
{
    (void)state;
    unsigned char header[ULI_FRAME_HEADER_BYTES];
    const uint64_t sizes[] = {101, UINT64_C(1) << 32, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        struct uli_frame frame = {ULI_FRAME_RECORD, 1, sizes[i], 0};
        struct uli_frame_reader reader = {.payload_max = 100};
        size_t used;
        uli_frame_encode(&frame, header);
        assert_int_equal(
            uli_frame_reader_feed(&reader, header, sizeof(header), &used),
            ULI_FRAME_BAD);
        assert_string_equal(reader.why, "frame too long");
        assert_null(reader.payload);
        uli_frame_reader_free(&reader);
    }
}

static void
join_survives_any_bytes(void **state)
{
    (void)state;
    struct test_random random = {test_seed(20250104)};
    int64_t draws = test_draws(2000);
    for (int64_t draw = 0; draw < draws; draw++) {
        struct test_buffer buffer;
        struct uli_join join;
        size_t bytes = (size_t)test_random_in(&random, 0, ULI_JOIN_BYTES_MAX);
        test_buffer_init(&buffer, bytes, 0);
        for (size_t i = 0; i < bytes; i++)
            buffer.data[i] = (unsigned char)test_random_next(&random);
        bool good = uli_join_decode(buffer.data, bytes, &join);
        assert_int_equal(good, bytes >= 8 && bytes - 8 < sizeof(join.name));
        for (const char *at = join.name; good && *at; at++)
            assert_true(*at > ' ' && *at < 0x7F);
        test_buffer_free(&buffer);
    }
}

static void
join_is_decoded_as_it_was_encoded(void **state)
{
    (void)state;
    unsigned char payload[ULI_JOIN_BYTES_MAX];
    struct uli_join join = {-3, 1 << 30, "host:1234"}, back;
    size_t bytes = uli_join_encode(&join, payload);
    assert_true(uli_join_decode(payload, bytes, &back));
    assert_int_equal(back.rank, -3);
    assert_int_equal(back.nranks, 1 << 30);
    assert_string_equal(back.name, "host:1234");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(reader_takes_streams_cut_anywhere),
    cmocka_unit_test(reader_survives_damage),
    cmocka_unit_test(reader_refuses_noise),
    cmocka_unit_test(reader_refuses_a_long_payload_before_it_allocates),
    cmocka_unit_test(join_survives_any_bytes),
    cmocka_unit_test(join_is_decoded_as_it_was_encoded),
};
ULI_TEST_MAIN("Frame", tests)
