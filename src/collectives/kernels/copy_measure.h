/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of copies by measurement, on a few cores in some tens of
 * milliseconds.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_MEASURE_H
#define ULI_COLLECTIVES_KERNELS_COPY_MEASURE_H

#include "collectives/kernels/copy_choice.h"

/* Starts from the defaults; another way must be clearly faster to replace one.
 * Up to four threads run meanwhile, with 4 MiB each. Defaults stay where there
 * is no thread or memory, or where time is over (a busy machine).
 * Returns whether everything was measured; else the choice must not be
 * cached. */
bool uli_copy_measure(struct uli_copy_choice *choice_p);

#endif
