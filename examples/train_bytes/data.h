/* SPDX-License-Identifier: Apache-2.0
 *
 * The text, and the batches drawn from it. Every rank draws the whole batch,
 * which has a few bytes per token, and then takes its own rows. So labels are
 * shifted on the whole sequence, before it is sharded, and the last token of a
 * rank has a label like any other.
 */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include "options.h"

#include <stdint.h>

enum { VOCABULARY = 256 };

struct corpus {
    unsigned char *bytes;
    int64_t count;
    double entropy; /* of single bytes, in nats: the loss of a model that knows
                     * only how often each byte occurs */
};

/* Reads the files one after another; without files, README.md and docs/ of
 * ulyx. The caller frees by corpus_free. returns: 0, or 2 after a message. */
int corpus_load(struct corpus *corpus_p, char *const *files, int file_count);
void corpus_free(struct corpus *corpus);

/* The sequence of one step: documents of random lengths, from random places of
 * the text. */
struct batch {
    int64_t seq, docs;
    int64_t predicted;     /* number of labels that are not negative */
    unsigned char *tokens; /* [seq] */
    int32_t *labels;    /* [seq] the next byte; at the end of a document -1 */
    int64_t *positions; /* [seq] within the document */
    int64_t *begins;    /* [docs + 1] cumulative */
};

/* The caller frees by batch_free. returns: 0, or 2 after a message. */
int batch_create(struct batch *batch_p, int64_t seq, int64_t docs);
void batch_free(struct batch *batch);
/* Draws the batch of a step, which depends only on corpus, seed and step. */
void batch_draw(struct batch *batch, const struct corpus *corpus, int64_t seed,
    int64_t step);

/* The next number of splitmix64, and a normal deviate made from it. */
uint64_t random_next(uint64_t *state);
double random_normal(uint64_t *state);

#endif
