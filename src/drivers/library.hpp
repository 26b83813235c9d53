// library.hpp: the owner of a library that is opened at run time, so that one binary runs with and without it.
#pragma once
#include <string>
#include <utility>

#include "src/base/result.hpp"

namespace weft::internal {

class DynamicLibrary {
  public:
    DynamicLibrary() = default;
    // Resolves all symbols now. No symbol becomes visible to other libraries.
    static Result<DynamicLibrary> open(const std::string& path);
    // The library, if the process has loaded it already; otherwise an empty owner.
    static DynamicLibrary loaded(const std::string& path);
    DynamicLibrary(DynamicLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~DynamicLibrary();

    explicit operator bool() const { return handle_ != nullptr; }
    void* find(const char* symbol) const;  // null if there is no such symbol
    // Keeps the library loaded: its threads may still run when the process ends.
    void keep() { handle_ = nullptr; }

  private:
    explicit DynamicLibrary(void* handle) : handle_(handle) {}
    void* handle_ = nullptr;
};

}  // namespace weft::internal
