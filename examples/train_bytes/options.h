/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of the command line. A run of the trainer depends only on the
 * options and the text. The number of ranks changes only where work is done, so
 * the other options give the same losses, up to rounding, on any number of
 * ranks.
 */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    int64_t ranks;       /* 1: no communicator at all */
    int64_t steps, seq;  /* seq: tokens of a step, over all ranks */
    int64_t docs;        /* documents packed into a step's sequence */
    int64_t layers, dim; /* dim: width of the residual stream */
    int64_t heads, kv_heads, hidden; /* hidden: width of the SwiGLU */
    int64_t threads;                 /* of a rank; 0: usable cores / ranks */
    double lr, clip, decay;          /* clip: largest global norm; 0 = none */
    int64_t seed;
    double timeout_s;
    bool f64, sgd, balanced, zigzag;
    bool save_none, windows;
    bool device;     /* on the current CUDA device */
    bool as_threads; /* ranks are threads of one process */
    bool no_progress;
    char *const *files; /* the text; none: the repository's documents */
    int file_count;
};

/* Fills *options_p. returns: 0; 1 after --help or the like; 2 after a message
 * about an error. */
int options_parse(int argc, char **argv, struct options *options_p);

/* The defaults, for callers without a command line. */
void options_default(struct options *options_p);

#endif
