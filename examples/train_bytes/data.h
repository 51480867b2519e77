/* SPDX-License-Identifier: Apache-2.0
 *
 * Text, and the batches drawn from it. Every rank draws the whole batch, a few
 * bytes per token, and then takes its rows. So labels are shifted on the whole
 * sequence, before it is sharded, and the last token of a shard is predicted
 * like any other.
 */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include "options.h"

#include <stdint.h>

enum { VOCABULARY = 256 };

struct corpus {
    unsigned char *bytes;
    int64_t count;
    double
        entropy; /* of single bytes, nats: the loss of guessing by frequency */
};

/* Reads the files one after another; without files, README.md and docs/ of the
 * repository. returns: 0, or 2 after a message. corpus_free undoes it. */
int corpus_load(struct corpus *corpus_p, char *const *files, int file_count);
void corpus_free(struct corpus *corpus);

/* One step's sequence: documents of random length from random places. */
struct batch {
    int64_t seq, docs;
    int64_t predicted;     /* number of labels that are not negative */
    unsigned char *tokens; /* [seq] */
    int32_t *labels;       /* [seq] the next byte of the document, -1 at ends */
    int64_t *positions;    /* [seq] within the document */
    int64_t *begins;       /* [docs + 1] cumulative */
};

/* returns: 0, or 2 after a message. batch_free undoes it. */
int batch_create(struct batch *batch_p, int64_t seq, int64_t docs);
void batch_free(struct batch *batch);
/* Draws the batch of a step; depends on corpus, seed and step only. */
void batch_draw(struct batch *batch, const struct corpus *corpus, int64_t seed,
    int64_t step);

/* splitmix64, and a normal deviate from it. */
uint64_t random_next(uint64_t *state);
double random_normal(uint64_t *state);

#endif
