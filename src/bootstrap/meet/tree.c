/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree; see tree.h. The first gather builds the tree: a gather of addresses
 * over the star, a connection to each parent, on which the child sends the
 * parent's token, and a gather of outcomes. If one rank cannot connect, all
 * ranks use the star.
 *
 * If a gather over the tree fails at a rank (a stream breaks, a deadline
 * passes, the star's root sends something), this rank gathers the same records
 * over the star. The root answers with the failure that it has recorded, which
 * is the same on all ranks. If all ranks reach the gather over the star, its
 * table is the result, and later gathers use the star too.
 */
#include "bootstrap/meet/netif.h"
#include "bootstrap/meet/tree.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "base/system/random.h"
#include "bootstrap/meet/knock.h"
#include "bootstrap/meet/socket.h"

/* On one machine a tree moves as many bytes as the star and gains nothing:
 * three gathers of 1 KiB take 0.4, 0.8 and 2.9 s at 256, 512 and 1024 ranks on
 * 2 cores by either. A tree is faster where many hosts share the sending: the
 * star's root sends P tables of P records, 150 MB at 384 ranks and 17 GB at
 * 4096; a rank of the tree sends 8 tables, 34 MB. */
static _Atomic int32_t least_ranks = 384;

#define BUILD_S   20.0 /* limit for making the connections */
#define OUTCOME_S 1.0  /* limit for ranks to reach the star after a timeout */

struct card {
    uint32_t port; /* 0: no children, or no listener */
    uint32_t family;
    unsigned char address[16];
    unsigned char token[16];
};
struct knock {
    unsigned char token[16];
    int32_t rank;
};
_Static_assert(
    sizeof(struct knock) <= ULI_KNOCK_BYTES_MAX, "a knock is one message");
struct head {
    uint32_t gather, unused;
    uint64_t bytes; /* of a record */
};

struct tree {
    struct uli_bootstrap base;
    struct uli_bootstrap *star;
    int star_fd;
    struct uli_port_range ports; /* to listen at */
    bool built, flat;            /* flat: gathers go over the star */
    struct uli_tree_place place;
    int parent, children[ULI_TREE_ARITY]; /* descriptors, -1 */
    uint32_t gathers;
};

void
uli_tree_set_least(int32_t nranks)
{
    atomic_store(&least_ranks, nranks);
}

/* ---- places -------------------------------------------------------------- */

static void
tree_cut(int32_t rank, int32_t end, struct uli_tree_place *place)
{
    int64_t rest = end - rank - 1;
    place->end = end;
    place->nchildren = (int32_t)uli_min(rest, ULI_TREE_ARITY);
    for (int32_t i = 0; i <= place->nchildren; i++)
        place->first[i] =
            rank + 1 +
            (int32_t)(place->nchildren ? i * rest / place->nchildren : 0);
}

void
uli_tree_place(int32_t nranks, int32_t rank, struct uli_tree_place *place_p)
{
    int32_t at = 0;
    place_p->parent = -1;
    tree_cut(0, nranks, place_p);
    while (at != rank) {
        int32_t i = 0;
        while (rank >= place_p->first[i + 1])
            i++;
        place_p->parent = at;
        at = place_p->first[i];
        tree_cut(at, place_p->first[i + 1], place_p);
    }
}

/* ---- building ------------------------------------------------------------ */

/* Listens at the local address of the connection to the root, because other
 * ranks can reach this address. */
static int
open_listener(const struct tree *tree, struct card *card)
{
    struct uli_socket_address own = {.length = sizeof(own.storage)};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&own.storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&own.storage;
    int fd = -1;
    if (getsockname(tree->star_fd, (void *)&own.storage, &own.length))
        return -1;
    bool is_v6 = own.storage.ss_family == AF_INET6;
    if (is_v6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
        return -1; /* its scope is valid on this host only */
    if (uli_netif_listen(&own, tree->ports, &fd))
        return -1;
    card->family = is_v6 ? 6 : 4;
    card->port = (uint32_t)uli_address_port(&own);
    if (is_v6)
        memcpy(card->address, &v6->sin6_addr, 16);
    else
        memcpy(card->address, &v4->sin_addr, 4);
    return fd;
}

static void
card_address(const struct card *card, struct uli_socket_address *address_p)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address_p->storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address_p->storage;
    memset(address_p, 0, sizeof(*address_p));
    if (card->family == 6) {
        v6->sin6_family = AF_INET6;
        memcpy(&v6->sin6_addr, card->address, 16);
        address_p->length = sizeof(*v6);
    } else {
        v4->sin_family = AF_INET;
        memcpy(&v4->sin_addr, card->address, 4);
        address_p->length = sizeof(*v4);
    }
    uli_address_set_port(address_p, (int)card->port);
}

static int
connect_parent(
    struct tree *tree, const struct card *card, uli_deadline_t deadline)
{
    struct uli_socket_address address;
    struct knock knock = {.rank = tree->base.rank};
    card_address(card, &address);
    int number = uli_socket_connect(&address, deadline, &tree->parent);
    if (number)
        return number;
    memcpy(knock.token, card->token, sizeof(knock.token));
    return uli_socket_send(tree->parent, &knock, sizeof(knock), deadline);
}

/* The child that has sent the message; -1: a stray connection, or a child that
 * has connected already. */
static int32_t
child_of(const struct tree *tree, const struct knock *knock,
    const unsigned char token[16])
{
    if (sodium_memcmp(knock->token, token, sizeof(knock->token)))
        return -1;
    for (int32_t i = 0; i < tree->place.nchildren; i++)
        if (tree->place.first[i] == knock->rank && tree->children[i] < 0)
            return i;
    return -1;
}

static int
tree_await(int fd, int star_fd, uli_deadline_t deadline)
{
    for (;;) {
        struct pollfd entries[2] = {{fd, POLLIN, 0}, {star_fd, POLLIN, 0}};
        int ready = poll(entries, 2, uli_deadline_poll_ms(deadline, INT32_MAX));
        if (ready < 0 && errno != EINTR)
            return errno;
        if (ready > 0 && entries[0].revents)
            return 0;
        if (ready > 0)
            return ECONNABORTED; /* the root has sent something */
        if (uli_deadline_over(deadline))
            return ETIMEDOUT;
    }
}

struct children {
    struct tree *tree;
    const unsigned char *token;
};

static bool
take_child(void *context, int fd, const void *message)
{
    const struct children *children = context;
    struct knock knock;
    memcpy(&knock, message, sizeof(knock));
    int32_t child = child_of(children->tree, &knock, children->token);
    if (child < 0)
        return false;
    uli_socket_tune(fd, AF_INET);
    children->tree->children[child] = fd;
    return true;
}

/* Connects this rank to its parent and its children. returns 0 or errno. */
static int
connect_all(struct tree *tree, int listener, const struct card *cards,
    uli_deadline_t deadline)
{
    uli_deadline_t end = uli_min(deadline, uli_deadline_in(BUILD_S));
    int number = 0;
    if (tree->place.parent >= 0 && !cards[tree->place.parent].port)
        return EADDRNOTAVAIL;
    if (tree->place.parent >= 0)
        number = connect_parent(tree, &cards[tree->place.parent], end);
    struct children children = {tree, cards[tree->base.rank].token};
    if (!number && listener >= 0)
        number =
            uli_knock_receive(listener, tree->star_fd, sizeof(struct knock),
                tree->place.nchildren, take_child, &children, end);
    return number;
}

/* Builds the tree, or sets `flat` if a rank cannot connect.
 * Errors: those of the star's gathers, so the same on all ranks. */
static ulyx_status_t
build_with(struct tree *tree, struct card *cards, int32_t *outcomes,
    uli_deadline_t deadline)
{
    struct card mine = {0};
    bool inner = tree->place.nchildren > 0;
    ulyx_status_t status = uli_random_bytes(mine.token, sizeof(mine.token));
    int listener =
        inner && status == ULYX_SUCCESS ? open_listener(tree, &mine) : -1;
    status = tree->star->ops->gather(
        tree->star, &mine, sizeof(mine), cards, deadline);
    int32_t number = inner && listener < 0 ? EADDRNOTAVAIL : 0;
    if (status == ULYX_SUCCESS && !number)
        number = connect_all(tree, listener, cards, deadline);
    if (listener >= 0)
        close(listener);
    if (status == ULYX_SUCCESS)
        status = tree->star->ops->gather(
            tree->star, &number, sizeof(number), outcomes, deadline);
    for (int32_t p = 0; status == ULYX_SUCCESS && p < tree->base.nranks; p++) {
        if (outcomes[p] && !tree->flat && tree->base.rank == 0)
            ULI_INFO(ULI_LOG_INIT, 0,
                "bootstrap: rank %d cannot join the tree (%s): by the star", p,
                uli_errno_text(outcomes[p]));
        tree->flat |= outcomes[p] != 0;
    }
    return status;
}

static ulyx_status_t
tree_build(struct tree *tree, uli_deadline_t deadline)
{
    size_t nranks = (size_t)tree->base.nranks;
    struct card *cards = calloc(nranks, sizeof(*cards));
    int32_t *outcomes = calloc(nranks, sizeof(*outcomes));
    ulyx_status_t status =
        cards && outcomes
            ? build_with(tree, cards, outcomes, deadline)
            : uli_error(ULYX_ERR_NO_MEMORY, "no memory for %zu ranks", nranks);
    free(cards);
    free(outcomes);
    tree->built = status == ULYX_SUCCESS;
    return status;
}

/* ---- gathering ----------------------------------------------------------- */

static int
tree_take(const struct tree *tree, int fd, size_t bytes, void *data_p,
    size_t data_bytes, uli_deadline_t deadline)
{
    struct head head;
    int number = tree_await(fd, tree->star_fd, deadline);
    if (!number)
        number = uli_socket_receive(fd, &head, sizeof(head), deadline);
    if (!number && (head.gather != tree->gathers || head.bytes != bytes))
        number = EPROTO;
    return number ? number
                  : uli_socket_receive(fd, data_p, data_bytes, deadline);
}

static int
tree_give(const struct tree *tree, int fd, size_t bytes, const void *data,
    size_t data_bytes, uli_deadline_t deadline)
{
    struct head head = {tree->gathers, 0, bytes};
    int number = uli_socket_send(fd, &head, sizeof(head), deadline);
    return number ? number : uli_socket_send(fd, data, data_bytes, deadline);
}

static int
up_and_down(const struct tree *tree, size_t bytes, unsigned char *all,
    uli_deadline_t deadline)
{
    const struct uli_tree_place *place = &tree->place;
    size_t rank = (size_t)tree->base.rank;
    size_t table_bytes = (size_t)tree->base.nranks * bytes;
    int number = 0;
    for (int32_t i = 0; i < place->nchildren && !number; i++) {
        size_t first = (size_t)place->first[i];
        size_t count = (size_t)place->first[i + 1] - first;
        number = tree_take(tree, tree->children[i], bytes, all + first * bytes,
            count * bytes, deadline);
    }
    if (!number && tree->parent >= 0)
        number = tree_give(tree, tree->parent, bytes, all + rank * bytes,
            ((size_t)place->end - rank) * bytes, deadline);
    if (!number && tree->parent >= 0)
        number =
            tree_take(tree, tree->parent, bytes, all, table_bytes, deadline);
    for (int32_t i = 0; i < place->nchildren && !number; i++)
        number = tree_give(
            tree, tree->children[i], bytes, all, table_bytes, deadline);
    return number;
}

static ulyx_status_t
tree_gather(struct uli_bootstrap *bootstrap, const void *mine, size_t bytes,
    void *all_p, uli_deadline_t deadline)
{
    struct tree *tree = (struct tree *)bootstrap;
    unsigned char *all = all_p;
    if (!tree->built)
        ULI_TRY(tree_build(tree, deadline));
    if (!tree->flat) {
        tree->gathers++;
        if (bytes)
            memcpy(all + (size_t)bootstrap->rank * bytes, mine, bytes);
        int number = up_and_down(tree, bytes, all, deadline);
        if (!number)
            return ULYX_SUCCESS;
        tree->flat = true;
        if (number == ETIMEDOUT)
            deadline = uli_deadline_in(OUTCOME_S);
    }
    return tree->star->ops->gather(tree->star, mine, bytes, all_p, deadline);
}

static ulyx_status_t
tree_give_up(struct uli_bootstrap *bootstrap, ulyx_status_t status,
    const char *text, uli_deadline_t deadline)
{
    struct uli_bootstrap *star = ((struct tree *)bootstrap)->star;
    return star->ops->give_up(star, status, text, deadline);
}

static bool
is_broken(struct uli_bootstrap *bootstrap)
{
    struct uli_bootstrap *star = ((struct tree *)bootstrap)->star;
    return star->ops->broken(star);
}

static void
close_tree(struct uli_bootstrap *bootstrap)
{
    struct tree *tree = (struct tree *)bootstrap;
    for (int32_t i = 0; i < ULI_TREE_ARITY; i++)
        if (tree->children[i] >= 0)
            close(tree->children[i]);
    if (tree->parent >= 0)
        close(tree->parent);
    tree->star->ops->close(tree->star);
    free(tree);
}

static const struct uli_bootstrap_ops tree_ops = {
    .name = "tree",
    .gather = tree_gather,
    .give_up = tree_give_up,
    .broken = is_broken,
    .close = close_tree,
};

ulyx_status_t
uli_bootstrap_open_tree(struct uli_bootstrap *star, int fd,
    struct uli_port_range ports, struct uli_bootstrap **bootstrap_p)
{
    struct tree *tree;
    struct sockaddr_storage own = {.ss_family = AF_UNIX};
    socklen_t length = sizeof(own);
    getsockname(fd, (void *)&own, &length);
    if (star->nranks < atomic_load(&least_ranks) || own.ss_family == AF_UNIX) {
        *bootstrap_p = star;
        return ULYX_SUCCESS;
    }
    tree = calloc(1, sizeof(*tree));
    if (!tree) {
        star->ops->close(star);
        return uli_error(ULYX_ERR_NO_MEMORY, "out of memory for a bootstrap");
    }
    tree->base =
        (struct uli_bootstrap){&tree_ops, star->rank, star->nranks, NULL};
    tree->star = star;
    tree->star_fd = fd;
    tree->ports = ports;
    tree->parent = -1;
    for (int32_t i = 0; i < ULI_TREE_ARITY; i++)
        tree->children[i] = -1;
    uli_tree_place(star->nranks, star->rank, &tree->place);
    *bootstrap_p = &tree->base;
    return ULYX_SUCCESS;
}
