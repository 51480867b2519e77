/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this process may use the tiles of AMX.
 */
#ifndef ULI_ATTENTION_AMX_STATE_H
#define ULI_ATTENTION_AMX_STATE_H

/* Why this process may not use tiles; NULL where it may. The first call asks
 * the system for permission. A process keeps the permission, and its threads
 * and children have it too. With the permission, the system requires signal
 * stacks (sigaltstack) with room for 8 KiB of tiles. Any thread may call, at
 * any time. */
const char *uli_amx_refusal(void);

#endif
