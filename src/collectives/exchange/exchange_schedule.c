/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of schedules.
 */
#include "collectives/exchange/exchange_schedule.h"

#define ROW(ID, name) [ULI_ALGO_##ID] = &uli_schedule_##name,

const struct uli_schedule_ops *
uli_schedule_of(enum uli_algo algo)
{
    static const struct uli_schedule_ops *const rows[ULI_ALGOS] = {
        ULI_SCHEDULE_LIST(ROW)};
    return rows[algo];
}
