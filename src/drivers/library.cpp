#include "src/drivers/library.hpp"

#include <dlfcn.h>

#include "src/base/fd.hpp"
#include "src/base/file.hpp"

namespace weft::internal {

namespace {

// Whether a file of that name, of any version, is mapped. It asks the kernel: the loader would read its cache, which a
// child that another thread forks right now would inherit in an inconsistent state.
bool mapped(const std::string& name) {
    const std::string wanted = '/' + name.substr(0, name.find(".so")) + ".so";
    const std::string maps = system_file("/proc/self/maps");
    return maps.empty() || maps.find(wanted) != std::string::npos;  // unreadable: it may be mapped
}

}  // namespace

Result<DynamicLibrary> DynamicLibrary::open(const std::string& path) {
    const StandardNumbers held;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    // dlerror's text begins with the library's name.
    if (handle == nullptr) {
        const char* why = dlerror();
        return fail(error::driver_missing, "{}", why != nullptr ? why : path + " cannot be opened");
    }
    return DynamicLibrary(handle);
}

DynamicLibrary DynamicLibrary::loaded(const std::string& path) {
    if (path.find('/') == std::string::npos && !mapped(path)) return {};
    void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) (void)dlerror();  // clears the error
    return DynamicLibrary(handle);
}

DynamicLibrary::~DynamicLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
}

void* DynamicLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace weft::internal
