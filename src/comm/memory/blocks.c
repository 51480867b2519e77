/* SPDX-License-Identifier: Apache-2.0
 *
 * See blocks.h.
 */
#include "comm/memory/blocks.h"

#include <stdlib.h>

struct block {
    struct uli_list node;
    int64_t offset, bytes;
    bool used;
};

#define BLOCK_OF(n) ULI_CONTAINER_OF(n, struct block, node)

static struct block *
new_block(int64_t offset, int64_t bytes)
{
    struct block *block = calloc(1, sizeof(*block));
    if (!block)
        return NULL;
    uli_list_init(&block->node);
    block->offset = offset;
    block->bytes = bytes;
    return block;
}

bool
uli_blocks_open(struct uli_blocks *blocks, int64_t offset, int64_t end)
{
    struct block *block = new_block(offset, end - offset);
    uli_list_init(&blocks->list);
    if (block)
        uli_list_append(&blocks->list, &block->node);
    return block;
}

void
uli_blocks_close(struct uli_blocks *blocks)
{
    while (!uli_list_empty(&blocks->list)) {
        struct block *block = BLOCK_OF(blocks->list.next);
        uli_list_remove(&block->node);
        free(block);
    }
}

bool
uli_blocks_take(struct uli_blocks *blocks, int64_t bytes, int64_t *offset_p,
    int64_t *bytes_p)
{
    for (struct uli_list *n = blocks->list.next; n != &blocks->list;
         n = n->next) {
        struct block *block = BLOCK_OF(n);
        if (block->used || block->bytes < bytes)
            continue;
        if (block->bytes > bytes) {
            struct block *rest =
                new_block(block->offset + bytes, block->bytes - bytes);
            if (rest) {
                uli_list_append(n->next, &rest->node); /* before the next */
                block->bytes = bytes;
            }
        }
        block->used = true;
        *offset_p = block->offset;
        *bytes_p = block->bytes;
        return true;
    }
    return false;
}

bool
uli_blocks_empty(const struct uli_blocks *blocks)
{
    const struct uli_list *first = blocks->list.next;
    return first == blocks->list.prev && first != &blocks->list &&
           !BLOCK_OF(first)->used;
}

/* Merges the block after `block` into it when both are free. */
static void
merge_next(struct uli_blocks *blocks, struct block *block)
{
    struct block *next = BLOCK_OF(block->node.next);
    if (block->node.next == &blocks->list || next->used || block->used)
        return;
    block->bytes += next->bytes;
    uli_list_remove(&next->node);
    free(next);
}

bool
uli_blocks_give(struct uli_blocks *blocks, int64_t offset)
{
    struct uli_list *n = blocks->list.next;
    while (n != &blocks->list && BLOCK_OF(n)->offset != offset)
        n = n->next;
    if (n == &blocks->list || !BLOCK_OF(n)->used)
        return false;
    struct block *block = BLOCK_OF(n);
    block->used = false;
    merge_next(blocks, block);
    if (n->prev != &blocks->list)
        merge_next(blocks, BLOCK_OF(n->prev));
    return true;
}
