/* SPDX-License-Identifier: Apache-2.0
 *
 * How two ends of a bootstrap connection prove to each other that they have
 * the meeting's secret, before either reads anything else. Four messages of
 * fixed length:
 *
 *     rank -> root   hello      magic, version, the rank's nonce
 *     root -> rank   challenge  magic, version, the root's nonce; its share
 *     rank -> root   answer     the rank's share; its proof
 *     root -> rank   outcome    yes or no; the root's proof
 *
 * It must not be possible to guess a secret that a person chose from these
 * messages. If the proofs were hashes of secret and nonces, the end that
 * proves first would give the other end all that it needs to try guesses
 * offline: a false root if the rank is first, any connecting process if the
 * root is. Stretching the secret makes guesses more expensive, not
 * impossible, and costs time at every rank. So the ends agree on a key
 * instead, in the manner of CPace (an exchange of Diffie and Hellman over
 * ristretto255 whose base point is made of the secret):
 *
 *     G = map to the group of H(secret, version, both nonces)
 *     share = x G, x random; key = H(x times the other's share, shares, nonces)
 *     proof = H(key, "rank" or "root")
 *
 * A share is a uniform element whatever the secret is. An end without G had to
 * choose one before it sent its share, and the proof that it then receives
 * shows whether that one guess was right, and nothing about any other guess:
 * one guess per connection, none offline, whichever end is false. It costs an
 * end two multiplications, 0.16 ms, so 4,096 ranks cost the root 0.7 s of its
 * thread. Secrets must still be long enough for the guesses that connections
 * allow (ULI_SECRET_LEAST).
 *
 * Magic and version are the first bytes each way, and hello and the first 32
 * bytes of the challenge are the same in all versions, so that an end of
 * another version can be distinguished from a stray connection. What follows is
 * neither encrypted nor signed: the network is trusted not to alter a stream;
 * the secret keeps strangers out.
 */
#ifndef ULI_BOOTSTRAP_MEET_AUTH_H
#define ULI_BOOTSTRAP_MEET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ulyx/types.h"

enum {
    ULI_PROTOCOL_VERSION = 2,
    ULI_SECRET_BYTES = 16,
    ULI_SECRET_LEAST = 16, /* characters of a secret that is given as text */
    ULI_NONCE_BYTES = 16,
    ULI_HELLO_BYTES = 32,
    ULI_SHARE_BYTES = 32,
    ULI_CHALLENGE_BYTES = ULI_HELLO_BYTES + ULI_SHARE_BYTES,
    ULI_PROOF_BYTES = 32,
    ULI_ANSWER_BYTES = ULI_SHARE_BYTES + ULI_PROOF_BYTES,
    ULI_OUTCOME_BYTES = 1 + ULI_PROOF_BYTES
};

enum uli_auth_end { ULI_AUTH_RANK, ULI_AUTH_ROOT };

/* One end of one connection: the owner fills secret and nonces. */
struct uli_auth {
    unsigned char secret[ULI_SECRET_BYTES];
    unsigned char nonces[2][ULI_NONCE_BYTES]; /* by uli_auth_end */
    unsigned char shares[2][ULI_SHARE_BYTES];
    unsigned char scalar[32], key[32];
};

enum uli_hello_result {
    ULI_HELLO_OK,
    ULI_HELLO_GARBAGE, /* not ulyx */
    ULI_HELLO_VERSION, /* ulyx of another version, in *version_p */
};

/* Initialises libsodium. To be called before the others, any number of times;
 * any thread.
 * returns SUCCESS or ERR_SYSTEM. */
ulyx_status_t uli_auth_init(void);

/* Makes a hello with this end's nonce, and reads the other end's hello. */
void uli_hello_encode(const unsigned char *nonce, unsigned char *hello_p);
enum uli_hello_result uli_hello_decode(
    const unsigned char *hello, unsigned char *nonce_p, unsigned *version_p);

/* Makes this end's share from the secret and both nonces: a new share at every
 * call.
 * returns SUCCESS or ERR_SYSTEM (no random bytes). */
ulyx_status_t uli_auth_share(
    struct uli_auth *auth, enum uli_auth_end me, unsigned char *share_p);
/* Takes the other end's share; then proofs can be made and checked. False: the
 * share is no element of the group, or is the neutral element, whose key is
 * public. An end that follows the protocol sends neither. */
bool uli_auth_agree(
    struct uli_auth *auth, enum uli_auth_end me, const unsigned char *share);

/* The proof that `end` sends, and whether a received proof equals it: compared
 * in constant time. */
void uli_auth_proof(
    const struct uli_auth *auth, enum uli_auth_end end, unsigned char *proof_p);
bool uli_auth_check(const struct uli_auth *auth, enum uli_auth_end end,
    const unsigned char *proof);

/* A secret from text of any length: H("ulyx secret", text). */
void uli_secret_from_text(const char *text, unsigned char *secret_p);

#endif
