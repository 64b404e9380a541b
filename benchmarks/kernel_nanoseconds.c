/* For kernel_sharing.py: what a decision costs, and what a launch costs with its bookkeeping and the news of its end.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "region_file.h"
#include "runtime.h"

enum { TIMES = 200000 };

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    setenv("GPULOOM_KERNELS_REGION", argv[1], 1);
    char why[200];
    struct loom_region *region = loom_region_open(argv[1], why, sizeof why);
    struct loom_stream *high = loom_stream_open(1, 0), *low = loom_stream_open(1, 5);
    if (!region || !high || !low) return 1;
    uint64_t start = loom_now();
    for (int i = 0; i < TIMES; i++) {
        loom_stream_launch(high, (uint64_t)(i % 20 + 1));
        loom_stream_ended(high, (uint64_t)(i % 20 + 1), 1000);
    }
    double high_ns = (double)(loom_now() - start) / TIMES;

    struct loom_queue *asks = loom_queue_new(region, 1);
    uint64_t again, now = loom_now();
    start = loom_now();
    long yes = 0;
    for (int i = 0; i < TIMES; i++) {
        if (loom_ask(asks, 7, now + 1000000, &again)) {
            loom_failed(asks, now + 1000000);
            yes++;
        }
    }
    double ask_ns = (double)(loom_now() - start) / TIMES;

    start = loom_now();
    long watched = 0;
    for (int i = 0; i < TIMES; i++) watched += loom_stream_watched(high);
    double watched_ns = (double)(loom_now() - start) / TIMES;
    printf("{\"launch_and_end\": %.0f, \"decision\": %.0f, \"is_anybody_there\": %.0f}\n", high_ns, ask_ns, watched_ns);
    loom_queue_free(asks);
    loom_stream_close(low);
    loom_stream_close(high);
    return watched == 0 && yes < 0;
}
