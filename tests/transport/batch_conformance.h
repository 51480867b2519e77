/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of ULI_TR_BATCH: the contract of batch.h, for any
 * transport, between ranks that are threads. A test program of such a transport
 * defines batch_subject: the transport, and functions for its memory and
 * streams.
 */
#ifndef TESTS_TRANSPORT_BATCH_CONFORMANCE_H
#define TESTS_TRANSPORT_BATCH_CONFORMANCE_H

#include "support/test.h"
#include "transport/transport.h"

enum { BATCH_RANKS = 4 };

struct batch_scene {
    const struct uli_tr_ops *transport;
    /* Called before ranks begin and after all have ended. close: not 0 where
     * something is left. */
    int (*open)(void);
    int (*close)(void);
    /* At each rank, collective: begin gives the parameters, except id and
     * deadline; end frees the memory of alloc. */
    bool (*begin)(int rank, int nranks, struct uli_batch_params *params_p);
    bool (*end)(int rank);
    /* Memory for pieces, and copies to and from it. */
    void *(*alloc)(int rank, size_t bytes);
    bool (*copy)(int rank, void *dst, const void *src, size_t bytes);
    void *(*stream)(int rank);
    /* Waits until all work on the rank's stream has ended. */
    bool (*settle)(int rank);
};
extern const struct batch_scene batch_subject;

void batch_moves_every_byte(void **state);
void batch_keeps_the_order_of_a_pair(void **state);
void batch_leaves_out_ranks(void **state);
void batch_of_one_rank(void **state);
void batch_opens_and_closes(void **state);
void batch_open_ends_without_a_rank(void **state);
void batch_abort_ends_its_stream(void **state);
void batch_abort_forbids_runs(void **state);
void batch_is_checked_while_it_runs(void **state);
void batch_describes_itself(void **state);

static const struct CMUnitTest batch_tests[] = {
    cmocka_unit_test(batch_moves_every_byte),
    cmocka_unit_test(batch_keeps_the_order_of_a_pair),
    cmocka_unit_test(batch_leaves_out_ranks),
    cmocka_unit_test(batch_of_one_rank),
    cmocka_unit_test(batch_opens_and_closes),
    cmocka_unit_test(batch_open_ends_without_a_rank),
    cmocka_unit_test(batch_abort_ends_its_stream),
    cmocka_unit_test(batch_abort_forbids_runs),
    cmocka_unit_test(batch_is_checked_while_it_runs),
    cmocka_unit_test(batch_describes_itself),
};

#endif
