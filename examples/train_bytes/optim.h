/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD and AdamW. Parameters, summed gradients and moments are equal on all
 * ranks, bit for bit, so every rank makes the same update, and nothing needs to
 * be sent.
 */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include "model/model.h"

struct optimizer {
    real *first, *second; /* [values] moments; NULL with SGD */
};

/* returns: 0, or 3 after a message. */
int optimizer_create(struct optimizer *optimizer_p, const struct model *model);
void optimizer_destroy(struct optimizer *optimizer);
/* The global norm of the summed gradient. */
double optimizer_norm(const struct model *model);
/* One update; step counts from 0, norm is the gradient's global norm. */
void optimizer_step(struct optimizer *optimizer, struct model *model,
    int64_t step, double norm);

#endif
