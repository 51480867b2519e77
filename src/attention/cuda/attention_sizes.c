/* SPDX-License-Identifier: Apache-2.0
 *
 * The workspace of attention on device memory. Bounds, with r runs, at most m
 * documents, and h = the number of heads with segments, 1 without:
 *   units <= 2 r + h m   a run has a unit for each document that it overlaps,
 *                        and one more. With segments a document overlaps runs
 *                        of each head. A document that begins in one run and
 *                        ends in the next has a unit in both, which adds at
 *                        most one unit per run
 *   tiles <= rows / tile_rows + 2 units   each unit has two ends that do not
 *                                         fill a tile
 */
#include "attention/cuda/attention_gpu.h"
#include "base/size.h"

#define PART 64

static bool
add_part(int64_t count, int64_t each, int64_t *bytes, int64_t *at_p)
{
    int64_t part;
    *at_p = *bytes;
    return uli_size_mul(count, each, &part) &&
           uli_size_add(part, PART - 1, &part) &&
           uli_size_add(*bytes, part / PART * PART, bytes);
}

bool
uli_gpu_attn_sizes(int64_t batch, int64_t rows, int64_t heads, int64_t max_docs,
    int64_t nsegments, int64_t tile_rows, struct uli_gpu_attn_sizes *sizes_p)
{
    struct uli_gpu_attn_sizes s = {.runs = nsegments >= 0 ? nsegments : batch};
    int64_t twice, docs, words;
    if (!uli_size_mul(s.runs, 2, &twice) ||
        !uli_size_mul(nsegments >= 0 ? heads : 1, max_docs, &docs) ||
        !uli_size_add(twice, docs, &s.units) ||
        !uli_size_mul_add(s.units, 2, rows / tile_rows, &s.tiles) ||
        !uli_size_add(s.runs, s.units, &words) ||
        !uli_size_add(words, 2, &s.scratch_words))
        return false;
    if (!add_part(
            1, sizeof(struct uli_gpu_attn_state), &s.bytes, &s.state_at) ||
        !add_part(
            s.tiles, sizeof(struct uli_gpu_attn_tile), &s.bytes, &s.tiles_at) ||
        !add_part(s.scratch_words, sizeof(int64_t), &s.bytes, &s.scratch_at))
        return false;
    *sizes_p = s;
    return true;
}

void
uli_gpu_attn_place(struct uli_gpu_attn_args *args,
    const struct uli_gpu_attn_sizes *sizes, unsigned char *workspace)
{
    args->state = (void *)(workspace + sizes->state_at);
    args->tiles = (void *)(workspace + sizes->tiles_at);
    args->scratch = (void *)(workspace + sizes->scratch_at);
}
