/* SPDX-License-Identifier: Apache-2.0
 *
 * Intrusive doubly linked list: the head is a node of its own, an element is
 * found from its node with ULI_CONTAINER_OF. No locking, no allocation.
 */
#ifndef ULI_BASE_LIST_H
#define ULI_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct uli_list {
    struct uli_list *next, *prev;
};

#define ULI_CONTAINER_OF(pointer, type, member)                                \
    ((type *)((char *)(pointer)-offsetof(type, member)))

static inline void
uli_list_init(struct uli_list *head)
{
    head->next = head->prev = head;
}

static inline bool
uli_list_empty(const struct uli_list *head)
{
    return head->next == head;
}

static inline void
uli_list_append(struct uli_list *head, struct uli_list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* Removing the node again has no effect. */
static inline void
uli_list_remove(struct uli_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node->prev = node;
}

#endif
