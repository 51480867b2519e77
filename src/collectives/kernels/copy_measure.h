/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of copies by measurement, by a few cores in some tens of
 * milliseconds.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_MEASURE_H
#define ULI_COLLECTIVES_KERNELS_COPY_MEASURE_H

#include "collectives/kernels/copy_choice.h"

/* Starts from the defaults; another way must be clearly faster to take a
 * default's place. Up to four threads run for the while, with 16 MiB each;
 * without them, and where time is over (a machine that is busy), defaults
 * stay. returns whether all was measured: what was not is not to be kept. */
bool uli_copy_measure(struct uli_copy_choice *choice_p);

#endif
