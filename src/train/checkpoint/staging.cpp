#include "src/train/checkpoint/staging.hpp"

#include <utility>

namespace weft::internal::train {

Result<MemorySpace*> Staging::space_of(int device) {
    std::unique_ptr<MemorySpace>& space = spaces_[device];
    if (!space) {
        auto made = device_space(device);
        if (!made) return made.take_status();
        space = std::move(*made);
    }
    return space.get();
}

Result<void*> Staging::add(void* memory, size_t bytes, int device, weftStream_t callers) {
    const auto space = space_of(device);
    if (!space) return space.status().copy();
    WEFT_TRY((*space)->check("weftTrainBox_t", callers));
    copies_.push_back({*space, memory, std::unique_ptr<std::byte[]>(new std::byte[bytes]), bytes, callers});
    void* const host = copies_.back().host.get();
    if (!reads_) return host;
    WEFT_TRY((*space)->follow(callers));
    WEFT_TRY((*space)->copy(host, memory, bytes));
    return host;
}

Status Staging::finish() {
    for (const auto& [device, space] : spaces_)
        if (space) WEFT_TRY(space->synchronize());
    return ok();
}

Status Staging::write_back() {
    for (const Copy& each : copies_) {
        WEFT_TRY(each.space->follow(each.callers));
        WEFT_TRY(each.space->copy(each.memory, each.host.get(), each.bytes));
    }
    return finish();
}

}  // namespace weft::internal::train
