#include "extension.hpp"

namespace weft_torch {

void Extension::add(std::chrono::milliseconds time) {
    std::lock_guard lock(mutex_);
    active_ms_ += time.count();
}

std::shared_ptr<void> Extension::claim(const std::shared_ptr<Extension>& extension) {
    if (extension->active_ms_ == 0) [[likely]]
        return nullptr;
    std::lock_guard lock(extension->mutex_);
    const int64_t part_ms = extension->active_ms_ - extension->claimed_ms_;
    if (part_ms == 0) return nullptr;
    extension->claimed_ms_ += part_ms;
    return {extension.get(), [extension, part_ms](void*) {
                std::lock_guard lock(extension->mutex_);
                extension->active_ms_ -= part_ms;
                extension->claimed_ms_ -= part_ms;
            }};
}

}  // namespace weft_torch
