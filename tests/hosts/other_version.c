/* SPDX-License-Identifier: Apache-2.0
 *
 * hosts_rank of another version: at a meeting it sends the version 99.
 */
#include "bootstrap/meet/auth.h"

enum { VERSION_AT = 8 };

void __real_uli_hello_encode(
    const unsigned char *nonce, unsigned char *hello_p);
void __wrap_uli_hello_encode(
    const unsigned char *nonce, unsigned char *hello_p);

void
__wrap_uli_hello_encode(const unsigned char *nonce, unsigned char *hello_p)
{
    __real_uli_hello_encode(nonce, hello_p);
    hello_p[VERSION_AT] = 99;
}
