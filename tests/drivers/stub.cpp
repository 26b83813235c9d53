// stub.cpp: libraries that are no driver, each for one reason (-DKIND).
// (1) The toolkit's stub, which answers 34 to everything. (2) One that hands out such functions. (3) A driver before
// 12.0, which has only the older way to find functions.
// (4) No driver at all. (5) A driver that a program uses while its Weft knows no GPUs.
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
