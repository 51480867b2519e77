/* SPDX-License-Identifier: Apache-2.0
 *
 * kernelcheck --bench --vs torch: forward on a card, ours beside
 * FlashAttention-2 and cuDNN through PyTorch.
 */
#ifndef TESTS_ATTENTION_KERNELCHECK_BENCH_BENCH_CARD_H
#define TESTS_ATTENTION_KERNELCHECK_BENCH_BENCH_CARD_H

#include <stdbool.h>
#include <stdint.h>
#include "attention/kernelcheck/kc.h"

/* A forward problem without features: bf16, [b][s][h][d] in memory. */
struct kc_card_row {
    int64_t dim, heads, len, batch;
    bool causal;
};

/* ---- card_peer.c: the process that runs PyTorch. Start it before the first
 * CUDA call, as it is forked. */
enum { KC_PEERS = 2 };
extern const char *const kc_peer_names[KC_PEERS]; /* "cudnn", "fa2" */
struct kc_peer {
    int pid;
    void *to, *from; /* FILE */
    char version[128];
};

/* false: no python3 with torch and a device; version has the reason. */
bool kc_peer_start(struct kc_peer *peer_p);
/* Makes the row's tensors in the peer process; returns which peers take
 * them. */
bool kc_peer_row(struct kc_peer *peer, const struct kc_card_row *row,
    bool takes_p[KC_PEERS]);
/* Milliseconds of one of `repeats` calls in a row; negative: it has died. */
double kc_peer_run(struct kc_peer *peer, int which, int repeats);
void kc_peer_stop(struct kc_peer *peer);

/* ---- bench_card.c, and bench_card_none.c in builds without CUDA. Returns the
 * exit status: 0, 1 where a call failed, 77 where there is no card. */
int kc_bench_card(const struct kc_options *options);

#endif
