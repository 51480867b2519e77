/* SPDX-License-Identifier: Apache-2.0
 *
 * The process that times PyTorch's attention, and the two pipes to it;
 * torch_peer.py describes the protocol.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "attention/kernelcheck/bench/bench_card.h"

static void
become_peer(int in, int out, const char *names)
{
    const char *python = getenv("ULYX_BENCH_PYTHON");
    /* for builds on another machine */
    const char *script = getenv("ULYX_BENCH_PEER");
    dup2(in, 0);
    dup2(out, 1);
    execlp(python ? python : "python3", "python3",
        script ? script : ULYX_TORCH_PEER, names, (char *)NULL);
    _exit(127);
}

static bool
peer_answer(struct kc_peer *peer, char *line_p, int bytes)
{
    if (!fgets(line_p, bytes, peer->from))
        return false;
    line_p[strcspn(line_p, "\n")] = 0;
    return true;
}

bool
kc_peer_start(struct kc_peer *peer_p, const char *names)
{
    int down[2], up[2];
    *peer_p = (struct kc_peer){.pid = -1};
    if (pipe(down) != 0 || pipe(up) != 0) {
        snprintf(peer_p->version, sizeof(peer_p->version), "none no pipe");
        return false;
    }
    signal(SIGPIPE, SIG_IGN); /* the peer may die; then reads end */
    fflush(NULL);
    peer_p->pid = (int)fork();
    if (peer_p->pid == 0) {
        close(down[1]);
        close(up[0]);
        become_peer(down[0], up[1], names);
    }
    close(down[0]);
    close(up[1]);
    peer_p->to = fdopen(down[1], "w");
    peer_p->from = fdopen(up[0], "r");
    if (peer_answer(peer_p, peer_p->version, sizeof(peer_p->version)) &&
        strncmp(peer_p->version, "torch", 5) == 0)
        return true;
    if (!peer_p->version[0])
        snprintf(peer_p->version, sizeof(peer_p->version), "none no python3");
    kc_peer_stop(peer_p);
    return false;
}

bool
kc_peer_row(
    struct kc_peer *peer, const struct kc_card_row *row, bool takes_p[KC_PEERS])
{
    char line[256];
    if (fprintf(peer->to, "row %d %d %d %d %d %d %d %d %d\n", (int)row->batch,
            (int)row->heads, (int)row->heads_kv, (int)row->len,
            (int)row->dim_qk, (int)row->dim_v, (int)row->docs, row->causal,
            row->backward) < 0 ||
        fflush(peer->to) != 0 || !peer_answer(peer, line, sizeof(line)) ||
        strncmp(line, "row", 3) != 0)
        return false;
    for (int n = 0; n < KC_PEERS; n++)
        takes_p[n] = strstr(line, kc_peer_names[n]) != NULL;
    return true;
}

double
kc_peer_run(struct kc_peer *peer, int which, int repeats)
{
    char line[256];
    if (fprintf(peer->to, "run %s %d\n", kc_peer_names[which], repeats) < 0 ||
        fflush(peer->to) != 0 || !peer_answer(peer, line, sizeof(line)))
        return -1;
    char *end;
    double ms = strtod(line, &end);
    return end != line && ms > 0 ? ms : -1;
}

void
kc_peer_stop(struct kc_peer *peer)
{
    if (peer->to) {
        fprintf(peer->to, "quit\n");
        fclose(peer->to);
    }
    if (peer->from)
        fclose(peer->from);
    if (peer->pid > 0)
        waitpid(peer->pid, NULL, 0);
    peer->to = peer->from = NULL;
    peer->pid = -1;
}
