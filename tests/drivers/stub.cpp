// stub.cpp: libraries that are no driver, each for one reason (-DKIND).
// KIND 1 is the toolkit's stub, whose functions return 34. KIND 2 is a library whose functions return such functions.
// KIND 3 is a driver from before 12.0, which finds functions in the older way only. KIND 4 is no driver at all.
// KIND 5 is a driver that a program uses although its Weft has no GPU support.
#include <dlfcn.h>

extern "C" {

#if KIND == 1
int cuGetProcAddress_v2(const char*, void**, int, unsigned long long, int*) { return 34; }
#elif KIND == 2
static int answer(...) { return 34; }
int cuGetProcAddress_v2(const char*, void** function, int, unsigned long long, int* status) {
    *function = reinterpret_cast<void*>(answer);
    if (status != nullptr) *status = 0;
    return 0;
}
#elif KIND == 3
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
    using Function = int (*)(const char*, void**, int, unsigned long long);
    static const auto real =
        reinterpret_cast<Function>(dlsym(dlopen(FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress"));
    return real(name, function, version, flags);
}
#elif KIND == 5
int cuCtxGetCurrent(void** context) {
    static int some;
    *context = &some;
    return 0;
}
#else
int weft_test_no_driver() { return 0; }
#endif
}
