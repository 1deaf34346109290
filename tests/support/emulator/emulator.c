// Runs a CUDA kernel on the CPU: each thread is a fiber, left only where it waits, and all fibers take turns in a
// fixed order. What CUDA leaves undefined (a barrier that not all threads of the block reach, a shuffle without some
// lanes) ends the launch with a message, and so does a launch in which no thread gets on.
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    WARP = 32,
    MAX_WARPS = 32,
    MAX_SITES = 64,
    SHARED_BYTES = 48 * 1024,         // what a CUDA source may declare for a block
    SHARED_SLACK = 64 * 64,           // for alignment: so much at most for a site
    STACK_BYTES = 128 * 1024,         // of a thread
    STACKS_AT_ONCE = 64,              // mapped when there are none
    IDLE_LIMIT = 10 * 1000 * 1000,    // sleeps in sequence, of all threads, in which none ended or passed a barrier
};

typedef enum { NEW, READY, SLEEPING, AT_BARRIER, IN_EXCHANGE, ENDED } State;

typedef struct {
    unsigned waiting, at_barrier, ended; // lanes: in an exchange, at a barrier of the block, no longer there
    int kind, line;                      // of the exchange
} Warp;

typedef struct {
    const void *site;
    void *memory;
} Shared;

typedef struct Fiber Fiber;

typedef struct {
    unsigned index, waiting, ended;
    int kind, line, any, all; // of the barrier
    Warp warps[MAX_WARPS];
    Fiber *fibers;
    int sites;
    size_t shared_bytes, shared_end;
    Shared shared[MAX_SITES];
    _Alignas(64) unsigned char memory[SHARED_BYTES + SHARED_SLACK];
} Block;

struct Fiber {
    void *stack_pointer, *stack;
    Block *block;
    unsigned thread;
    State state;
    int line;                 // where it waits
    int result;               // of a barrier
    int lane;                 // whose value it reads in an exchange
    unsigned long long value; // that it gives, then that it gets
};

typedef void (*Kernel)(void);
typedef void (*Call)(Kernel, const void *context);

static struct {
    Call call;
    Kernel kernel;
    const void *context;
    unsigned threads;
    unsigned live; // threads that have not ended
    unsigned idle;
    void *scheduler; // its stack pointer
    Fiber *fiber;    // that runs
    char failure[400];
} run;

static OptpyMachine machine;

// ---- Fibers -----------------------------------------------------------------------------------------------------

// Saves the registers that a call keeps on the stack, that stack's pointer in *from, and goes on with another stack.
void optpy_switch(void **from, void *to) __asm__("optpy_switch");

#if defined(__x86_64__)
__asm__(".text\n"
        "optpy_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n");
enum { SAVED_WORDS = 8, RETURN_WORD = 6 }; // six registers, where to go on, and a word for the alignment of a call
#elif defined(__aarch64__)
__asm__(".text\n"
        ".p2align 2\n"
        "optpy_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n");
enum { SAVED_WORDS = 20, RETURN_WORD = 11 }; // x19 to x30, of which the last says where to go on, and d8 to d15
#else
#error "the emulated device knows x86-64 and AArch64"
#endif

static struct {
    void **free; // their upper ends; what was used last is taken first, since it is in the processor's cache
    size_t count, total;
} stacks;

static int map_stacks(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = STACK_BYTES + page;
    void **list = realloc(stacks.free, (stacks.total + STACKS_AT_ONCE) * sizeof *list);
    if (list == NULL) return 0;
    stacks.free = list;
    char *memory = mmap(NULL, STACKS_AT_ONCE * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    for (size_t i = 0; i < STACKS_AT_ONCE; ++i) {
        if (mprotect(memory + i * size, page, PROT_NONE) != 0) return 0; // a stack that overflows ends there
        // Not all at the same place of a page, which would be the same few lines of the processor's cache.
        stacks.free[stacks.count++] = memory + (i + 1) * size - i % 32 * 128;
    }
    stacks.total += STACKS_AT_ONCE;
    return 1;
}

static void leave(void) { optpy_switch(&run.fiber->stack_pointer, run.scheduler); }

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    int length = snprintf(run.failure, sizeof run.failure, "thread %u of block %u ", run.fiber->thread,
                          run.fiber->block->index);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(run.failure + length, sizeof run.failure - (size_t)length, format, arguments);
    va_end(arguments);
    leave();
    abort();
}

static const char *kind_name(int kind) {
    static const char *const names[] = {
        [OPTPY_SYNCTHREADS] = "__syncthreads",       [OPTPY_SYNCTHREADS_OR] = "__syncthreads_or",
        [OPTPY_SYNCTHREADS_AND] = "__syncthreads_and", [OPTPY_SYNCWARP] = "__syncwarp",
        [OPTPY_SHUFFLE] = "__shfl_sync",             [OPTPY_SHUFFLE_DOWN] = "__shfl_down_sync",
        [OPTPY_SHUFFLE_UP] = "__shfl_up_sync",       [OPTPY_SHUFFLE_XOR] = "__shfl_xor_sync",
    };
    return names[kind];
}

static void fiber_entry(void) {
    run.call(run.kernel, run.context);
    Fiber *fiber = run.fiber;
    Block *block = fiber->block;
    Warp *warp = &block->warps[fiber->thread / WARP];
    if (block->waiting > 0)
        fail("ends, while others wait at %s (line %d)", kind_name(block->kind), block->line);
    if (warp->waiting > 0)
        fail("ends, while other lanes of its warp wait at %s (line %d)", kind_name(warp->kind), warp->line);
    ++block->ended;
    ++warp->ended;
    --run.live;
    run.idle = 0;
    fiber->state = ENDED;
    leave();
}

static int start(Fiber *fiber) {
    if (stacks.count == 0 && !map_stacks()) return 0;
    fiber->stack = stacks.free[--stacks.count];
    void **words = (void **)fiber->stack - SAVED_WORDS;
    memset(words, 0, SAVED_WORDS * sizeof *words);
    void (*entry)(void) = fiber_entry;
    memcpy(&words[RETURN_WORD], &entry, sizeof entry);
    fiber->stack_pointer = words;
    return 1;
}

static void give_stack_back(Fiber *fiber) {
    if (fiber->stack != NULL) stacks.free[stacks.count++] = fiber->stack;
    fiber->stack = NULL;
}

static void resume(Fiber *fiber) {
    if (fiber->state == NEW && !start(fiber)) {
        snprintf(run.failure, sizeof run.failure, "there is no memory for the stacks of so many threads");
        return;
    }
    fiber->state = READY;
    run.fiber = fiber;
    machine.thread.x = fiber->thread;
    machine.block.x = fiber->block->index;
    optpy_switch(&run.scheduler, fiber->stack_pointer);
    if (fiber->state == ENDED) give_stack_back(fiber);
}

// ---- What kernels call ------------------------------------------------------------------------------------------

static void release_block(Block *block) {
    int result = block->kind == OPTPY_SYNCTHREADS_AND ? block->all : block->any;
    for (unsigned i = 0; i < run.threads; ++i) {
        block->fibers[i].result = result;
        block->fibers[i].state = READY;
    }
    for (unsigned i = 0; i < run.threads / WARP; ++i) block->warps[i].at_barrier = 0;
    block->waiting = 0;
    run.idle = 0;
}

static int barrier(int kind, int predicate, int line) {
    Fiber *fiber = run.fiber;
    Block *block = fiber->block;
    Warp *warp = &block->warps[fiber->thread / WARP];
    const char *name = kind_name(kind);
    fiber->line = line;
    if (block->ended > 0)
        fail("waits at %s (line %d), and %u threads of its block have ended", name, line, block->ended);
    if (warp->waiting > 0)
        fail("waits at %s (line %d), and other lanes of its warp at %s (line %d)", name, line, kind_name(warp->kind),
             warp->line);
    if (block->waiting == 0) {
        block->kind = kind;
        block->line = line;
        block->any = 0;
        block->all = 1;
    } else if (kind != block->kind || line != block->line) {
        fail("waits at %s (line %d), and others of its block at %s (line %d)", name, line, kind_name(block->kind),
             block->line);
    }
    block->any |= predicate != 0;
    block->all &= predicate != 0;
    ++warp->at_barrier;
    if (++block->waiting == run.threads) {
        release_block(block);
    } else {
        fiber->state = AT_BARRIER;
        leave();
    }
    return fiber->result;
}

static void release_warp(Warp *warp, Fiber *lanes) {
    unsigned long long values[WARP];
    for (int i = 0; i < WARP; ++i) values[i] = lanes[i].value;
    for (int i = 0; i < WARP; ++i) {
        lanes[i].value = values[lanes[i].lane];
        lanes[i].state = READY;
    }
    warp->waiting = 0;
    run.idle = 0;
}

static unsigned long long exchange(int kind, unsigned mask, unsigned long long value, int lane, int line) {
    Fiber *fiber = run.fiber;
    Warp *warp = &fiber->block->warps[fiber->thread / WARP];
    const char *name = kind_name(kind);
    fiber->line = line;
    if (mask != 0xffffffffu) fail("calls %s (line %d) for a part of the warp, which is not emulated", name, line);
    if (lane < 0 || lane >= WARP) fail("calls %s (line %d) with a width that is no power of two", name, line);
    if (warp->ended > 0)
        fail("waits at %s (line %d), and %u lanes of its warp have ended", name, line, warp->ended);
    if (warp->at_barrier > 0)
        fail("waits at %s (line %d), and other lanes of its warp at %s (line %d)", name, line,
             kind_name(fiber->block->kind), fiber->block->line);
    if (warp->waiting == 0) {
        warp->kind = kind;
        warp->line = line;
    } else if (kind != warp->kind || line != warp->line) {
        fail("waits at %s (line %d), and other lanes of its warp at %s (line %d)", name, line, kind_name(warp->kind),
             warp->line);
    }
    fiber->value = value;
    fiber->lane = lane;
    if (++warp->waiting == WARP) {
        release_warp(warp, fiber - fiber->thread % WARP);
    } else {
        fiber->state = IN_EXCHANGE;
        leave();
    }
    return fiber->value;
}

static void sleep_at(int line) {
    run.fiber->line = line;
    run.fiber->state = SLEEPING;
    ++run.idle;
    leave();
}

static void *shared(const void *site, unsigned long bytes, unsigned long alignment, int line) {
    Block *block = run.fiber->block;
    for (int i = 0; i < block->sites; ++i)
        if (block->shared[i].site == site) return block->shared[i].memory;
    // Aligned as its type, and no better: a vector of four in an array of floats is not aligned in CUDA either.
    size_t start = (block->shared_end + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
    block->shared_bytes += bytes;
    if (block->shared_bytes > SHARED_BYTES || block->sites == MAX_SITES || start + bytes > sizeof block->memory)
        fail("asks (line %d) for more shared memory than a block has: %zu bytes", line, block->shared_bytes);
    block->shared_end = start + bytes;
    void *memory = memset(block->memory + start, 0xff, bytes); // what nobody has written is NaN
    block->shared[block->sites++] = (Shared){site, memory};
    return memory;
}

static long long nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void misaligned(int line, unsigned long alignment, const void *address) {
    fail("uses an address (line %d) that is not a multiple of %lu: %p", line, alignment, address);
}

static void out_of_bounds(int line, unsigned long long index) {
    fail("uses an array (line %d) out of bounds: index %llu", line, index);
}

static OptpyMachine machine = {
    .threads = {1, 1, 1},
    .blocks = {1, 1, 1},
    .barrier = barrier,
    .exchange = exchange,
    .sleep = sleep_at,
    .shared = shared,
    .nanoseconds = nanoseconds,
    .misaligned = misaligned,
    .out_of_bounds = out_of_bounds,
};

OptpyMachine *optpy_machine_of_emulator(void) { return &machine; }
