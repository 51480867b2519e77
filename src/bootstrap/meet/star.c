/* SPDX-License-Identifier: Apache-2.0
 *
 * The star: each rank has one stream to the root. In a gather each rank sends
 * one record and receives one table: 2 messages per rank, latency of one round
 * trip, and nranks * bytes down every stream. The rank sends the root how long
 * it will wait, so that the root, which can name the missing ranks, times out
 * first. Many ranks gather by a tree beside the star (bootstrap/meet/tree.h).
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/late.h"
#include "base/size.h"
#include "base/status.h"
#include "bootstrap/meet/dial.h"
#include "bootstrap/meet/root.h"
#include "bootstrap/meet/tree.h"
#include "bootstrap/meet/frame.h"

/* The root's report of a timeout may arrive this long after the deadline. */
#define GRACE_S   1.0
#define BYE_S     0.1
#define RELEASE_S 0.8

struct star {
    struct uli_bootstrap base;
    int fd;
    uint32_t gathers;
    struct uli_root *root; /* or NULL */
    char where[ULI_ADDRESS_TEXT_BYTES];
};

static int64_t
patience_ms(uli_deadline_t deadline)
{
    return deadline == INT64_MAX ? -1
                                 : uli_deadline_poll_ms(deadline, INT32_MAX);
}

static ulyx_status_t
star_lost(const struct star *star, int number)
{
    const char *how =
        number == ENOTCONN ? "the root has closed it" : uli_errno_text(number);
    struct uli_late late = uli_late_none(ULI_LATE_ANSWER);
    char root[ULI_LATE_WHO_BYTES];
    snprintf(root, sizeof(root), "the root at %s", star->where);
    if (number == ETIMEDOUT)
        return uli_late_error(&late, root, "bootstrap: gather %u of rank %d",
            star->gathers, star->base.rank);
    return uli_error(ULYX_ERR_RANK_LOST,
        "bootstrap: connection of rank %d to the root at %s broke in gather "
        "%u: %s",
        star->base.rank, star->where, star->gathers, how);
}

/* Reads the failure, which the root has logged and sends to all ranks. */
static ulyx_status_t
read_failure(const struct star *star, const struct uli_frame *frame,
    uli_deadline_t deadline)
{
    char text[ULI_FRAME_TEXT_MAX + 1], whole[ULI_FRAME_TEXT_MAX + 16];
    if (frame->bytes > ULI_FRAME_TEXT_MAX)
        return star_lost(star, EPROTO);
    int number =
        uli_socket_receive(star->fd, text, (size_t)frame->bytes, deadline);
    if (number)
        return star_lost(star, number);
    text[frame->bytes] = 0;
    bool known = frame->argument < 0 && frame->argument >= ULYX_ERR_INTERNAL;
    snprintf(whole, sizeof(whole), "bootstrap: %s", text);
    return uli_error_pass(
        known ? (ulyx_status_t)frame->argument : ULYX_ERR_INTERNAL, whole);
}

static ulyx_status_t
read_table(
    const struct star *star, size_t bytes, void *all_p, uli_deadline_t deadline)
{
    unsigned char header[ULI_FRAME_HEADER_BYTES];
    struct uli_frame frame;
    int number = uli_socket_receive(star->fd, header, sizeof(header), deadline);
    if (number)
        return star_lost(star, number);
    if (!uli_frame_decode(header, &frame))
        return star_lost(star, EPROTO);
    if (frame.type == ULI_FRAME_ERROR)
        return read_failure(star, &frame, deadline);
    size_t all_bytes = (size_t)star->base.nranks * bytes;
    if (frame.type != ULI_FRAME_TABLE || frame.round != star->gathers ||
        frame.bytes != all_bytes)
        return star_lost(star, EPROTO);
    number = uli_socket_receive(star->fd, all_p, all_bytes, deadline);
    return number ? star_lost(star, number) : ULYX_SUCCESS;
}

static ulyx_status_t
star_gather(struct uli_bootstrap *bootstrap, const void *mine, size_t bytes,
    void *all_p, uli_deadline_t deadline)
{
    struct star *star = (struct star *)bootstrap;
    unsigned char header[ULI_FRAME_HEADER_BYTES];
    if (bytes > ULI_RECORD_BYTES_MAX)
        return uli_error(ULYX_ERR_INTERNAL,
            "bootstrap: a record of %zu bytes, at most %d are allowed", bytes,
            ULI_RECORD_BYTES_MAX);
    uli_deadline_t end = uli_sat_add(deadline, (int64_t)(GRACE_S * 1000000000));
    struct uli_frame frame = {
        ULI_FRAME_RECORD, ++star->gathers, bytes, patience_ms(deadline)};
    uli_frame_encode(&frame, header);
    int number = uli_socket_send(star->fd, header, sizeof(header), end);
    if (!number)
        number = uli_socket_send(star->fd, mine, bytes, end);
    /* After a failed send the root's last message may still be in the stream,
     * so it is read. */
    if (number == ETIMEDOUT)
        return star_lost(star, number);
    return read_table(star, bytes, all_p, end);
}

static ulyx_status_t
star_give_up(struct uli_bootstrap *bootstrap, ulyx_status_t status,
    const char *text, uli_deadline_t deadline)
{
    struct star *star = (struct star *)bootstrap;
    unsigned char message[ULI_FRAME_HEADER_BYTES + ULI_REFUSAL_BYTES];
    char own[ULI_FRAME_TEXT_MAX];
    snprintf(own, sizeof(own), "%s", text);
    size_t bytes = uli_min(strlen(own), ULI_REFUSAL_BYTES);
    struct uli_frame frame = {
        ULI_FRAME_ERROR, star->gathers, bytes, (int64_t)status};
    uli_deadline_t end = uli_sat_add(deadline, (int64_t)(GRACE_S * 1000000000));
    uli_frame_encode(&frame, message);
    memcpy(message + ULI_FRAME_HEADER_BYTES, own, bytes);
    int number =
        uli_socket_send(star->fd, message, ULI_FRAME_HEADER_BYTES + bytes, end);
    unsigned char header[ULI_FRAME_HEADER_BYTES];
    if (number != ETIMEDOUT)
        number = uli_socket_receive(star->fd, header, sizeof(header), end);
    if (number || !uli_frame_decode(header, &frame) ||
        frame.type != ULI_FRAME_ERROR)
        return uli_error_pass(status, own);
    return read_failure(star, &frame, end);
}

/* Between gathers the root sends only failures, and the end of the stream is a
 * failure too. */
static bool
star_broken(struct uli_bootstrap *bootstrap)
{
    struct pollfd entry = {((struct star *)bootstrap)->fd, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
}

static void
star_close(struct uli_bootstrap *bootstrap)
{
    struct star *star = (struct star *)bootstrap;
    unsigned char header[ULI_FRAME_HEADER_BYTES];
    struct uli_frame frame = {ULI_FRAME_BYE, 0, 0, 0};
    uli_frame_encode(&frame, header);
    uli_socket_send(star->fd, header, sizeof(header), uli_deadline_in(BYE_S));
    close(star->fd);
    uli_root_release(star->root, RELEASE_S);
    free(star);
}

static const struct uli_bootstrap_ops star_ops = {
    .name = "star",
    .gather = star_gather,
    .give_up = star_give_up,
    .broken = star_broken,
    .close = star_close,
};

/* host:pid, for the other ranks' errors. */
static void
own_name(char *name_p, size_t bytes)
{
    char host[65] = "unknown";
    gethostname(host, sizeof(host) - 1);
    host[strcspn(host, ".")] = 0;
    snprintf(name_p, bytes, "%s:%d", host, (int)getpid());
}

static int
send_join(const struct star *star, uli_deadline_t deadline)
{
    unsigned char message[ULI_FRAME_HEADER_BYTES + ULI_JOIN_BYTES_MAX];
    struct uli_join join = {star->base.rank, star->base.nranks, ""};
    own_name(join.name, sizeof(join.name));
    size_t bytes = uli_join_encode(&join, message + ULI_FRAME_HEADER_BYTES);
    struct uli_frame frame = {ULI_FRAME_JOIN, 0, bytes, patience_ms(deadline)};
    uli_frame_encode(&frame, message);
    return uli_socket_send(
        star->fd, message, ULI_FRAME_HEADER_BYTES + bytes, deadline);
}

/* For a rank that has no memory for a bootstrap: joins only to notify the other
 * ranks of this failure. */
static ulyx_status_t
join_to_give_up(int fd, struct uli_root *root, int32_t nranks, int32_t rank,
    uli_deadline_t deadline)
{
    struct star star = {
        .base = {&star_ops, rank, nranks, NULL}, .fd = fd, .root = root};
    ulyx_status_t status = ULYX_ERR_NO_MEMORY;
    static const char why[] = "out of memory for a bootstrap";
    if (send_join(&star, deadline))
        uli_error(status, "%s", why);
    else
        status = star_give_up(&star.base, status, why, deadline);
    close(fd);
    return status;
}

ulyx_status_t
uli_bootstrap_open_star(int fd, struct uli_root *root, int32_t nranks,
    int32_t rank, struct uli_port_range ports, uli_deadline_t deadline,
    struct uli_bootstrap **bootstrap_p)
{
    struct uli_socket_address peer = {.length = sizeof(peer.storage)};
    struct star *star = calloc(1, sizeof(*star));
    if (!star)
        return join_to_give_up(fd, root, nranks, rank, deadline);
    star->base = (struct uli_bootstrap){&star_ops, rank, nranks, NULL};
    star->fd = fd;
    star->root = root;
    getpeername(fd, (struct sockaddr *)&peer.storage, &peer.length);
    uli_address_text(&peer, star->where, sizeof(star->where));
    int number = send_join(star, deadline);
    if (number) {
        ulyx_status_t status = star_lost(star, number);
        close(fd);
        free(star);
        return status;
    }
    return uli_bootstrap_open_tree(&star->base, fd, ports, bootstrap_p);
}
