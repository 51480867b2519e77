/* SPDX-License-Identifier: Apache-2.0
 *
 * kernelcheck --bench --vs torch: attention on a card, variants of ours beside
 * cuDNN and FlashAttention through Python.
 */
#ifndef TESTS_ATTENTION_KERNELCHECK_BENCH_BENCH_CARD_H
#define TESTS_ATTENTION_KERNELCHECK_BENCH_BENCH_CARD_H

#include <stdbool.h>
#include <stdint.h>
#include "attention/kernelcheck/kc.h"
#include "attention/problem.h"

/* A problem of bf16, [b][s][h][d] in memory. docs: each batch item is cut into
 * so many documents of equal length; 0: none. */
struct kc_card_row {
    int64_t dim_qk, dim_v, heads, heads_kv, len, batch, docs;
    bool causal, backward;
};

/* ---- card_variant.c: what of ours is measured. ---- */
enum { KC_VARIANTS = 6 }; /* at most so many side by side */
struct uli_sm90_family;
struct kc_card_variant {
    char name[24];
    /* of the device table; NULL: the first row that takes the problem */
    const char *row;
    /* families that replace the kernels of the row sm90, or NULL */
    const struct uli_sm90_family *const *families;
};

/* Parses names with commas between them. Returns their number, or 0 if there
 * are more than KC_VARIANTS or, after printing its name to stderr, if one is
 * unknown. */
int kc_variants_parse(const char *names, struct kc_card_variant *variants_p);
/* Prints all names. */
void kc_variants_print(void);

/* ---- card_setup.c: the tensors of a problem, and our calls on them. ---- */
struct kc_card_setup {
    struct kc_card_row row;
    struct uli_attn_call call;
    const struct uli_sm90_family *family;
    void *memory[16];
    int count;
    void *begin, *end; /* cudaEvent_t */
};

/* Prints failures to stderr. */
bool kc_setup_init(struct kc_card_setup *s, const struct kc_card_row *row);
/* Selects the variant for later calls. Returns false if the variant does not
 * take the problem. */
bool kc_setup_choose(
    struct kc_card_setup *s, const struct kc_card_variant *variant);
/* Enqueues a call of the row's pass. */
bool kc_setup_enqueue(struct kc_card_setup *s);
/* Makes `repeats` calls in a row. Returns the milliseconds per call; negative
 * if one failed. */
double kc_setup_run(struct kc_card_setup *s, int repeats);
void kc_setup_free(struct kc_card_setup *s);

/* ---- peers.c: the peers' names. ---- */
enum { KC_PEERS = 4 };
extern const char *const kc_peer_names[KC_PEERS]; /* "cudnn", "fa2", .. */
/* Returns whether the text is "torch", for all peers, or names of peers with
 * commas between them. */
bool kc_peers_known(const char *names);

/* ---- card_peer.c: the process that runs PyTorch. Start it before the first
 * CUDA call, as it is forked. */
struct kc_peer {
    int pid;
    void *to, *from; /* FILE */
    char version[512];
};

/* Returns false if there is no python3 with torch and a device; then version
 * has the reason. Otherwise version also names the requested peers that are not
 * installed. */
bool kc_peer_start(struct kc_peer *peer_p, const char *names);
/* Makes the tensors of the row in the peer process. takes_p: which peers take
 * the row. */
bool kc_peer_row(struct kc_peer *peer, const struct kc_card_row *row,
    bool takes_p[KC_PEERS]);
/* Makes `repeats` calls in a row. Returns the milliseconds per call; negative
 * if the process has died. */
double kc_peer_run(struct kc_peer *peer, int which, int repeats);
void kc_peer_stop(struct kc_peer *peer);

/* ---- bench_card.c, and bench_card_none.c in builds without CUDA. Returns the
 * exit status: 0, 1 where a call failed, 77 where there is no card. */
int kc_bench_card(const struct kc_options *options);

#endif
