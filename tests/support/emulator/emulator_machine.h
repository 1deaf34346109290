// What a compiled kernel and the emulator share: the emulator fills it, kernels read it and call through it.
// Included in C11 (emulator.c) and in C++17 (emulator.h).

typedef struct {
    unsigned x, y, z;
} OptpyIndex;

// What threads wait for together. The first three are for a block, the others for a warp.
enum {
    OPTPY_SYNCTHREADS,
    OPTPY_SYNCTHREADS_OR,
    OPTPY_SYNCTHREADS_AND,
    OPTPY_SYNCWARP,
    OPTPY_SHUFFLE,
    OPTPY_SHUFFLE_DOWN,
    OPTPY_SHUFFLE_UP,
    OPTPY_SHUFFLE_XOR,
};

typedef struct {
    OptpyIndex thread, block, threads, blocks; // of the thread that runs: threadIdx, blockIdx, blockDim, gridDim
    int (*barrier)(int kind, int predicate, int line);
    unsigned long long (*exchange)(int kind, unsigned mask, unsigned long long value, int lane, int line);
    void (*sleep)(int line);
    void *(*shared)(const void *site, unsigned long bytes, unsigned long alignment, int line);
    long long (*nanoseconds)(void);
    void (*misaligned)(int line, unsigned long alignment, const void *address);
    void (*out_of_bounds)(int line, unsigned long long index);
} OptpyMachine;
