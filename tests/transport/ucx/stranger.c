/* SPDX-License-Identifier: Apache-2.0
 *
 * See stranger.h.
 */
#include "transport/ucx/stranger.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "support/test.h"
#include "transport/ends.h"
#include "transport/ucx/net.h"

/* ---- sockets ------------------------------------------------------------- */

in_port_t
stranger_port(int except, struct in_addr *address_p)
{
    in_port_t port = 0;
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in at;
        socklen_t length = sizeof(at);
        int listens = 0;
        socklen_t size = sizeof(listens);
        if (fd == except ||
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) ||
            !listens || getsockname(fd, (struct sockaddr *)&at, &length) ||
            at.sin_family != AF_INET)
            continue;
        port = at.sin_port;
        *address_p = at.sin_addr;
    }
    return port;
}

static int
connect_within(const struct stranger_aim *aim, int ms)
{
    struct sockaddr_in from = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7F000002)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
    socklen_t length = sizeof(error);
    if (aim->elsewhere)
        assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    connect(fd, (const struct sockaddr *)&aim->port, sizeof(aim->port));
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (poll(&wait, 1, ms) == 1 &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
        error == 0)
        return fd;
    close(fd);
    return -1;
}

void
stranger_write_raw(
    const struct stranger_aim *aim, struct stranger_report *report)
{
    struct __attribute__((packed)) {
        uint64_t magic;
        uint8_t kind;
        uint32_t header_bytes;
        uint64_t address, bytes;
        uint32_t number;
        char data[STRANGER_BYTES];
    } packet = {
        0xCAFEBABE12345678, 33, 20, aim->address, STRANGER_BYTES, 0, {0}};
    memset(packet.data, 'W', sizeof(packet.data));
    int fd = connect_within(aim, 700);
    report->connected = fd >= 0;
    if (fd < 0)
        return;
    ssize_t sent = send(fd, &packet, sizeof(packet), MSG_NOSIGNAL);
    (void)sent;
    usleep(300000); /* left open: closing it ends the other process too */
}

void
stranger_pester(const struct stranger_aim *aim)
{
    struct stranger_aim keepalive_connection = *aim;
    struct uli_ucx_hello hello = {.token = 1, .from = 1};
    keepalive_connection.port.sin_port = aim->keepalive_connection;
    keepalive_connection.elsewhere = false; /* as a user of a peer's host */
    for (int i = 0; i < 3 * ULI_UCX_CALLERS; i++) {
        int fd = connect_within(&keepalive_connection, 300);
        if (fd < 0)
            return;
        hello.from = i % 4 - 1;
        ssize_t sent =
            send(fd, &hello, sizeof(hello) * (size_t)(i % 3) / 2, MSG_NOSIGNAL);
        (void)sent;
        if (i % 5 == 0)
            close(fd);
    }
}

/* ---- a client of UCX ----------------------------------------------------- */

struct client {
    const struct uli_ucx_calls *ucx;
    __typeof__(&ucp_get_nbx) get;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    bool failed, sent;
    char *memory; /* of its own: its key is passed off as another's */
    ucp_mem_h registered;
    ucp_rkey_h key;
};

static void
endpoint_failed(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep, (void)status;
    ((struct client *)argument)->failed = true;
}

/* Does not use TCP's own put, which stranger_write_raw sends: only the gate
 * stops that put. */
static void
open_client(struct client *client, const char *device)
{
    char why[256];
    ucp_config_t *config;
    ucp_params_t wanted = {.field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_TAG};
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE};
    client->ucx = uli_ucx_open(why, sizeof(why));
    assert_non_null(client->ucx);
    void *symbol =
        dlsym(dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD), "ucp_get_nbx");
    memcpy(&client->get, &symbol, sizeof(symbol));
    assert_non_null(symbol);
    assert_int_equal(client->ucx->config_read(NULL, NULL, &config), UCS_OK);
    client->ucx->config_modify(config, "TLS", "tcp");
    client->ucx->config_modify(config, "NET_DEVICES", device);
    client->ucx->config_modify(config, "CONN_NB", "y");
    client->ucx->config_modify(config, "PUT_ENABLE", "n");
    client->ucx->config_modify(config, "TCP_PUT_ENABLE", "n");
    assert_int_equal(client->ucx->init_version(UCP_API_MAJOR, UCP_API_MINOR,
                         &wanted, config, &client->context),
        UCS_OK);
    client->ucx->config_release(config);
    assert_int_equal(
        client->ucx->worker_create(client->context, &params, &client->worker),
        UCS_OK);
}

static void
text_replace(
    char *text, size_t bytes, const void *old, const void *new, size_t part)
{
    char *at = memmem(text, bytes, old, part);
    if (at)
        memcpy(at, new, part);
}

/* Its own address, changed to the other's place and with another worker's
 * number. */
static void
client_reach(struct client *client, const struct stranger_aim *aim)
{
    ucp_address_t *address;
    size_t bytes;
    struct in_addr mine;
    in_port_t port = stranger_port(-1, &mine);
    assert_int_equal(
        client->ucx->worker_get_address(client->worker, &address, &bytes),
        UCS_OK);
    char *text = (char *)address;
    text_replace(text, bytes, &port, &aim->port.sin_port, sizeof(port));
    text_replace(text, bytes, &mine, &aim->port.sin_addr, sizeof(mine));
    for (int i = 1; i < 9; i++)
        text[i] = (char)(text[i] ^ 0x5A);
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_NONE,
        .err_handler = {.cb = endpoint_failed, .arg = client},
    };
    if (client->ucx->ep_create(client->worker, &params, &client->ep) != UCS_OK)
        client->failed = true;
}

static void
forge_key(struct client *client)
{
    client->memory = calloc(1, 4096);
    ucp_mem_map_params_t params = {
        .field_mask =
            UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = client->memory,
        .length = 4096,
    };
    void *packed;
    size_t bytes;
    assert_int_equal(
        client->ucx->mem_map(client->context, &params, &client->registered),
        UCS_OK);
    assert_int_equal(client->ucx->rkey_pack(
                         client->context, client->registered, &packed, &bytes),
        UCS_OK);
    if (client->ucx->ep_rkey_unpack(client->ep, packed, &client->key) != UCS_OK)
        client->failed = true;
    client->ucx->rkey_buffer_release(packed);
}

static void
move_for(struct client *client, double seconds)
{
    int64_t deadline = uli_deadline_in(seconds);
    while (!uli_deadline_over(deadline) && !client->failed)
        if (!client->ucx->worker_progress(client->worker))
            usleep(200);
}

static void
access_memory(struct client *client, const struct stranger_aim *aim,
    struct stranger_report *report)
{
    static char write[STRANGER_BYTES];
    const ucp_request_param_t how = {0};
    memset(write, 'R', sizeof(write));
    (void)client->get(client->ep, client->memory, STRANGER_BYTES, aim->address,
        client->key, &how);
    move_for(client, 0.5);
    memcpy(report->read, client->memory, STRANGER_BYTES);
    (void)client->ucx->put_nbx(
        client->ep, write, sizeof(write), aim->address, client->key, &how);
    move_for(client, 0.3);
}

/* Messages without a token, with a wrong token, and cut short. */
static void
send_messages(struct client *client)
{
    static struct uli_ucx_head heads[2 * ULI_UCX_VERB_AGREED + 2];
    static char data[STRANGER_PIECE];
    const ucp_request_param_t how = {0};
    memset(data, 'A', sizeof(data));
    for (uint32_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        heads[i] = (struct uli_ucx_head){.token = i % 2 ? 0 : 0x1234567,
            .from = 1,
            .kind = i / 2,
            .window = ENDS_DATA,
            .signal_window = ENDS_SIGNALS,
            .signal = 99,
            .bytes = 64};
        for (size_t bytes = 0; bytes <= sizeof(data); bytes += 150000)
            (void)client->ucx->am_send_nbx(client->ep, ULI_UCX_AM, &heads[i],
                sizeof(heads[i]) - (i % 3 == 2), data, bytes, &how);
    }
    move_for(client, 0.3);
}

static void
send_completed(void *request, ucs_status_t status, void *argument)
{
    (void)request;
    ((struct client *)argument)->sent = status == UCS_OK;
}

static void
send_word(struct client *client)
{
    const ucp_request_param_t how = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = send_completed,
        .user_data = client,
    };
    client->sent = client->ucx->am_send_nbx(client->ep, ULI_UCX_AM, "word", 4,
                       NULL, 0, &how) == NULL;
    move_for(client, 0.3);
}

/* Tags that would be accepted if a tag were a rank and a count. */
static void
send_tags(struct client *client)
{
    static char data[STRANGER_PIECE];
    const ucp_request_param_t how = {0};
    memset(data, 'T', sizeof(data));
    for (uint64_t from = 0; from < 2; from++)
        for (uint64_t i = 0; i < STRANGER_TAGS; i++)
            (void)client->ucx->tag_send_nbx(
                client->ep, data, sizeof(data), from << 40 | i, &how);
    move_for(client, 0.3);
}

void
stranger_send_ucx(const struct stranger_aim *aim,
    struct stranger_report *report, int report_fd, int socket)
{
    struct client client = {0};
    struct pollfd end = {.fd = socket, .events = POLLIN};
    open_client(&client, aim->device);
    client_reach(&client, aim);
    if (!client.failed)
        forge_key(&client);
    if (!client.failed)
        send_word(&client);
    if (!client.failed) {
        access_memory(&client, aim, report);
        send_messages(&client);
        send_tags(&client);
    }
    report->reached = client.sent && !client.failed;
    assert_int_equal(
        write(report_fd, report, sizeof(*report)), sizeof(*report));
    while (poll(&end, 1, 0) == 0)
        client.ucx->worker_progress(client.worker);
}
