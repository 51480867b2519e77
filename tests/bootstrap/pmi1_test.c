/* SPDX-License-Identifier: Apache-2.0
 *
 * The PMI-1 client with a small server in the test: a store, a barrier, and
 * each way in which a server can misbehave.
 */
#include "bootstrap/launch/pmi1.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "support/test.h"

enum { CLIENTS = 4, PAIRS = 64, LINE = 2048 };

/* What the server does wrong. */
enum fault {
    FAULT_NONE,
    FAULT_SILENT,      /* does not answer */
    FAULT_CLOSES,      /* closes the connection at the barrier */
    FAULT_VERSION,     /* reports version 2 */
    FAULT_PUT,         /* refuses to store */
    FAULT_NO_VALUE,    /* does not have the key */
    FAULT_ENDLESS,     /* sends an answer without an end */
    FAULT_TINY_VALUES, /* stores only 8 bytes per value */
    FAULT_OTHER_ANSWER /* answers another question */
};

struct server {
    pthread_t thread;
    int nclients;
    int fds[CLIENTS];
    enum fault fault;
    int value_bytes;
    char names[PAIRS][64], values[PAIRS][LINE];
    int pairs, arrived, longest;
};

static void
server_answer(const struct server *server, int client, const char *line)
{
    /* Writes in two pieces, because a stream may arrive in pieces. */
    size_t half = strlen(line) / 2;
    ssize_t wrote = write(server->fds[client], line, half);
    wrote = write(server->fds[client], line + half, strlen(line) - half);
    (void)wrote;
}

static void
value_of(const char *line, const char *key, char *value_p)
{
    const char *at = strstr(line, key);
    *value_p = 0;
    if (at)
        sscanf(at + strlen(key), "%1023[^ \n]", value_p);
}

static void
serve_put(struct server *server, int client, const char *line)
{
    int i = server->pairs++;
    value_of(line, " key=", server->names[i]);
    value_of(line, " value=", server->values[i]);
    int length = (int)strlen(server->values[i]);
    if (length > server->longest)
        server->longest = length;
    server_answer(server, client,
        server->fault == FAULT_PUT ? "cmd=put_result rc=-1 msg=full\n"
                                   : "cmd=put_result rc=0 msg=success\n");
}

static void
serve_get(const struct server *server, int client, const char *line)
{
    char name[1024], reply[LINE + 64];
    value_of(line, " key=", name);
    for (int i = 0; i < server->pairs; i++) {
        if (strcmp(server->names[i], name) != 0 ||
            server->fault == FAULT_NO_VALUE)
            continue;
        snprintf(reply, sizeof(reply),
            "cmd=get_result rc=0 msg=success value=%.1500s\n",
            server->values[i]);
        server_answer(server, client, reply);
        return;
    }
    server_answer(server, client, "cmd=get_result rc=-1 msg=key_not_found\n");
}

static void
serve_init(const struct server *server, int client)
{
    char endless[3000];
    switch (server->fault) {
    case FAULT_VERSION:
        server_answer(server, client,
            "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");
        return;
    case FAULT_ENDLESS:
        memset(endless, 'x', sizeof(endless));
        endless[sizeof(endless) - 1] = 0;
        server_answer(server, client, endless);
        return;
    case FAULT_OTHER_ANSWER:
        server_answer(server, client, "cmd=who_are_you rc=0\n");
        return;
    default:
        server_answer(server, client,
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    }
}

static void
serve_line(struct server *server, int client, const char *line)
{
    char reply[128];
    if (strncmp(line, "cmd=init ", 9) == 0) {
        serve_init(server, client);
    } else if (strncmp(line, "cmd=get_maxes", 13) == 0) {
        snprintf(reply, sizeof(reply),
            "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=%d\n",
            server->value_bytes);
        server_answer(server, client, reply);
    } else if (strncmp(line, "cmd=get_my_kvsname", 18) == 0) {
        server_answer(server, client, "cmd=my_kvsname kvsname=kvs_7_0\n");
    } else if (strncmp(line, "cmd=put kvsname=kvs_7_0 ", 24) == 0) {
        serve_put(server, client, line);
    } else if (strncmp(line, "cmd=get kvsname=kvs_7_0 ", 24) == 0) {
        serve_get(server, client, line);
    } else if (strncmp(line, "cmd=barrier_in", 14) == 0) {
        if (++server->arrived == server->nclients)
            for (int i = 0; i < server->nclients; i++)
                server_answer(server, i, "cmd=barrier_out\n");
    } else {
        server_answer(server, client, "cmd=error rc=-1\n");
    }
}

/* Serves one line of a client. Returns false when the client has gone or must
 * be left. */
static bool
serve_client(struct server *server, int client)
{
    char line[LINE];
    size_t used = 0;
    while (used + 1 < sizeof(line)) {
        if (read(server->fds[client], line + used, 1) != 1)
            return false;
        if (line[used++] == '\n')
            break;
    }
    line[used] = 0;
    if (server->fault == FAULT_SILENT)
        return true;
    if (server->fault == FAULT_CLOSES && strstr(line, "barrier_in"))
        return false;
    serve_line(server, client, line);
    return true;
}

static void *
server_thread(void *context)
{
    struct server *server = context;
    int left = server->nclients;
    bool open[CLIENTS];
    for (int i = 0; i < server->nclients; i++)
        open[i] = true;
    while (left > 0) {
        struct pollfd waited[CLIENTS];
        for (int i = 0; i < server->nclients; i++)
            waited[i] =
                (struct pollfd){open[i] ? server->fds[i] : -1, POLLIN, 0};
        poll(waited, (nfds_t)server->nclients, 1000);
        for (int i = 0; i < server->nclients; i++) {
            if (!waited[i].revents || serve_client(server, i))
                continue;
            shutdown(server->fds[i], SHUT_RDWR);
            open[i] = false;
            left--;
        }
    }
    return NULL;
}

struct client {
    pthread_t thread;
    int fd, rank;
    double patience_s;
    ulyx_status_t status;
    char value[1200], text[512];
};

static void *
client_thread(void *context)
{
    struct client *client = context;
    client->status = uli_pmi1_share(client->fd, client->rank, "ulyx-meeting-0",
        client->value, sizeof(client->value),
        uli_deadline_in(client->patience_s));
    snprintf(client->text, sizeof(client->text), "%s", ulyx_last_error());
    return NULL;
}

/* Runs all clients, which share a value of `length` bytes from rank 0. */
static void
clients_run(
    enum fault fault, int value_bytes, int length, struct client *clients)
{
    struct server *server = calloc(1, sizeof(*server));
    server->nclients = CLIENTS;
    server->fault = fault;
    server->value_bytes = value_bytes;
    for (int i = 0; i < CLIENTS; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        server->fds[i] = pair[0];
        clients[i] = (struct client){.fd = pair[1],
            .rank = i,
            .patience_s = fault == FAULT_SILENT ? 0.2 : 10};
    }
    for (int i = 0; i < length; i++)
        clients[0].value[i] = (char)('a' + i % 26);
    pthread_create(&server->thread, NULL, server_thread, server);
    for (int i = 0; i < CLIENTS; i++)
        pthread_create(&clients[i].thread, NULL, client_thread, &clients[i]);
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        shutdown(clients[i].fd, SHUT_RDWR);
    }
    pthread_join(server->thread, NULL);
    assert_true(server->longest < value_bytes);
    for (int i = 0; i < CLIENTS; i++) {
        close(clients[i].fd);
        close(server->fds[i]);
    }
    free(server);
}

static void
value_reaches_all(void **state)
{
    (void)state;
    static const int limits[] = {1024, 256, 16}, lengths[] = {1, 14, 100, 509};
    struct client clients[CLIENTS];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) {
            clients_run(FAULT_NONE, limits[i], lengths[j], clients);
            for (int r = 0; r < CLIENTS; r++) {
                if (clients[r].status)
                    fail_msg("rank %d: %s", r, clients[r].text);
                assert_string_equal(clients[r].value, clients[0].value);
                assert_int_equal(strlen(clients[r].value), lengths[j]);
            }
        }
}

static void
faults_are_named(void **state)
{
    (void)state;
    static const struct {
        enum fault fault;
        int rank; /* rank that gets the error */
        ulyx_status_t status;
        const char *text;
    } cases[] = {
        {FAULT_SILENT, 0, ULYX_ERR_TIMEOUT, "did not answer response_to_init"},
        {FAULT_CLOSES, 1, ULYX_ERR_SYSTEM,
            "closed its connection during barrier_out"},
        {FAULT_VERSION, 2, ULYX_ERR_UNSUPPORTED, "PMI version \"2\""},
        {FAULT_PUT, 0, ULYX_ERR_SYSTEM, "put_result rc=-1 msg=full"},
        {FAULT_NO_VALUE, 3, ULYX_ERR_SYSTEM, "rc=-1 msg=key_not_found"},
        {FAULT_ENDLESS, 0, ULYX_ERR_SYSTEM, "has no end of line"},
        {FAULT_TINY_VALUES, 1, ULYX_ERR_UNSUPPORTED, "values of 8 bytes"},
        {FAULT_OTHER_ANSWER, 2, ULYX_ERR_SYSTEM, "\"cmd=who_are_you rc=0\""},
    };
    struct client clients[CLIENTS];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        clients_run(cases[i].fault,
            cases[i].fault == FAULT_TINY_VALUES ? 8 : 1024, 50, clients);
        const struct client *seen = &clients[cases[i].rank];
        if (seen->status != cases[i].status ||
            !strstr(seen->text, cases[i].text))
            fail_msg("fault %d: status %d, \"%s\"", cases[i].fault,
                seen->status, seen->text);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(value_reaches_all),
    cmocka_unit_test(faults_are_named),
};
ULI_TEST_MAIN("Pmi1", tests)
