/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this process may use the tiles of AMX.
 */
#ifndef ULI_ATTENTION_AMX_STATE_H
#define ULI_ATTENTION_AMX_STATE_H

/* NULL: it may. Else why not. The first call asks the system for permission,
 * which a process keeps, its threads and children have, and which makes the
 * system insist on signal stacks (sigaltstack) that hold 8 KiB of tiles more.
 * Any thread, any time. */
const char *uli_amx_refusal(void);

#endif
