/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention geometries of public models, from their published configurations.
 */
#include "perf.h"

#include <string.h>

static const struct perf_model models[] = {
    {"llama3-8b", 32, 8, 128, 128, "Llama 3 8B"},
    {"llama3-70b", 64, 8, 128, 128, "Llama 3 70B"},
    {"qwen2.5-14b", 40, 8, 128, 128, "Qwen 2.5 14B: 40 query heads"},
    {"qwen3-4b", 32, 8, 128, 128, "Qwen 3 4B"},
    {"qwen2-7b", 28, 4, 128, 128, "Qwen 2 7B: 28 query heads"},
    {"gpt-oss", 64, 8, 64, 64, "GPT-OSS: rows of 128 bytes per head"},
    {"deepseek-v3", 128, 128, 192, 128, "DeepSeek V3: MLA, dk 192, dv 128"},
    {"gemma2-9b", 16, 8, 256, 256, "Gemma 2 9B: d 256"},
    {"qwen2.5-0.5b", 14, 2, 64, 64, "Qwen 2.5 0.5B: 14 query heads"},
};

const struct perf_model *
perf_models(int *count_p)
{
    *count_p = (int)(sizeof(models) / sizeof(models[0]));
    return models;
}

const struct perf_model *
perf_model_find(const char *name)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}
