/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx: sequence-parallel exchange and attention. This header includes all the
 * others.
 */
#ifndef ULYX_ULYX_H
#define ULYX_ULYX_H

#include "ulyx/types.h"
#include "ulyx/comm.h"
#include "ulyx/memory.h"
#include "ulyx/pool.h"
#include "ulyx/collective.h"
#include "ulyx/reshuffle.h"
#include "ulyx/attention.h"
#include "ulyx/dist_attention.h"

#endif
