/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections that do not belong to the meeting: each kind of bad peer connects
 * to the root while ranks meet. The meeting continues. A meeting that times out
 * names the connections that the root dropped, with the reasons.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "bootstrap/meet/frame.h"
#include "bootstrap/meeting.h"
#include "support/random.h"
#include "support/test.h"

/* What a bad peer does on a new connection, which it leaves open or closes. */
typedef void (*stray_fn)(int fd);

static void
bytes_send(int fd, const void *bytes, size_t count)
{
    assert_int_equal(uli_socket_send(fd, bytes, count, uli_deadline_in(5)), 0);
}

static void
stray_garbage(int fd)
{
    char bytes[4096];
    memset(bytes, 0xA5, sizeof(bytes));
    bytes_send(fd, bytes, sizeof(bytes));
}

static void
stray_http(int fd)
{
    bytes_send(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27);
    shutdown(fd, SHUT_WR);
}

static void
short_hello(int fd)
{
    bytes_send(fd, "ulyxmeet\1", 9);
    shutdown(fd, SHUT_WR);
}

static void
port_scan(int fd)
{
    struct linger reset = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

static void
stray_silence(int fd)
{
    (void)fd;
}

static void
other_version(int fd)
{
    unsigned char hello[ULI_HELLO_BYTES] = "ulyxmeet\x63";
    bytes_send(fd, hello, sizeof(hello));
}

/* Sends a correct hello, reads the root's challenge, and writes this end's key
 * share to answer_p. */
static void
stray_greet(int fd, struct uli_auth *auth, unsigned char *answer_p)
{
    unsigned char challenge[ULI_CHALLENGE_BYTES], hello[ULI_HELLO_BYTES];
    unsigned version;
    memset(auth->nonces[ULI_AUTH_RANK], 7, ULI_NONCE_BYTES);
    uli_hello_encode(auth->nonces[ULI_AUTH_RANK], hello);
    bytes_send(fd, hello, sizeof(hello));
    assert_int_equal(uli_socket_receive(
                         fd, challenge, sizeof(challenge), uli_deadline_in(5)),
        0);
    assert_int_equal(
        uli_hello_decode(challenge, auth->nonces[ULI_AUTH_ROOT], &version),
        ULI_HELLO_OK);
    assert_status(uli_auth_share(auth, ULI_AUTH_RANK, answer_p), ULYX_SUCCESS);
    assert_true(
        uli_auth_agree(auth, ULI_AUTH_RANK, challenge + ULI_HELLO_BYTES));
}

static const unsigned char *secret;

/* Answers with the proof of `end`, made with the meeting's secret or, if not
 * `right`, with another. */
static void
stray_answer(int fd, struct uli_auth *auth, enum uli_auth_end end, bool right)
{
    unsigned char bytes[ULI_ANSWER_BYTES];
    memcpy(auth->secret, secret, ULI_SECRET_BYTES);
    auth->secret[0] ^= !right;
    stray_greet(fd, auth, bytes);
    uli_auth_proof(auth, end, bytes + ULI_SHARE_BYTES);
    bytes_send(fd, bytes, sizeof(bytes));
}

static void
wrong_proof(int fd)
{
    struct uli_auth auth;
    stray_answer(fd, &auth, ULI_AUTH_RANK, false);
}

/* Sends the root's own kind of proof back to the root, which must refuse it
 * because proofs carry labels. */
static void
reflected_proof(int fd)
{
    struct uli_auth auth;
    stray_answer(fd, &auth, ULI_AUTH_ROOT, true);
}

/* Sends key shares that would make the key public: the neutral element, and
 * bytes that are no group element. The proof fits a product of zero. */
static void
share_send(int fd, int byte)
{
    struct uli_auth auth;
    unsigned char bytes[ULI_ANSWER_BYTES];
    memcpy(auth.secret, secret, ULI_SECRET_BYTES);
    stray_greet(fd, &auth, bytes);
    memset(auth.key, 0, sizeof(auth.key));
    memset(bytes, byte, ULI_SHARE_BYTES);
    uli_auth_proof(&auth, ULI_AUTH_RANK, bytes + ULI_SHARE_BYTES);
    bytes_send(fd, bytes, sizeof(bytes));
}

static void
neutral_share(int fd)
{
    share_send(fd, 0);
}

static void
share_of_no_element(int fd)
{
    share_send(fd, 0xFF);
}

/* Proves the secret; the caller then breaks the protocol. */
static void
stray_authenticate(int fd)
{
    struct uli_auth auth;
    unsigned char outcome[ULI_OUTCOME_BYTES];
    stray_answer(fd, &auth, ULI_AUTH_RANK, true);
    assert_int_equal(
        uli_socket_receive(fd, outcome, sizeof(outcome), uli_deadline_in(5)),
        0);
    assert_int_equal(outcome[0], 1);
    assert_true(uli_auth_check(&auth, ULI_AUTH_ROOT, outcome + 1));
}

static void
send_frame(int fd, enum uli_frame_type type, uint64_t bytes, size_t given)
{
    unsigned char message[ULI_FRAME_HEADER_BYTES + 512] = {0};
    struct uli_frame frame = {type, 0, bytes, 1000};
    uli_frame_encode(&frame, message);
    bytes_send(fd, message, ULI_FRAME_HEADER_BYTES + given);
}

static void
oversized_join(int fd)
{
    stray_authenticate(fd);
    send_frame(fd, ULI_FRAME_JOIN, UINT64_C(1) << 40, 0);
}

static void
short_join(int fd)
{
    stray_authenticate(fd);
    send_frame(fd, ULI_FRAME_JOIN, 7, 7);
}

static void
record_before_join(int fd)
{
    stray_authenticate(fd);
    send_frame(fd, ULI_FRAME_RECORD, 8, 8);
}

static void
nonsense_after_proof(int fd)
{
    stray_authenticate(fd);
    stray_garbage(fd);
}

static const struct {
    const char *name;
    stray_fn act;
    const char *why; /* the reason that the root logs */
} strays[] = {
    {"garbage", stray_garbage, "not ulyx"},
    {"http", stray_http, "closed within its first message"},
    {"short hello", short_hello, "closed within its first message"},
    {"port scan", port_scan, ""}, /* closed or reset, whichever comes first */
    {"silence", stray_silence, "no handshake within 0.3 s"},
    {"other version", other_version, "protocol version 99, here 2"},
    {"wrong proof", wrong_proof, "wrong secret"},
    {"reflected proof", reflected_proof, "wrong secret"},
    {"neutral share", neutral_share, "wrong secret"},
    {"no element", share_of_no_element, "wrong secret"},
    {"oversized join", oversized_join, "frame too long"},
    {"short join", short_join, "bad join"},
    {"record before join", record_before_join, "bad join"},
    {"nonsense after proof", nonsense_after_proof, "not a frame"},
};
enum { STRAYS = sizeof(strays) / sizeof(strays[0]) };

/* Two of three ranks meet and time out; the text has the stray's reason. */
static void
each_stray_is_dropped_and_named(void **state)
{
    (void)state;
    for (int i = 0; i < STRAYS; i++) {
        struct uli_endpoint place;
        struct meeting_rank ranks[3];
        memset(ranks, 0, sizeof(ranks));
        int files = meeting_open_files();
        struct uli_root *root = meeting_open(MEETING_V4, 20, 0.3, &place);
        secret = place.secret;
        int fd = meeting_raw(&place);
        assert_true(fd >= 0);
        strays[i].act(fd);
        if (strays[i].act == port_scan)
            close(fd);
        for (int r = 0; r < 3; r++)
            ranks[r] = (struct meeting_rank){.rank = r,
                .nranks = 3,
                .bytes = 8,
                .gathers = 1,
                .patience_s = 0.7,
                .absent = r == 1};
        meeting_run(&place, ranks, 3);
        if (strays[i].act != port_scan)
            close(fd);
        if (ranks[0].status != ULYX_ERR_TIMEOUT ||
            !strstr(ranks[0].text,
                "meeting of 3 ranks: timed out waiting for rank 1 to join") ||
            !strstr(ranks[0].text, "1 connection dropped: 127.0.0.1 (") ||
            !strstr(ranks[0].text, strays[i].why))
            fail_msg("%s: status %d, text \"%s\"", strays[i].name,
                ranks[0].status, ranks[0].text);
        meeting_close(root);
        assert_int_equal(meeting_open_files(), files);
    }
}

/* ---- a meeting under fire ------------------------------------------------ */

struct fire {
    const struct uli_endpoint *place;
    uint64_t seed;
    int knocks;
    int count;
};

/* Sends random bytes of random length, some of them after a correct hello. */
static void *
knock_thread(void *context)
{
    struct fire *fire = context;
    struct test_random random = {fire->seed};
    unsigned char bytes[256];
    for (int i = 0; i < fire->knocks; i++) {
        int fd = meeting_raw(fire->place);
        if (fd < 0)
            break; /* the listener is closed: all have joined */
        size_t count = (size_t)test_random_in(&random, 0, sizeof(bytes));
        for (size_t b = 0; b < count; b++)
            bytes[b] = (unsigned char)test_random_next(&random);
        if (count >= ULI_HELLO_BYTES && test_random_in(&random, 0, 1))
            uli_hello_encode(bytes, bytes);
        uli_socket_send(fd, bytes, count, uli_deadline_in(1));
        if (test_random_in(&random, 0, 3) == 0)
            meeting_raw_drain(fd, 0.01);
        close(fd);
        fire->count++;
    }
    return NULL;
}

static void
meeting_succeeds_beside_stray_connections(void **state)
{
    (void)state;
    struct meeting_rank ranks[6];
    struct uli_endpoint place;
    pthread_t threads[3];
    struct fire fires[3];
    uint64_t seed = test_seed(77);
    struct uli_root *root = meeting_open(MEETING_V4, 20, 1, &place);
    for (int i = 0; i < 3; i++) {
        fires[i] =
            (struct fire){&place, seed + (uint64_t)i, (int)test_draws(60), 0};
        pthread_create(&threads[i], NULL, knock_thread, &fires[i]);
    }
    for (int r = 0; r < 6; r++)
        ranks[r] = (struct meeting_rank){.rank = r,
            .nranks = 6,
            .bytes = 3000,
            .gathers = 5,
            .patience_s = 20,
            .late_s = 0.05 * r};
    meeting_run(&place, ranks, 6);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (int r = 0; r < 6; r++)
        if (ranks[r].status)
            fail_msg("rank %d: %s", r, ranks[r].text);
    assert_true(fires[0].count > 0);
    meeting_close(root);
}

/* A connection that sends a byte now and then delays no rank, and is closed. */
static void
slow_peer_delays_no_rank(void **state)
{
    (void)state;
    struct meeting_rank ranks[2];
    struct uli_endpoint place;
    struct uli_root *root = meeting_open(MEETING_V4, 20, 0.4, &place);
    int fd = meeting_raw(&place);
    assert_true(fd >= 0);
    bytes_send(fd, "ulyx", 4);
    int64_t begin = uli_clock_ns();
    for (int r = 0; r < 2; r++)
        ranks[r] = (struct meeting_rank){.rank = r,
            .nranks = 2,
            .bytes = 8,
            .gathers = 1,
            .patience_s = 20,
            .late_s = r};
    meeting_run(&place, ranks, 2);
    assert_int_equal(ranks[0].status, ULYX_SUCCESS);
    assert_int_equal(ranks[1].status, ULYX_SUCCESS);
    /* The connection was cut off after 0.4 s, although a rank came only after 1
     * s. */
    assert_int_equal(meeting_raw_drain(fd, 5), 0);
    assert_true(uli_clock_ns() - begin < 15 * INT64_C(1000000000));
    close(fd);
    meeting_close(root);
}

/* ---- the rank's side: connections to something that is no root ----------- */

struct impostor {
    int listener;
    const unsigned char *answer;
    size_t bytes;
};

static void *
serve_impostor(void *context)
{
    const struct impostor *impostor = context;
    unsigned char hello[ULI_HELLO_BYTES];
    int fd = -1;
    while (fd < 0)
        fd = accept(impostor->listener, NULL, NULL);
    if (uli_socket_receive(fd, hello, sizeof(hello), uli_deadline_in(5)) == 0)
        uli_socket_send(
            fd, impostor->answer, impostor->bytes, uli_deadline_in(5));
    meeting_raw_drain(fd, 5);
    close(fd);
    return NULL;
}

static void
dial_impostor(const unsigned char *answer, size_t bytes, ulyx_status_t status,
    const char *text)
{
    struct uli_endpoint place = {.count = 1};
    struct impostor impostor = {-1, answer, bytes};
    struct uli_dial_report report;
    pthread_t thread;
    uli_auth_init();
    assert_true(uli_address_parse("127.0.0.1:1", &place.addresses[0]));
    uli_address_set_port(&place.addresses[0], 0);
    assert_int_equal(
        uli_socket_listen(&place.addresses[0], &impostor.listener), 0);
    pthread_create(&thread, NULL, serve_impostor, &impostor);
    assert_int_equal(uli_dial_once(&place, uli_deadline_in(2), &report), -1);
    pthread_join(thread, NULL);
    close(impostor.listener);
    assert_int_equal(report.status, status);
    if (!strstr(report.text, text))
        fail_msg("\"%s\" lacks \"%s\"", report.text, text);
}

static void
rank_names_a_root_of_another_version(void **state)
{
    (void)state;
    unsigned char answer[ULI_HELLO_BYTES] = "ulyxmeet\1";
    dial_impostor(answer, sizeof(answer), ULYX_ERR_VERSION,
        "has protocol version 1, this rank has 2");
}

/* Version 1 had a hello of the same length, and reads an answer of the same
 * length before it checks the version. */
static void
rank_of_version_1_reads_the_roots_version(void **state)
{
    (void)state;
    struct uli_endpoint place;
    unsigned char hello[ULI_HELLO_BYTES] = "ulyxmeet\1";
    struct uli_root *root = meeting_open(MEETING_V4, 20, 1, &place);
    int fd = meeting_raw(&place);
    assert_true(fd >= 0);
    bytes_send(fd, hello, sizeof(hello));
    assert_int_equal(
        uli_socket_receive(fd, hello, sizeof(hello), uli_deadline_in(5)), 0);
    assert_memory_equal(hello, "ulyxmeet\2\0", 10);
    assert_int_equal(meeting_raw_drain(fd, 5), 0);
    close(fd);
    meeting_close(root);
}

static void
rank_refuses_what_is_no_root(void **state)
{
    (void)state;
    static const unsigned char banner[64] = "220 mail.example.org ESMTP";
    dial_impostor(
        banner, sizeof(banner), ULYX_ERR_SYSTEM, "is not a ulyx root");
    dial_impostor(banner, 3, ULYX_ERR_SYSTEM, "does not answer");
}

/* A false root that guesses the secret: the answer shows whether its guess was
 * right, and nothing about any other secret, the right one included. */
struct guesser {
    int listener;
    struct uli_auth
        auth; /* with the guess; then all that the false root receives */
    unsigned char answer[ULI_ANSWER_BYTES];
};

static void *
serve_guesser(void *context)
{
    struct guesser *guesser = context;
    struct uli_auth *auth = &guesser->auth;
    unsigned char hello[ULI_HELLO_BYTES], challenge[ULI_CHALLENGE_BYTES];
    unsigned version;
    int fd = -1;
    while (fd < 0)
        fd = accept(guesser->listener, NULL, NULL);
    if (uli_socket_receive(fd, hello, sizeof(hello), uli_deadline_in(5)) == 0 &&
        uli_hello_decode(hello, auth->nonces[ULI_AUTH_RANK], &version) ==
            ULI_HELLO_OK) {
        uli_hello_encode(auth->nonces[ULI_AUTH_ROOT], challenge);
        uli_auth_share(auth, ULI_AUTH_ROOT, challenge + ULI_HELLO_BYTES);
        uli_socket_send(fd, challenge, sizeof(challenge), uli_deadline_in(5));
        uli_socket_receive(
            fd, guesser->answer, sizeof(guesser->answer), uli_deadline_in(5));
    }
    close(fd);
    return NULL;
}

/* Returns whether a secret fits what the guesser has: its scalar and the
 * answer. */
static bool
guess_fits(const struct guesser *guesser, const unsigned char *candidate)
{
    struct uli_auth auth = guesser->auth;
    memcpy(auth.secret, candidate, ULI_SECRET_BYTES);
    return uli_auth_agree(&auth, ULI_AUTH_ROOT, guesser->answer) &&
           uli_auth_check(
               &auth, ULI_AUTH_RANK, guesser->answer + ULI_SHARE_BYTES);
}

static void
fake_root_can_test_one_guess_only(void **state)
{
    (void)state;
    for (int right = 0; right < 2; right++) {
        struct uli_endpoint place = {.count = 1};
        struct guesser guesser = {.listener = -1};
        struct uli_dial_report report;
        unsigned char guess[ULI_SECRET_BYTES];
        pthread_t thread;
        assert_status(uli_auth_init(), ULYX_SUCCESS);
        uli_secret_from_text("correct horse battery", place.secret);
        uli_secret_from_text(
            right ? "correct horse battery" : "Tr0ub4dor", guess);
        memcpy(guesser.auth.secret, guess, sizeof(guess));
        assert_true(uli_address_parse("127.0.0.1:1", &place.addresses[0]));
        uli_address_set_port(&place.addresses[0], 0);
        assert_int_equal(
            uli_socket_listen(&place.addresses[0], &guesser.listener), 0);
        pthread_create(&thread, NULL, serve_guesser, &guesser);
        assert_int_equal(
            uli_dial_once(&place, uli_deadline_in(5), &report), -1);
        pthread_join(thread, NULL);
        close(guesser.listener);
        assert_int_equal(guess_fits(&guesser, guess), right);
        assert_int_equal(guess_fits(&guesser, place.secret), right);
    }
}

/* The false root accepts any proof, but does not have the secret. */
static void
rank_refuses_a_root_without_the_secret(void **state)
{
    (void)state;
    unsigned char answer[ULI_CHALLENGE_BYTES + ULI_OUTCOME_BYTES] = {0};
    struct uli_auth auth = {.nonces = {{1}, {1}}};
    uli_hello_encode(auth.nonces[ULI_AUTH_ROOT], answer);
    dial_impostor(
        answer, sizeof(answer), ULYX_ERR_SYSTEM, "is not a ulyx root");
    assert_status(uli_auth_init(), ULYX_SUCCESS);
    assert_status(
        uli_auth_share(&auth, ULI_AUTH_ROOT, answer + ULI_HELLO_BYTES),
        ULYX_SUCCESS);
    answer[ULI_CHALLENGE_BYTES] = 1;
    dial_impostor(answer, sizeof(answer), ULYX_ERR_AUTH,
        "does not have the meeting's secret");
}

static void
rank_with_wrong_secret_is_refused_by_name(void **state)
{
    (void)state;
    struct uli_endpoint place;
    int fd;
    struct uli_root *root = meeting_open(MEETING_V4, 20, 1, &place);
    place.secret[3] ^= 1;
    assert_status(uli_dial(&place, 0, uli_deadline_in(5), &fd), ULYX_ERR_AUTH);
    assert_non_null(strstr(ulyx_last_error(), "wrong secret"));
    assert_non_null(strstr(ulyx_last_error(), "127.0.0.1:"));
    meeting_close(root);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_stray_is_dropped_and_named),
    cmocka_unit_test(meeting_succeeds_beside_stray_connections),
    cmocka_unit_test(slow_peer_delays_no_rank),
    cmocka_unit_test(rank_names_a_root_of_another_version),
    cmocka_unit_test(rank_of_version_1_reads_the_roots_version),
    cmocka_unit_test(rank_refuses_what_is_no_root),
    cmocka_unit_test(fake_root_can_test_one_guess_only),
    cmocka_unit_test(rank_refuses_a_root_without_the_secret),
    cmocka_unit_test(rank_with_wrong_secret_is_refused_by_name),
};
ULI_TEST_MAIN("BootstrapStray", tests)
