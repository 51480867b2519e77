/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutual proof of the secret. The proof of each end has a label of its own, so
 * that no message of one end can be used as that of the other.
 */
#include "bootstrap/meet/auth.h"

#include <sodium.h>
#include <string.h>
#include "base/status.h"
#include "base/system/random.h"

static const unsigned char magic[8] = {'u', 'l', 'y', 'x', 'm', 'e', 'e', 't'};
enum { VERSION_AT = 8, NONCE_AT = 16 };
_Static_assert(ULI_SHARE_BYTES == crypto_core_ristretto255_BYTES &&
                   sizeof(((struct uli_auth *)0)->scalar) ==
                       crypto_core_ristretto255_SCALARBYTES,
    "shares and scalars are those of ristretto255");

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

/* The base point of this connection, made from the secret. Labels and version
 * are hashed too, so that a secret that is also used by another protocol gives
 * another point here. */
static void
base_point(const struct uli_auth *auth, unsigned char *point_p)
{
    unsigned char text[16 + 2 * ULI_NONCE_BYTES] = "ulyx base";
    unsigned char hash[crypto_core_ristretto255_HASHBYTES];
    text[14] = ULI_PROTOCOL_VERSION & 0xFF;
    text[15] = ULI_PROTOCOL_VERSION >> 8;
    memcpy(text + 16, auth->nonces, sizeof(auth->nonces));
    crypto_generichash(
        hash, sizeof(hash), text, sizeof(text), auth->secret, ULI_SECRET_BYTES);
    crypto_core_ristretto255_from_hash(point_p, hash);
}

/* 64 random bytes, reduced, are a uniform scalar. The multiplication refuses
 * zero, whose probability is 2^-252. */
ulyx_status_t
uli_auth_share(
    struct uli_auth *auth, enum uli_auth_end me, unsigned char *share_p)
{
    unsigned char wide[crypto_core_ristretto255_NONREDUCEDSCALARBYTES];
    unsigned char base[crypto_core_ristretto255_BYTES];
    ULI_TRY(uli_random_bytes(wide, sizeof(wide)));
    crypto_core_ristretto255_scalar_reduce(auth->scalar, wide);
    base_point(auth, base);
    if (crypto_scalarmult_ristretto255(auth->shares[me], auth->scalar, base))
        return uli_error(
            ULYX_ERR_SYSTEM, "cannot make a share of a meeting's key");
    memcpy(share_p, auth->shares[me], ULI_SHARE_BYTES);
    return ULYX_SUCCESS;
}

bool
uli_auth_agree(
    struct uli_auth *auth, enum uli_auth_end me, const unsigned char *share)
{
    unsigned char text[32 + sizeof(auth->shares) + sizeof(auth->nonces)];
    memcpy(auth->shares[!me], share, ULI_SHARE_BYTES);
    if (crypto_scalarmult_ristretto255(text, auth->scalar, share))
        return false;
    memcpy(text + 32, auth->shares, sizeof(auth->shares));
    memcpy(
        text + 32 + sizeof(auth->shares), auth->nonces, sizeof(auth->nonces));
    crypto_generichash(
        auth->key, sizeof(auth->key), text, sizeof(text), NULL, 0);
    return true;
}

void
uli_auth_proof(
    const struct uli_auth *auth, enum uli_auth_end end, unsigned char *proof_p)
{
    const char *label = end == ULI_AUTH_RANK ? "ulyx rank" : "ulyx root";
    crypto_generichash(proof_p, ULI_PROOF_BYTES, (const unsigned char *)label,
        strlen(label), auth->key, sizeof(auth->key));
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
