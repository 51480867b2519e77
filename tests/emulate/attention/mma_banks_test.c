/* SPDX-License-Identifier: Apache-2.0
 *
 * No access to shared memory in the loop of the mma kernels has a bank
 * conflict: the lanes that are served at the same time use each of the 32 banks
 * of four bytes once. Eight lanes are served at the same time where a lane
 * accesses 16 bytes, else all lanes.
 */
#include "support/test.h"
#include "mma_banks.h"
#include "cuda_runtime.h"
#include "emulate.h"

/* Checks the lanes [first, first + lanes), each of which accesses `bytes`
 * bytes. */
static void
no_conflict(const uint32_t at[32], int first, int lanes, uint32_t bytes)
{
    uint32_t used = 0;
    for (int l = first; l < first + lanes; l++)
        for (uint32_t b = 0; b < bytes; b += 4) {
            uint32_t bank = (at[l] + b) / 4 % 32;
            assert_false(used >> bank & 1);
            used |= UINT32_C(1) << bank;
        }
}

static void
loop_has_no_conflicts(void **state)
{
    const struct emu_config config = {.seed = 1};
    struct mma_lane_places *places;
    (void)state;
    for (int n = 0; n < MMA_SHAPES; n++) {
        int columns;
        uint32_t at[5][32];
        assert_int_equal(emu_open(&config), 0);
        assert_int_equal(
            cudaMalloc((void **)&places, 32 * sizeof(*places)), cudaSuccess);
        assert_int_equal(mma_places(n, places, &columns), cudaSuccess);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        for (int c = 0; c < columns / 8; c++) {
            for (int l = 0; l < 32; l++) {
                at[0][l] = places[l].q[c % (columns / 16)];
                at[1][l] = places[l].k[c % (columns / 16)];
                at[2][l] = places[l].v[c % (columns / 16)];
                at[3][l] = places[l].copy;
                at[4][l] = places[l].result[c];
            }
            for (int kind = 0; kind < 4; kind++)
                for (int l = 0; l < 32; l += 8)
                    no_conflict(at[kind], l, 8, 16);
            no_conflict(at[4], 0, 32, 4);
        }
        assert_int_equal(emu_fault_count(), 0);
        emu_close();
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(loop_has_no_conflicts),
};

ULI_TEST_MAIN("EmulateMmaBanks", tests)
