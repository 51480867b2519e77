/* SPDX-License-Identifier: Apache-2.0
 *
 * Input over a connection of the bootstrap: a stream of frames, cut into pieces
 * whose length the first byte gives; also the payload of a join, and a
 * hello.
 */
#include <stdlib.h>
#include <string.h>
#include "bootstrap/meet/auth.h"
#include "bootstrap/meet/frame.h"
#include "fuzz/fuzz.h"

enum { PAYLOAD_MAX = 4096 };

static void
check_frame(const struct uli_frame_reader *reader)
{
    struct uli_join join;
    if (reader->frame.bytes > PAYLOAD_MAX)
        abort();
    if (uli_join_decode(reader->payload, reader->frame.bytes, &join) &&
        !memchr(join.name, 0, sizeof(join.name)))
        abort();
}

static void
as_stream(const uint8_t *data, size_t bytes, size_t piece)
{
    struct uli_frame_reader reader = {.payload_max = PAYLOAD_MAX};
    enum uli_frame_result result = ULI_FRAME_MORE;
    while (bytes > 0 && result != ULI_FRAME_BAD) {
        size_t used = 0, give = bytes < piece ? bytes : piece;
        result = uli_frame_reader_feed(&reader, data, give, &used);
        if (used > give || (result == ULI_FRAME_MORE && used < give))
            abort();
        data += used;
        bytes -= used;
        if (result == ULI_FRAME_READY) {
            check_frame(&reader);
            uli_frame_reader_next(&reader);
        }
    }
    uli_frame_reader_free(&reader);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    unsigned char hello[ULI_HELLO_BYTES] = {0}, nonce[ULI_NONCE_BYTES];
    unsigned version;
    if (bytes == 0)
        return 0;
    as_stream(data + 1, bytes - 1, (size_t)data[0] + 1);
    memcpy(hello, data, bytes < sizeof(hello) ? bytes : sizeof(hello));
    uli_hello_decode(hello, nonce, &version);
    return 0;
}
