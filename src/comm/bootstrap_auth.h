/* SPDX-License-Identifier: Apache-2.0
 *
 * How two ends of a bootstrap connection prove to each other that they know
 * the meeting's secret, before either reads anything else. Four messages of
 * fixed length:
 *
 *     rank -> root   hello      magic, version, the rank's nonce
 *     root -> rank   challenge  magic, version, the root's nonce
 *     rank -> root   proof      H(secret, "rank", version, both nonces)
 *     root -> rank   verdict    yes or no, H(secret, "root", version, nonces)
 *
 * H is BLAKE2b with the secret as its key. The rank proves first, so that a
 * stranger who knocks learns nothing from the root. Magic and version are the
 * first bytes each way: another version is told apart from a stranger.
 * What follows is neither encrypted nor signed: the network is trusted not to
 * alter a stream, the secret keeps out who has no business there.
 */
#ifndef ULI_COMM_BOOTSTRAP_AUTH_H
#define ULI_COMM_BOOTSTRAP_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ulyx/types.h"

enum {
    ULI_PROTOCOL_VERSION = 1,
    ULI_SECRET_BYTES = 16,
    ULI_NONCE_BYTES = 16,
    ULI_HELLO_BYTES = 32, /* hello and challenge */
    ULI_PROOF_BYTES = 32,
    ULI_VERDICT_BYTES = 33
};

struct uli_auth {
    unsigned char secret[ULI_SECRET_BYTES];
    unsigned char rank_nonce[ULI_NONCE_BYTES];
    unsigned char root_nonce[ULI_NONCE_BYTES];
};

enum uli_auth_end { ULI_AUTH_RANK, ULI_AUTH_ROOT };

enum uli_hello_result {
    ULI_HELLO_OK,
    ULI_HELLO_GARBAGE, /* not ulyx */
    ULI_HELLO_VERSION, /* ulyx of another version, in *version_p */
};

/* Opens the library of hashes; once a process, any thread.
 * returns SUCCESS or ERR_SYSTEM. */
ulyx_status_t uli_auth_init(void);

/* A hello or challenge with my nonce; and the other end's taken apart. */
void uli_hello_encode(const unsigned char *nonce, unsigned char *hello_p);
enum uli_hello_result uli_hello_decode(
    const unsigned char *hello, unsigned char *nonce_p, unsigned *version_p);

/* What `end` sends to prove itself, and whether that is what came: compared
 * in constant time. */
void uli_auth_proof(
    const struct uli_auth *auth, enum uli_auth_end end, unsigned char *proof_p);
bool uli_auth_check(const struct uli_auth *auth, enum uli_auth_end end,
    const unsigned char *proof);

/* A secret from text of any length: H("ulyx secret", text). */
void uli_secret_from_text(const char *text, unsigned char *secret_p);

#endif
