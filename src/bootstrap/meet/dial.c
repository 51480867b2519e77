/* SPDX-License-Identifier: Apache-2.0
 *
 * Dialling. An address that does not answer costs a few seconds, then the next
 * one is tried: an id may have addresses that this host cannot reach, or that
 * belong to another machine when used from this host (the address of a
 * container bridge).
 */
#include "bootstrap/meet/dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "base/system/random.h"

enum { PAUSE_FIRST_MS = 2, PAUSE_LONGEST_MS = 500 };
#define CONNECT_S   3.0
#define HANDSHAKE_S 10.0
#define NOTICE_S    5.0 /* after this time the awaited root is logged */

static void
dial_report(struct uli_dial_report *report_p, ulyx_status_t status,
    const struct uli_socket_address *address, const char *what)
{
    char where[ULI_ADDRESS_TEXT_BYTES];
    /* A refusal by a root is a better cause than a root that was not
     * reached. */
    if (status == ULYX_ERR_SYSTEM && report_p->status)
        return;
    uli_address_text(address, where, sizeof(where));
    report_p->status = status;
    snprintf(report_p->text, sizeof(report_p->text), "%s: %s", where, what);
}

static const char *
dial_reason(int number)
{
    if (number == ENOTCONN)
        return "closed the connection";
    if (number == ETIMEDOUT)
        return "does not answer";
    const char *text = uli_errno_text(number);
    return text ? text : "unknown error";
}

/* Sends hello and receives the root's challenge. returns 0 with both nonces and
 * the root's share, or -1 with the report. */
static int
dial_greet(int fd, const struct uli_socket_address *address,
    uli_deadline_t deadline, struct uli_auth *auth, unsigned char *share_p,
    struct uli_dial_report *report_p)
{
    unsigned char hello[ULI_HELLO_BYTES];
    unsigned version = 0;
    char text[80];
    if (uli_random_bytes(auth->nonces[ULI_AUTH_RANK], ULI_NONCE_BYTES)) {
        dial_report(
            report_p, ULYX_ERR_SYSTEM, address, "no random bytes on this host");
        return -1;
    }
    uli_hello_encode(auth->nonces[ULI_AUTH_RANK], hello);
    int number = uli_socket_send(fd, hello, sizeof(hello), deadline);
    if (!number)
        number = uli_socket_receive(fd, hello, sizeof(hello), deadline);
    if (number)
        goto err_report;
    switch (uli_hello_decode(hello, auth->nonces[ULI_AUTH_ROOT], &version)) {
    case ULI_HELLO_GARBAGE:
        dial_report(report_p, ULYX_ERR_SYSTEM, address, "is not a ulyx root");
        return -1;
    case ULI_HELLO_VERSION:
        snprintf(text, sizeof(text),
            "has protocol version %u, this rank has %d", version,
            ULI_PROTOCOL_VERSION);
        dial_report(report_p, ULYX_ERR_VERSION, address, text);
        return -1;
    case ULI_HELLO_OK:
        break;
    }
    number = uli_socket_receive(fd, share_p, ULI_SHARE_BYTES, deadline);
    if (!number)
        return 0;

err_report:
    dial_report(report_p, ULYX_ERR_SYSTEM, address, dial_reason(number));
    return -1;
}

/* The rank's side of the handshake. 0: authenticated; -1 with the report. */
static int
dial_prove(int fd, const struct uli_endpoint *place,
    const struct uli_socket_address *address, uli_deadline_t deadline,
    struct uli_dial_report *report_p)
{
    struct uli_auth auth;
    unsigned char share[ULI_SHARE_BYTES], answer[ULI_ANSWER_BYTES];
    unsigned char outcome[ULI_OUTCOME_BYTES];
    memcpy(auth.secret, place->secret, ULI_SECRET_BYTES);
    if (dial_greet(fd, address, deadline, &auth, share, report_p))
        return -1;
    if (uli_auth_share(&auth, ULI_AUTH_RANK, answer)) {
        dial_report(
            report_p, ULYX_ERR_SYSTEM, address, "no random bytes on this host");
        return -1;
    }
    if (!uli_auth_agree(&auth, ULI_AUTH_RANK, share)) {
        dial_report(report_p, ULYX_ERR_SYSTEM, address, "is not a ulyx root");
        return -1;
    }
    uli_auth_proof(&auth, ULI_AUTH_RANK, answer + ULI_SHARE_BYTES);
    int number = uli_socket_send(fd, answer, sizeof(answer), deadline);
    if (!number)
        number = uli_socket_receive(fd, outcome, sizeof(outcome), deadline);
    if (number) {
        dial_report(report_p, ULYX_ERR_SYSTEM, address, dial_reason(number));
        return -1;
    }
    if (outcome[0] == 1 && uli_auth_check(&auth, ULI_AUTH_ROOT, outcome + 1))
        return 0;
    dial_report(report_p, ULYX_ERR_AUTH, address,
        outcome[0] ? "does not have the meeting's secret"
                   : "refused this rank: wrong secret");
    return -1;
}

/* Checks the root's user: any user can take an abstract name, and so delay the
 * job that needs the name. */
static bool
check_user(int fd, const struct uli_socket_address *address,
    struct uli_dial_report *report_p)
{
    char text[224];
    long user = uli_socket_peer_user(fd);
    if (user == (long)geteuid())
        return true;
    snprintf(text, sizeof(text),
        "is served by another user: %ld holds this name, which user %u needs; "
        "set another ULYX_JOB, or meet by ULYX_RENDEZVOUS_DIR or "
        "ULYX_COMM_ID",
        user, (unsigned)geteuid());
    dial_report(report_p, ULYX_ERR_AUTH, address, text);
    return false;
}

static int
dial_address(const struct uli_endpoint *place,
    const struct uli_socket_address *address, uli_deadline_t deadline,
    struct uli_dial_report *report_p)
{
    int fd = -1;
    int number = uli_socket_connect(
        address, uli_min(deadline, uli_deadline_in(CONNECT_S)), &fd);
    if (number) {
        dial_report(report_p, ULYX_ERR_SYSTEM, address, dial_reason(number));
        return -1;
    }
    if (place->same_user && !check_user(fd, address, report_p)) {
        close(fd);
        return -1;
    }
    if (dial_prove(fd, place, address,
            uli_min(deadline, uli_deadline_in(HANDSHAKE_S)), report_p)) {
        close(fd);
        return -1;
    }
    return fd;
}

int
uli_dial_once(const struct uli_endpoint *place, uli_deadline_t deadline,
    struct uli_dial_report *report_p)
{
    memset(report_p, 0, sizeof(*report_p));
    for (int i = 0; i < place->count; i++) {
        int fd = dial_address(place, &place->addresses[i], deadline, report_p);
        if (fd >= 0)
            return fd;
    }
    if (!report_p->status)
        snprintf(report_p->text, sizeof(report_p->text), "no address");
    return -1;
}

void
uli_dial_pause(int *pause_ms, uli_deadline_t deadline)
{
    int ms = uli_deadline_poll_ms(deadline, *pause_ms);
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
    *pause_ms = (int)uli_min(2 * *pause_ms, PAUSE_LONGEST_MS);
}

/* Refuses a meeting none of whose addresses can be used: every connect() would
 * fail with EINVAL, until the deadline. */
static ulyx_status_t
check_scopes(const struct uli_endpoint *place)
{
    char where[ULI_ADDRESS_TEXT_BYTES] = "";
    for (int i = 0; i < place->count; i++) {
        if (!uli_address_lacks_scope(&place->addresses[i]))
            return ULYX_SUCCESS;
        uli_address_text(&place->addresses[i], where, sizeof(where));
    }
    if (place->count == 0)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "bootstrap: %s is a link-local address without its interface: add "
        "%%<interface>, as in fe80::1%%eth0",
        where);
}

ulyx_status_t
uli_dial(const struct uli_endpoint *place, double settle_s,
    uli_deadline_t deadline, int *fd_p)
{
    uli_deadline_t settled = uli_min(deadline, uli_deadline_in(settle_s));
    uli_deadline_t notice = uli_deadline_in(NOTICE_S);
    struct uli_dial_report why, refusal = {0};
    int pause_ms = PAUSE_FIRST_MS;
    const char *who = place->who[0] ? place->who : "its root";
    ULI_TRY(check_scopes(place));
    for (;;) {
        int fd = uli_dial_once(place, deadline, &why);
        if (fd >= 0) {
            *fd_p = fd;
            return ULYX_SUCCESS;
        }
        if (why.status == ULYX_ERR_AUTH || why.status == ULYX_ERR_VERSION)
            refusal = why;
        if (refusal.status && uli_deadline_over(settled))
            return uli_error(refusal.status, "bootstrap: %s", refusal.text);
        if (uli_deadline_over(deadline))
            return uli_error(ULYX_ERR_TIMEOUT,
                "bootstrap: no root could be reached before the deadline: the "
                "meeting is served by %s; last: %s",
                who, why.text);
        if (uli_deadline_over(notice)) {
            ULI_WARN(ULI_LOG_INIT, -1,
                "bootstrap: still trying to reach the root, which is %s; last: "
                "%s",
                who, why.text);
            notice = INT64_MAX;
        }
        uli_dial_pause(&pause_ms, deadline);
    }
}
