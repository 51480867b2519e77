/* SPDX-License-Identifier: Apache-2.0
 *
 * The one list of schedules: the ways in which ranks of several nodes exchange
 * bytes. A row is X(ID, name). The name is what `algo`, ULYX_ALGO and the rules
 * of a tuning file accept; ID is that of the enum (topology/model/schedule.h).
 *
 * Each row has a model, `uli_model_of_<name>` (schedule_model.h), which has
 * the schedule's cost, and an execution, `uli_schedule_<name>`
 * (exchange_schedule.h). No other code depends on the schedule, so a new
 * schedule is a row here and the files of these two (docs/howto/schedule.md has
 * the rest).
 *
 * The list is in the lowest layer because the settings use the names.
 */
#ifndef ULI_BASE_SCHEDULES_H
#define ULI_BASE_SCHEDULES_H

#define ULI_SCHEDULE_LIST(X)                                                   \
    X(DIRECT, direct)                                                          \
    X(PAIRWISE, pairwise)                                                      \
    X(HIER, hier)

/* The names as literals: "|direct|pairwise|hier", "direct, pairwise, hier, ",
 * and the latter with each name in quotes. */
#define ULI_SCHEDULE_CHOICE(ID, name) "|" #name
#define ULI_SCHEDULE_WORD(ID, name)   #name ", "
#define ULI_SCHEDULE_QUOTE(ID, name)  "\"" #name "\", "
#define ULI_SCHEDULE_CHOICES          ULI_SCHEDULE_LIST(ULI_SCHEDULE_CHOICE)
#define ULI_SCHEDULE_WORDS            ULI_SCHEDULE_LIST(ULI_SCHEDULE_WORD)
#define ULI_SCHEDULE_QUOTED           ULI_SCHEDULE_LIST(ULI_SCHEDULE_QUOTE)

#endif
