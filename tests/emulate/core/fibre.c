/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks of fibres and the first frame that the switch expects on them.
 */
#include "emulate/core/emu.h"
#include <sys/mman.h>

/* Pointers to free stacks. A list within the stacks would cost a page of
 * each. */
static unsigned char **pool;
static size_t pool_count, pool_room;

unsigned char *
emu_stack_take(void)
{
    if (pool_count)
        return pool[--pool_count];
    unsigned char *p =
        mmap(NULL, EMU_STACK_BYTES + EMU_GUARD_BYTES, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    mprotect(p, EMU_GUARD_BYTES, PROT_NONE);
    return p + EMU_GUARD_BYTES;
}

/* Where the pool cannot grow, the stack is unmapped. */
void
emu_stack_give(unsigned char *stack)
{
    if (pool_count == pool_room) {
        size_t room = pool_room ? 2 * pool_room : 1024;
        unsigned char **grown = realloc(pool, room * sizeof *pool);
        if (!grown) {
            munmap(stack - EMU_GUARD_BYTES, EMU_STACK_BYTES + EMU_GUARD_BYTES);
            return;
        }
        pool = grown;
        pool_room = room;
    }
    pool[pool_count++] = stack;
}

#if defined(__x86_64__)
/* rbp, rbx, r12 to r15, the entry as return address, and one more word, so that
 * the stack at the entry is aligned as after a call */
enum { FRAME_WORDS = 8, ENTRY_WORD = 6 };
#elif defined(__aarch64__)
/* x19 to x30 (x30 is the return address), d8 to d15 */
enum { FRAME_WORDS = 20, ENTRY_WORD = 11 };
#else
#error "no fibre switch for this machine"
#endif

/* Each stack begins at a different place within its topmost page. All stacks
 * are a power of two apart, so otherwise their tops would compete for a few
 * cache lines. */
static size_t
stack_colour(const unsigned char *stack)
{
    return (uintptr_t)stack / (EMU_STACK_BYTES + EMU_GUARD_BYTES) % 48 * 64;
}

void *
emu_fibre_start(unsigned char *stack, void (*entry)(void))
{
    void **frame =
        (void **)(stack + EMU_STACK_BYTES - stack_colour(stack)) - FRAME_WORDS;
    memset(frame, 0, FRAME_WORDS * sizeof *frame);
    frame[ENTRY_WORD] = (void *)entry;
    return frame;
}
