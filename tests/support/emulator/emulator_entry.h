// Goes after a CUDA source: how the emulator calls its kernels. The one argument of each is a Context, by value.

extern "C" unsigned long optpy_context_bytes() { return sizeof(Context); }

extern "C" void optpy_attach(OptpyMachine *machine) { optpy_machine = machine; }

extern "C" void optpy_call(void (*kernel)(const Context), const void *context) {
    kernel(*static_cast<const Context *>(context));
}
