#include "src/drivers/library.hpp"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "src/base/fd.hpp"
#include "src/base/file.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal {

namespace {

// The process's mappings, as the kernel lists them. The list grows with the threads, so threads that wait for it share
// the next reading: otherwise n ranks that start together would cost n * n.
class Mappings {
  public:
    // The list, read after this call began.
    std::shared_ptr<const std::string> now() {
        const uint64_t wanted = begun_.load(std::memory_order_acquire) + 1;
        std::lock_guard lock(mutex_);
        const uint64_t last = begun_.load(std::memory_order_relaxed);
        if (last < wanted) {
            begun_.store(last + 1, std::memory_order_release);
            list_ = std::make_shared<const std::string>(system_file("/proc/self/maps"));
        }
        return list_;
    }

  private:
    std::atomic<uint64_t> begun_{0};  // readings
    std::mutex mutex_;
    std::shared_ptr<const std::string> list_;
};

// Whether a file of that name, of any version, is mapped. It asks the kernel: the loader would read its cache, which a
// child that another thread forks right now would inherit in an inconsistent state.
bool mapped(const std::string& name) {
    static PerProcess<Mappings> mappings;
    const std::string wanted = '/' + name.substr(0, name.find(".so")) + ".so";
    const auto list = mappings.get().now();
    return list->empty() || list->find(wanted) != std::string::npos;  // unreadable: it may be mapped
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
