// Goes after emulator.c: the blocks of a launch, one after the other or together.

static void begin_block(Block *block, Fiber *fibers, unsigned index) {
    memset(block, 0, offsetof(Block, shared));
    block->index = index;
    block->fibers = fibers;
    memset(fibers, 0, run.threads * sizeof *fibers);
    for (unsigned i = 0; i < run.threads; ++i) {
        fibers[i].block = block;
        fibers[i].thread = i;
    }
}

static void fail_idle(const Fiber *fibers, unsigned count) {
    const Fiber *sleeper = fibers;
    while (sleeper < fibers + count - 1 && sleeper->state != SLEEPING) ++sleeper;
    snprintf(run.failure, sizeof run.failure,
             "no thread gets on: thread %u of block %u sleeps in a loop (line %d), for something that none of those "
             "that run writes; blocks that wait for one another have to be launched together",
             sleeper->thread, sleeper->block->index, sleeper->line);
}

// Until all threads of these blocks have ended, or one fails.
static void run_blocks(Fiber *fibers, unsigned count, int backwards) {
    run.live = count;
    run.idle = 0;
    while (run.live > 0) {
        for (unsigned i = 0; i < count; ++i) {
            Fiber *fiber = &fibers[backwards ? count - 1 - i : i];
            if (fiber->state <= SLEEPING) resume(fiber);
            if (run.failure[0] != 0) break;
        }
        if (++run.idle > IDLE_LIMIT && run.failure[0] == 0) fail_idle(fibers, count);
        if (run.failure[0] != 0) break;
    }
    for (unsigned i = 0; i < count; ++i) give_stack_back(&fibers[i]);
}

// The numbers below `count`: as they are for order 0, else shuffled (Fisher and Yates).
static void shuffle(unsigned *list, unsigned count, unsigned order) {
    for (unsigned i = 0; i < count; ++i) list[i] = i;
    unsigned long long state = order * 0x9e3779b97f4a7c15ull;
    for (unsigned i = count; order > 0 && i > 1; --i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        unsigned other = (unsigned)((state >> 33) % i), last = list[i - 1];
        list[i - 1] = list[other];
        list[other] = last;
    }
}

// Runs a kernel. `order` chooses the order of the blocks, and, where it is odd, runs the threads of a block from the
// last to the first. Returns NULL, or what went wrong, which is there until the next call.
const char *optpy_emulate(Call call, Kernel kernel, const void *context, unsigned blocks, unsigned threads,
                          int together, unsigned order) {
    unsigned at_once = together ? blocks : 1;
    Block *block = aligned_alloc(64, at_once * sizeof *block);
    Fiber *fibers = malloc((size_t)at_once * threads * sizeof *fibers);
    unsigned *list = malloc(blocks * sizeof *list);
    if (block == NULL || fibers == NULL || list == NULL) {
        free(block);
        free(fibers);
        free(list);
        return "there is no memory for so many threads";
    }
    run.call = call;
    run.kernel = kernel;
    run.context = context;
    run.threads = threads;
    run.failure[0] = 0;
    machine.threads.x = threads;
    machine.blocks.x = blocks;
    shuffle(list, blocks, order);
    for (unsigned first = 0; first < blocks && run.failure[0] == 0; first += at_once) {
        for (unsigned i = 0; i < at_once; ++i) begin_block(&block[i], fibers + i * threads, list[first + i]);
        run_blocks(fibers, at_once * threads, (int)(order % 2));
    }
    free(block);
    free(fibers);
    free(list);
    return run.failure[0] != 0 ? run.failure : NULL;
}
