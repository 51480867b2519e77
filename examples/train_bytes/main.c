/* SPDX-License-Identifier: Apache-2.0
 *
 * train_bytes: trains a transformer on the bytes of a text, with each sequence
 * sharded over ranks. Shows how a framework uses distributed attention; --help
 * lists the options, docs/USING.md gives the reasons.
 */
#include "launch.h"

#include <stdio.h>

static int
run_as_threads(const struct options *options)
{
    struct corpus corpus;
    int error = corpus_load(&corpus, options->files, options->file_count);

    if (error != 0)
        return error;
    error = launch_threads(options, &corpus, NULL, NULL, false);
    corpus_free(&corpus);
    return error;
}

int
main(int argc, char **argv)
{
    struct options options;
    ulyx_launch_t launch = ULYX_LAUNCH_INIT;
    int error = options_parse(argc, argv, &options);

    if (error != 0)
        return error == 1 ? 0 : error;
#ifdef TRAIN_HAS_CUDA
    train_rank_device = train_rank_cuda;
#endif
    if (options.device && !train_rank_device) {
        fprintf(stderr, "train_bytes: --device cuda: built without CUDA\n");
        return 2;
    }
    error = launch_query(&launch);
    if (error != 0)
        return error;
    if (launch.launcher && (launch.nranks != 1 || options.ranks == 1))
        return launch_rank(&options);
    if (options.ranks == 1 && !options.device)
        return launch_one(&options);
    if (options.as_threads || options.ranks == 1)
        return run_as_threads(&options);
    return launch_processes(&options, argv);
}
