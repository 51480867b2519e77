/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in messages.
 */
#ifndef ULI_BASE_RANK_LIST_H
#define ULI_BASE_RANK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef bool (*uli_rank_chosen_fn)(const void *context, int32_t rank);

/* "3, 5-7": the ranks of 0 .. nranks-1 for which chosen() is true; a list that
 * does not fit ends in " and 12 more". */
void uli_rank_ranges(int32_t nranks, uli_rank_chosen_fn chosen,
    const void *context, char *text_p, size_t bytes);

/* As above, after "rank " or "ranks ". */
void uli_rank_list_text(int32_t nranks, uli_rank_chosen_fn chosen,
    const void *context, char *text_p, size_t bytes);
/* As above, where the chosen ranks are some of `count`. */
void uli_rank_list_text_of(int32_t count, int32_t nranks,
    uli_rank_chosen_fn chosen, const void *context, char *text_p, size_t bytes);

#endif
