#include "src/drivers/library.hpp"

#include <dlfcn.h>

namespace weft {

Result<DynamicLibrary> DynamicLibrary::open(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    // The loader's text names the library first.
    if (handle == nullptr) {
        const char* why = dlerror();
        return fail(weftSystemError, "{}", why != nullptr ? why : path + " cannot be opened");
    }
    return DynamicLibrary(handle);
}

DynamicLibrary DynamicLibrary::loaded(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) (void)dlerror();  // not for the next who asks
    return DynamicLibrary(handle);
}

DynamicLibrary::~DynamicLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
}

void* DynamicLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace weft
