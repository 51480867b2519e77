/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection's states. Nothing here blocks: bytes that cannot be sent wait
 * for EPOLLOUT, bytes that have not arrived for EPOLLIN.
 */
#include "bootstrap/meet/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "base/system/random.h"

enum { READ_BYTES = 16384, DRAIN_MS = 1000 };

/* ---- life ---------------------------------------------------------------- */

struct uli_conn *
uli_conn_open(struct uli_root *root, int fd, const char *address)
{
    struct uli_conn *conn = calloc(1, sizeof(*conn));
    if (!conn)
        goto err_close;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(root->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        goto err_free;
    conn->root = root;
    conn->fd = fd;
    conn->rank = -1;
    conn->deadline = uli_deadline_in(root->params.handshake_s);
    conn->reader.payload_max = ULI_JOIN_BYTES_MAX;
    memcpy(conn->auth.secret, root->params.secret, ULI_SECRET_BYTES);
    strncpy(conn->address, address, sizeof(conn->address) - 1);
    uli_list_append(&root->strangers, &conn->node);
    root->stranger_count++;
    return conn;

err_free:
    free(conn);
err_close:
    close(fd);
    return NULL;
}

void
uli_conn_close(struct uli_conn *conn)
{
    if (conn->stage == ULI_CONN_DEAD)
        return;
    if (conn->stage < ULI_CONN_JOINED)
        conn->root->stranger_count--;
    if (conn->out)
        atomic_fetch_sub(&conn->root->unsent, 1);
    conn->stage = ULI_CONN_DEAD;
    close(conn->fd);
    uli_blob_unref(conn->out);
    uli_blob_unref(conn->next);
    uli_frame_reader_free(&conn->reader);
    uli_list_remove(&conn->node);
    uli_list_append(&conn->root->dead, &conn->node);
}

void
uli_conn_free_dead(struct uli_root *root)
{
    while (!uli_list_empty(&root->dead)) {
        struct uli_list *node = root->dead.next;
        uli_list_remove(node);
        free(ULI_CONTAINER_OF(node, struct uli_conn, node));
    }
}

void
uli_conn_drop(struct uli_conn *conn, const char *why)
{
    uli_meeting_stray(&conn->root->meeting, conn->address, why);
    uli_conn_close(conn);
}

/* The stream broke: a stray connection, a lost rank, or a rank that has
 * reported its failure. */
static void
conn_broken(struct uli_conn *conn, const char *why)
{
    if (conn->stage < ULI_CONN_JOINED) {
        uli_conn_drop(conn, why);
        return;
    }
    if (conn->stage == ULI_CONN_JOINED)
        uli_meeting_lost(&conn->root->meeting, conn->rank, why);
    uli_conn_close(conn);
}

/* ---- sending ------------------------------------------------------------- */

static void
conn_watch(struct uli_conn *conn)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (conn->out)
        event.events |= EPOLLOUT;
    epoll_ctl(conn->root->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event);
}

/* Called when all bytes have been sent. If they end with the failure's text,
 * the peer reads the text and closes the connection. */
static void
all_sent(struct uli_conn *conn)
{
    atomic_fetch_sub(&conn->root->unsent, 1);
    if (!conn->last)
        return;
    struct uli_meeting *meeting = &conn->root->meeting;
    if (conn->rank >= 0 && !meeting->members[conn->rank].notified) {
        meeting->members[conn->rank].notified = true;
        meeting->nnotified++;
    }
    shutdown(conn->fd, SHUT_WR);
    conn->draining = true;
    conn->deadline = uli_deadline_in(DRAIN_MS / 1000.0);
}

static void
conn_flush(struct uli_conn *conn)
{
    while (conn->out) {
        size_t left = conn->out->bytes - conn->sent;
        ssize_t sent =
            send(conn->fd, conn->out->data + conn->sent, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) {
            conn_broken(conn, uli_errno_text(errno));
            return;
        }
        conn->sent += (size_t)sent;
        if (conn->sent < conn->out->bytes)
            continue;
        uli_blob_unref(conn->out);
        conn->out = conn->next;
        conn->next = NULL;
        conn->sent = 0;
        if (!conn->out)
            all_sent(conn);
    }
    conn_watch(conn);
}

/* Queues the blob and takes over the caller's reference. */
static void
conn_post(struct uli_conn *conn, struct uli_blob *blob)
{
    if (!blob) {
        conn_broken(conn, "out of memory");
        return;
    }
    if (conn->stage == ULI_CONN_DEAD || (conn->out && conn->next)) {
        uli_blob_unref(blob);
        conn_broken(conn, "does not read");
        return;
    }
    if (conn->out) {
        conn->next = blob;
        return;
    }
    conn->out = blob;
    atomic_fetch_add(&conn->root->unsent, 1);
    conn_flush(conn);
}

static void
post_bytes(struct uli_conn *conn, const void *bytes, size_t count)
{
    struct uli_blob *blob = uli_blob_new(count);
    if (blob)
        memcpy(blob->data, bytes, count);
    conn_post(conn, blob);
}

/* Without memory for the text only the end of the stream reports the
 * failure. */
static void
conn_send_last(struct uli_conn *conn, struct uli_blob *text)
{
    if (conn->last || conn->stage == ULI_CONN_DEAD)
        return;
    conn->last = true;
    if (text)
        conn_post(conn, uli_blob_ref(text));
    else
        uli_conn_close(conn);
}

void
uli_conn_send_failure(struct uli_conn *conn)
{
    conn_send_last(conn, conn->root->meeting.failure);
}

/* ---- handshake ----------------------------------------------------------- */

/* Another version gets only bytes that all versions read in the same way. */
static void
take_hello(struct uli_conn *conn)
{
    unsigned char challenge[ULI_CHALLENGE_BYTES];
    unsigned char *own_nonce = conn->auth.nonces[ULI_AUTH_ROOT];
    char why[64];
    unsigned version = 0;
    enum uli_hello_result result = uli_hello_decode(
        conn->message, conn->auth.nonces[ULI_AUTH_RANK], &version);
    if (result == ULI_HELLO_GARBAGE) {
        uli_conn_drop(conn, "not ulyx");
        return;
    }
    bool same = result == ULI_HELLO_OK;
    if (uli_random_bytes(own_nonce, ULI_NONCE_BYTES) ||
        (same && uli_auth_share(&conn->auth, ULI_AUTH_ROOT,
                     challenge + ULI_HELLO_BYTES))) {
        uli_conn_drop(conn, "no random bytes");
        return;
    }
    uli_hello_encode(own_nonce, challenge);
    conn->stage = ULI_CONN_ANSWER;
    post_bytes(conn, challenge, same ? sizeof(challenge) : ULI_HELLO_BYTES);
    if (!same && conn->stage == ULI_CONN_ANSWER) {
        snprintf(why, sizeof(why), "protocol version %u, here %d", version,
            ULI_PROTOCOL_VERSION);
        uli_conn_drop(conn, why);
    }
}

static void
take_answer(struct uli_conn *conn)
{
    unsigned char outcome[ULI_OUTCOME_BYTES] = {0};
    bool right = uli_auth_agree(&conn->auth, ULI_AUTH_ROOT, conn->message) &&
                 uli_auth_check(&conn->auth, ULI_AUTH_RANK,
                     conn->message + ULI_SHARE_BYTES);
    outcome[0] = right;
    if (right)
        uli_auth_proof(&conn->auth, ULI_AUTH_ROOT, outcome + 1);
    conn->stage = ULI_CONN_JOIN;
    post_bytes(conn, outcome, sizeof(outcome));
    if (!right && conn->stage == ULI_CONN_JOIN)
        uli_conn_drop(conn, "wrong secret");
}

/* Gathers a message of fixed length; returns how many bytes it took. */
static size_t
take_message(struct uli_conn *conn, const unsigned char *data, size_t bytes)
{
    size_t whole =
        conn->stage == ULI_CONN_HELLO ? ULI_HELLO_BYTES : ULI_ANSWER_BYTES;
    size_t part = whole - conn->have < bytes ? whole - conn->have : bytes;
    memcpy(conn->message + conn->have, data, part);
    conn->have += part;
    if (conn->have < whole)
        return part;
    conn->have = 0;
    if (conn->stage == ULI_CONN_HELLO)
        take_hello(conn);
    else
        take_answer(conn);
    return part;
}

/* ---- frames -------------------------------------------------------------- */

/* The deadline of a rank, which has sent how many milliseconds it will wait (<
 * 0: without limit). */
static uli_deadline_t
frame_patience(const struct uli_frame *frame)
{
    return frame->argument < 0 ? INT64_MAX
                               : uli_deadline_in(frame->argument / 1000.0);
}

static void
take_join(struct uli_conn *conn)
{
    struct uli_root *root = conn->root;
    struct uli_join join;
    const struct uli_frame *frame = &conn->reader.frame;
    if (frame->type != ULI_FRAME_JOIN ||
        !uli_join_decode(conn->reader.payload, frame->bytes, &join)) {
        uli_conn_drop(conn, "bad join");
        return;
    }
    root->stranger_count--;
    uli_list_remove(&conn->node);
    uli_list_append(&root->members, &conn->node);
    conn->stage = ULI_CONN_REFUSED;
    conn->reader.payload_max = ULI_RECORD_BYTES_MAX;
    if (root->state != ULI_ROOT_OPEN && !root->meeting.failed) {
        conn_send_last(conn, uli_meeting_full(&root->meeting));
        return;
    }
    if (!uli_meeting_join(&root->meeting, &join, frame_patience(frame))) {
        uli_conn_send_failure(conn);
        return;
    }
    conn->stage = ULI_CONN_JOINED;
    conn->rank = join.rank;
    if (root->meeting.njoined < root->meeting.nranks)
        return;
    atomic_store(&root->state, ULI_ROOT_WHOLE);
    uli_listener_close(root);
}

/* All ranks get the same blob. `unsent` stays above zero until the blob is
 * queued for the last rank: the owner may leave when `unsent` is zero. */
static void
root_spread(struct uli_root *root, struct uli_blob *table)
{
    atomic_fetch_add(&root->unsent, 1);
    struct uli_list *node = root->members.next;
    while (node != &root->members) {
        struct uli_conn *conn = ULI_CONTAINER_OF(node, struct uli_conn, node);
        node = node->next;
        if (conn->stage == ULI_CONN_JOINED)
            conn_post(conn, uli_blob_ref(table));
    }
    atomic_fetch_sub(&root->unsent, 1);
    uli_blob_unref(table);
}

/* A rank has reported its failure. */
static void
take_failure(struct uli_conn *conn)
{
    struct uli_meeting *meeting = &conn->root->meeting;
    const struct uli_frame *frame = &conn->reader.frame;
    char text[ULI_REFUSAL_TEXT_BYTES];
    bool known = frame->argument < 0 && frame->argument >= ULYX_ERR_INTERNAL;
    ulyx_status_t status =
        known ? (ulyx_status_t)frame->argument : ULYX_ERR_INTERNAL;
    size_t bytes = frame->bytes < ULI_REFUSAL_BYTES ? (size_t)frame->bytes
                                                    : ULI_REFUSAL_BYTES;
    uli_meeting_fail(meeting, status, "rank %d (%s) failed: %s", conn->rank,
        meeting->members[conn->rank].name,
        uli_status_reason(status, conn->reader.payload, bytes, text));
}

static void
take_frame(struct uli_conn *conn)
{
    struct uli_meeting *meeting = &conn->root->meeting;
    const struct uli_frame *frame = &conn->reader.frame;
    if (conn->stage == ULI_CONN_JOIN) {
        take_join(conn);
    } else if (frame->type == ULI_FRAME_BYE) {
        uli_meeting_leave(meeting, conn->rank);
        uli_conn_close(conn);
    } else if (frame->type == ULI_FRAME_ERROR) {
        take_failure(conn);
    } else if (frame->type == ULI_FRAME_RECORD) {
        struct uli_blob *table = uli_meeting_record(meeting, conn->rank, frame,
            conn->reader.payload, frame_patience(frame));
        if (table)
            root_spread(conn->root, table);
    } else {
        conn_broken(conn, "unexpected frame");
    }
}

static size_t
take_frames(struct uli_conn *conn, const unsigned char *data, size_t bytes)
{
    size_t used = 0;
    switch (uli_frame_reader_feed(&conn->reader, data, bytes, &used)) {
    case ULI_FRAME_BAD:
        conn_broken(conn, conn->reader.why);
        break;
    case ULI_FRAME_READY:
        take_frame(conn);
        if (conn->stage != ULI_CONN_DEAD)
            uli_frame_reader_next(&conn->reader);
        break;
    case ULI_FRAME_MORE:
        break;
    }
    return used;
}

/* ---- events -------------------------------------------------------------- */

static void
conn_take(struct uli_conn *conn, const unsigned char *data, size_t bytes)
{
    while (bytes > 0 && conn->stage != ULI_CONN_DEAD) {
        size_t used = bytes;
        if (conn->stage < ULI_CONN_JOIN)
            used = take_message(conn, data, bytes);
        else if (conn->stage != ULI_CONN_REFUSED && !conn->last)
            used = take_frames(conn, data, bytes);
        data += used;
        bytes -= used;
    }
}

static void
conn_ended(struct uli_conn *conn)
{
    static const char *const why[] = {"closed before its first message",
        "closed before it proved the secret", "closed before it joined",
        "closed"};
    _Static_assert(sizeof(why) / sizeof(why[0]) == ULI_CONN_JOINED + 1,
        "one text per stage");
    if (conn->stage == ULI_CONN_HELLO && conn->have > 0)
        conn_broken(conn, "closed within its first message");
    else
        conn_broken(conn,
            why[conn->stage < ULI_CONN_JOINED ? conn->stage : ULI_CONN_JOINED]);
}

void
uli_conn_event(struct uli_conn *conn, uint32_t events)
{
    unsigned char data[READ_BYTES];
    if (conn->stage == ULI_CONN_DEAD)
        return;
    if (events & EPOLLOUT)
        conn_flush(conn);
    if (conn->stage == ULI_CONN_DEAD ||
        !(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t got;
    do
        got = recv(conn->fd, data, sizeof(data), 0);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        conn_take(conn, data, (size_t)got);
    else if (got == 0)
        conn_ended(conn);
    else if (errno != EAGAIN)
        conn_broken(conn, uli_errno_text(errno));
}
