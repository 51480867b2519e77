/* SPDX-License-Identifier: Apache-2.0
 *
 * A crash on the scheduler's thread, mostly because a fibre ran into the guard
 * page of its stack: prints which emulated thread crashed, and ends the process
 * by the signal. The handler of a test framework would jump from the wrong
 * stack. Signals of other threads go to the previous handlers.
 */
#include "emulate/core/emu.h"
#include <signal.h>
#include <unistd.h>

enum { STACK_BYTES = 65536 };

static const int signals[] = {SIGSEGV, SIGBUS};
enum { SIGNALS = sizeof signals / sizeof signals[0] };
static struct sigaction before[SIGNALS];
static unsigned char handler_stack[STACK_BYTES];
static stack_t stack_before;

static void
crash_report(const siginfo_t *info)
{
    char text[320];
    struct emu_thread *t = emu.self;
    const unsigned char *p = info->si_addr;
    bool over = t && p < t->stack && p >= t->stack - EMU_GUARD_BYTES;
    int n = snprintf(text, sizeof text,
        "emulator: seed %llu: signal %d at %p%s%s\n",
        (unsigned long long)emu.config.seed, info->si_signo, info->si_addr,
        over ? ", the thread's stack overflows" : "", emu_here());
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
        return;
}

static void
signal_handle(int number, siginfo_t *info, void *context)
{
    int i = number == signals[0] ? 0 : 1;
    if (emu_on_scheduler) {
        crash_report(info);
        signal(number, SIG_DFL);
        raise(number);
    } else if (before[i].sa_flags & SA_SIGINFO) {
        before[i].sa_sigaction(number, info, context);
    } else if (before[i].sa_handler != SIG_DFL &&
               before[i].sa_handler != SIG_IGN) {
        before[i].sa_handler(number);
    } else {
        signal(number, SIG_DFL);
        raise(number);
    }
}

/* On the scheduler's thread. A sanitizer may have set a signal stack there,
 * which it expects to find at the end. */
void
emu_crash_stack(void)
{
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    sigaltstack(&stack, &stack_before);
}

void
emu_crash_stack_back(void)
{
    sigaltstack(&stack_before, NULL);
}

void
emu_crash_open(void)
{
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    ours.sa_sigaction = signal_handle;
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &ours, &before[i]);
}

void
emu_crash_close(void)
{
    struct sigaction now;
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(signals[i], NULL, &now) == 0 &&
            now.sa_sigaction == signal_handle)
            sigaction(signals[i], &before[i], NULL);
}
