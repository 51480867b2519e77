/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutual proof of the secret. Labels and version are part of what is hashed,
 * so that no message of one end serves as the other's, and a secret shared
 * with another protocol proves nothing here.
 */
#include "comm/bootstrap_auth.h"

#include <sodium.h>
#include <string.h>
#include "base/status.h"

static const unsigned char magic[8] = {'u', 'l', 'y', 'x', 'm', 'e', 'e', 't'};
enum { VERSION_AT = 8, NONCE_AT = 16 };

ulyx_status_t
uli_auth_init(void)
{
    if (sodium_init() < 0)
        return uli_error(ULYX_ERR_SYSTEM, "libsodium cannot be started");
    return ULYX_SUCCESS;
}

void
uli_hello_encode(const unsigned char *nonce, unsigned char *hello_p)
{
    memset(hello_p, 0, ULI_HELLO_BYTES);
    memcpy(hello_p, magic, sizeof(magic));
    hello_p[VERSION_AT] = ULI_PROTOCOL_VERSION & 0xFF;
    hello_p[VERSION_AT + 1] = ULI_PROTOCOL_VERSION >> 8;
    memcpy(hello_p + NONCE_AT, nonce, ULI_NONCE_BYTES);
}

enum uli_hello_result
uli_hello_decode(
    const unsigned char *hello, unsigned char *nonce_p, unsigned *version_p)
{
    if (memcmp(hello, magic, sizeof(magic)) != 0)
        return ULI_HELLO_GARBAGE;
    *version_p = hello[VERSION_AT] | (unsigned)hello[VERSION_AT + 1] << 8;
    if (*version_p != ULI_PROTOCOL_VERSION)
        return ULI_HELLO_VERSION;
    memcpy(nonce_p, hello + NONCE_AT, ULI_NONCE_BYTES);
    return ULI_HELLO_OK;
}

void
uli_auth_proof(
    const struct uli_auth *auth, enum uli_auth_end end, unsigned char *proof_p)
{
    unsigned char text[16 + 2 * ULI_NONCE_BYTES] = {0};
    const char *label = end == ULI_AUTH_RANK ? "ulyx rank" : "ulyx root";
    memcpy(text, label, strlen(label));
    text[14] = ULI_PROTOCOL_VERSION & 0xFF;
    text[15] = ULI_PROTOCOL_VERSION >> 8;
    memcpy(text + 16, auth->rank_nonce, ULI_NONCE_BYTES);
    memcpy(text + 16 + ULI_NONCE_BYTES, auth->root_nonce, ULI_NONCE_BYTES);
    crypto_generichash(proof_p, ULI_PROOF_BYTES, text, sizeof(text),
        auth->secret, ULI_SECRET_BYTES);
}

bool
uli_auth_check(const struct uli_auth *auth, enum uli_auth_end end,
    const unsigned char *proof)
{
    unsigned char expected[ULI_PROOF_BYTES];
    uli_auth_proof(auth, end, expected);
    return sodium_memcmp(expected, proof, ULI_PROOF_BYTES) == 0;
}

void
uli_secret_from_text(const char *text, unsigned char *secret_p)
{
    static const unsigned char key[crypto_generichash_KEYBYTES_MIN] =
        "ulyx secret";
    crypto_generichash(secret_p, ULI_SECRET_BYTES, (const unsigned char *)text,
        strlen(text), key, sizeof(key));
}
