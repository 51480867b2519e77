/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's choice of a transport, for programs that are linked with
 * --wrap=uli_tr_select and define the wrapper.
 */
#ifndef TESTS_SUPPORT_SELECT_WRAP_H
#define TESTS_SUPPORT_SELECT_WRAP_H

#include "transport/transport.h"

const struct uli_tr_ops *__real_uli_tr_select(
    const struct uli_settings *settings, const struct uli_identity *me,
    const struct uli_identity *peer, uint64_t caps, char *why_p,
    size_t why_bytes);
const struct uli_tr_ops *__wrap_uli_tr_select(
    const struct uli_settings *settings, const struct uli_identity *me,
    const struct uli_identity *peer, uint64_t caps, char *why_p,
    size_t why_bytes);

#endif
