/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluates the times of a probe. A single disturbance must not fix a verb for
 * the life of a communicator, so a verb is chosen over AM only where two tests
 * agree:
 *
 *   by the best    the verb's shortest time is less than `margin` times AM's
 *                  shortest time: what the link can do
 *   by rounds      this holds in two thirds of the rounds, where each time is
 *                  compared with AM's time of the same round, under the same
 *                  disturbance
 *
 * Noise only adds to a time, so the best of several times is the better measure
 * of a link; but a single lucky turn can give it, which the rounds reveal.
 * Where the tests differ the measurement was disturbed, and nothing is decided.
 *
 * The margins favour AM, where the owner of memory checks each access, then
 * PUT, where the sender checks it; with TAG the receive has to be matched
 * first.
 */
#include "transport/ucx/net.h"

static const double margin[ULI_UCX_VERBS] = {
    [ULI_UCX_BY_AM] = 1.0,
    [ULI_UCX_BY_PUT] = 0.85,
    [ULI_UCX_BY_TAG] = 0.8,
};
#define OVER_OTHER 0.9 /* times the best time of the verb chosen so far */

struct score {
    int64_t best_ns, am_ns; /* of the rounds that have both */
    int measured, won;
};

static struct score
score_of(
    const int64_t (*took_ns)[ULI_UCX_VERBS], int rounds, enum uli_ucx_verb verb)
{
    struct score score = {0};
    for (int r = 0; r < rounds; r++) {
        int64_t am = took_ns[r][ULI_UCX_BY_AM], own = took_ns[r][verb];
        if (am <= 0 || own <= 0)
            continue;
        if (!score.measured || own < score.best_ns)
            score.best_ns = own;
        if (!score.measured || am < score.am_ns)
            score.am_ns = am;
        score.measured++;
        score.won += (double)own < margin[verb] * (double)am;
    }
    return score;
}

enum uli_ucx_verb
uli_ucx_verb_choose(const int64_t (*took_ns)[ULI_UCX_VERBS], int rounds)
{
    enum uli_ucx_verb found = ULI_UCX_BY_AM;
    bool open = rounds < ULI_UCX_PROBE_LEAST;
    int64_t found_ns = 0;
    for (enum uli_ucx_verb v = ULI_UCX_BY_AM + 1; v < ULI_UCX_VERBS; v++) {
        struct score score = score_of(took_ns, rounds, v);
        if (!score.measured)
            continue;
        bool by_best = (double)score.best_ns < margin[v] * (double)score.am_ns;
        bool by_rounds = 3 * score.won >= 2 * score.measured;
        open |= by_best != by_rounds;
        if (!by_best || !by_rounds || score.measured < ULI_UCX_PROBE_LEAST)
            continue;
        if (!found_ns ||
            (double)score.best_ns < OVER_OTHER * (double)found_ns) {
            found = v;
            found_ns = score.best_ns;
        }
    }
    return found_ns || !open ? found : ULI_UCX_VERBS;
}
