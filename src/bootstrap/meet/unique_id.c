/* SPDX-License-Identifier: Apache-2.0
 *
 * The format of unique ids. As bytes:
 *
 *     0  "uxid"   4  version   5  address count   8  secret (16)
 *    24  addresses, 24 bytes each: family (4 or 6), 0, port (2, big-endian),
 *        address (16), scope (4, big-endian)
 *   216  checksum of all before (8)
 *
 * As text: "ulyx1/<secret>/<address>,<address>/<checksum>", so that a user can
 * see where ranks will meet. The checksum covers the text before it, so a text
 * that was cut on its way is refused with this reason.
 */
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/meet/unique_id.h"

enum {
    ID_VERSION = 1,
    VERSION_AT = 4,
    COUNT_AT = 5,
    SECRET_AT = 8,
    ADDRESSES_AT = 24,
    ENTRY_BYTES = 24,
    CHECKSUM_AT = ADDRESSES_AT + ULI_ADDRESS_MAX * ENTRY_BYTES,
    CHECKSUM_BYTES = 8,
    TEXT_CHECKSUM_BYTES = 4,
    ID_TEXT_LONGEST = 64 + ULI_ADDRESS_MAX * ULI_ADDRESS_TEXT_BYTES
};
_Static_assert(CHECKSUM_AT + CHECKSUM_BYTES <= ULYX_UNIQUE_ID_BYTES,
    "an id holds all its parts");

#define TEXT_PREFIX "ulyx1/"

static void
id_checksum(
    const void *data, size_t bytes, unsigned char *sum_p, size_t sum_bytes)
{
    unsigned char sum[crypto_generichash_BYTES];
    crypto_generichash(sum, sizeof(sum), data, bytes, NULL, 0);
    memcpy(sum_p, sum, sum_bytes);
}

/* ---- bytes --------------------------------------------------------------- */

static void
put_address(const struct uli_socket_address *address, unsigned char *entry_p)
{
    int port = uli_address_port(address);
    const struct sockaddr_in *v4 = (const void *)&address->storage;
    const struct sockaddr_in6 *v6 = (const void *)&address->storage;
    bool six = address->storage.ss_family == AF_INET6;
    entry_p[0] = six ? 6 : 4;
    entry_p[2] = (unsigned char)(port >> 8);
    entry_p[3] = (unsigned char)port;
    if (six) {
        uint32_t scope = htonl(v6->sin6_scope_id);
        memcpy(entry_p + 4, &v6->sin6_addr, 16);
        memcpy(entry_p + 20, &scope, sizeof(scope));
    } else {
        memcpy(entry_p + 4, &v4->sin_addr, 4);
    }
}

static bool
get_address(const unsigned char *entry, struct uli_socket_address *address_p)
{
    struct uli_socket_address address = {0};
    struct sockaddr_in *v4 = (void *)&address.storage;
    struct sockaddr_in6 *v6 = (void *)&address.storage;
    if (entry[0] == 6) {
        uint32_t scope;
        address.length = sizeof(*v6);
        v6->sin6_family = AF_INET6;
        memcpy(&v6->sin6_addr, entry + 4, 16);
        memcpy(&scope, entry + 20, sizeof(scope));
        v6->sin6_scope_id = ntohl(scope);
    } else if (entry[0] == 4) {
        address.length = sizeof(*v4);
        v4->sin_family = AF_INET;
        memcpy(&v4->sin_addr, entry + 4, 4);
    } else {
        return false;
    }
    uli_address_set_port(&address, entry[2] << 8 | entry[3]);
    *address_p = address;
    return true;
}

void
uli_unique_id_encode(const struct uli_endpoint *place, ulyx_unique_id_t *id_p)
{
    unsigned char *bytes = id_p->bytes;
    memset(bytes, 0, ULYX_UNIQUE_ID_BYTES);
    memcpy(bytes, "uxid", 4);
    bytes[VERSION_AT] = ID_VERSION;
    bytes[COUNT_AT] = (unsigned char)place->count;
    memcpy(bytes + SECRET_AT, place->secret, ULI_SECRET_BYTES);
    for (int i = 0; i < place->count; i++)
        put_address(
            &place->addresses[i], bytes + ADDRESSES_AT + i * ENTRY_BYTES);
    id_checksum(bytes, CHECKSUM_AT, bytes + CHECKSUM_AT, CHECKSUM_BYTES);
}

ulyx_status_t
uli_unique_id_decode(const ulyx_unique_id_t *id, struct uli_endpoint *place_p)
{
    const unsigned char *bytes = id->bytes;
    unsigned char sum[CHECKSUM_BYTES];
    struct uli_endpoint place = {.count = bytes[COUNT_AT]};
    ULI_TRY(uli_auth_init());
    if (memcmp(bytes, "uxid", 4) != 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "these bytes are not a unique id of ulyx");
    if (bytes[VERSION_AT] != ID_VERSION)
        return uli_error(ULYX_ERR_VERSION,
            "a unique id of version %d, this library reads version %d",
            bytes[VERSION_AT], ID_VERSION);
    id_checksum(bytes, CHECKSUM_AT, sum, sizeof(sum));
    bool good = memcmp(sum, bytes + CHECKSUM_AT, sizeof(sum)) == 0 &&
                place.count >= 1 && place.count <= ULI_ADDRESS_MAX;
    for (int i = 0; i < place.count && good; i++)
        good = get_address(
            bytes + ADDRESSES_AT + i * ENTRY_BYTES, &place.addresses[i]);
    if (!good)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "a damaged unique id: its checksum is wrong");
    memcpy(place.secret, bytes + SECRET_AT, ULI_SECRET_BYTES);
    *place_p = place;
    return ULYX_SUCCESS;
}

/* ---- text ---------------------------------------------------------------- */

static void
put_hex(const unsigned char *bytes, size_t count, char *text_p)
{
    for (size_t i = 0; i < count; i++)
        snprintf(text_p + 2 * i, 3, "%02x", bytes[i]);
}

static bool
get_hex(const char *text, size_t count, unsigned char *bytes_p)
{
    for (size_t i = 0; i < count; i++) {
        unsigned value;
        if (strspn(text + 2 * i, "0123456789abcdef") < 2 ||
            sscanf(text + 2 * i, "%2x", &value) != 1)
            return false;
        bytes_p[i] = (unsigned char)value;
    }
    return true;
}

ulyx_status_t
uli_unique_id_to_string(
    const ulyx_unique_id_t *id, char *text_p, size_t text_bytes)
{
    struct uli_endpoint place;
    char text[ID_TEXT_LONGEST] = TEXT_PREFIX;
    unsigned char sum[TEXT_CHECKSUM_BYTES];
    ULI_TRY(uli_unique_id_decode(id, &place));
    put_hex(place.secret, ULI_SECRET_BYTES, text + strlen(text));
    for (int i = 0; i < place.count; i++) {
        char address[ULI_ADDRESS_TEXT_BYTES];
        uli_address_text(&place.addresses[i], address, sizeof(address));
        strcat(text, i ? "," : "/");
        strcat(text, address);
    }
    strcat(text, "/");
    id_checksum(text, strlen(text), sum, sizeof(sum));
    put_hex(sum, sizeof(sum), text + strlen(text));
    if (strlen(text) >= text_bytes)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "the text of this id takes %zu bytes, the buffer has %zu",
            strlen(text) + 1, text_bytes);
    strcpy(text_p, text);
    return ULYX_SUCCESS;
}

static ulyx_status_t
refuse_text(const char *what)
{
    return uli_error(
        ULYX_ERR_INVALID_ARGUMENT, "this text is not a unique id: %s", what);
}

/* "<address>,<address>" up to end. */
static bool
parse_addresses(const char *text, const char *end, struct uli_endpoint *place)
{
    while (text < end) {
        char one[ULI_ADDRESS_TEXT_BYTES];
        size_t length = strcspn(text, ",/");
        if (length >= sizeof(one) || place->count == ULI_ADDRESS_MAX)
            return false;
        memcpy(one, text, length);
        one[length] = 0;
        if (!uli_address_parse(one, &place->addresses[place->count++]))
            return false;
        text += length + 1;
    }
    return place->count > 0;
}

ulyx_status_t
uli_unique_id_from_string(const char *text, ulyx_unique_id_t *id_p)
{
    struct uli_endpoint place = {0};
    unsigned char sum[TEXT_CHECKSUM_BYTES], expected[TEXT_CHECKSUM_BYTES];
    const size_t secret_end = strlen(TEXT_PREFIX) + 2 * ULI_SECRET_BYTES;
    ULI_TRY(uli_auth_init());
    if (strncmp(text, "ulyx", 4) != 0)
        return refuse_text("it does not begin with \"ulyx\"");
    if (strncmp(text, TEXT_PREFIX, strlen(TEXT_PREFIX)) != 0)
        return uli_error(ULYX_ERR_VERSION,
            "an id text of another version: it does not begin with \"%s\"",
            TEXT_PREFIX);
    const char *last = strrchr(text, '/');
    if (strlen(text) >= ID_TEXT_LONGEST || strlen(text) < secret_end ||
        last <= text + secret_end ||
        strlen(last + 1) != 2 * TEXT_CHECKSUM_BYTES ||
        !get_hex(last + 1, TEXT_CHECKSUM_BYTES, sum))
        return refuse_text("it is cut or altered");
    id_checksum(text, (size_t)(last + 1 - text), expected, sizeof(expected));
    if (memcmp(sum, expected, sizeof(sum)) != 0)
        return refuse_text("it is cut or altered, its checksum is wrong");
    if (!get_hex(text + strlen(TEXT_PREFIX), ULI_SECRET_BYTES, place.secret) ||
        text[secret_end] != '/' ||
        !parse_addresses(text + secret_end + 1, last, &place))
        return refuse_text("its secret or an address is not valid");
    uli_unique_id_encode(&place, id_p);
    return ULYX_SUCCESS;
}
