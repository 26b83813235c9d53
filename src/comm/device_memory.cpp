#include "src/comm/device_memory.hpp"

#include <map>
#include <mutex>
#include <vector>

#include "src/base/per_process.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/drivers/cuda/vmm.hpp"

namespace weft {

using cuda::Context;
using cuda::DeviceMemory;
using cuda::Driver;
using cuda::RelaxedCapture;
using cuda::VmmMemory;

namespace {

struct GivenMemory {
    Context context;  // which what follows must not outlive
    VmmMemory shared;
    DeviceMemory plain;  // of a device that has no memory of the first kind: cuIpc exports it
    CUdeviceptr address() const { return shared.address() ? shared.address() : plain.address(); }
    size_t bytes() const { return shared.address() ? shared.bytes() : plain.bytes(); }
};

struct AllGivenMemory {
    std::mutex mutex;
    std::map<CUdeviceptr, GivenMemory> by_address;
};
AllGivenMemory& given_memory() {
    static PerProcess<AllGivenMemory> of_process;
    return of_process.get();
}

// Those that reach the device's memory, when they are let.
Result<std::vector<int>> devices_that_reach(const Driver& driver, int device) {
    auto count = device_count(driver);
    if (!count) return count.take_status();
    std::vector<int> devices;
    for (int other = 0; other < *count; ++other) {
        if (other == device) continue;
        auto access = peer_access(driver, other, device);
        if (!access) return access.take_status();
        if (access->reachable) devices.push_back(other);
    }
    return devices;
}

}  // namespace

Result<void*> allocate_device_memory(size_t bytes) {
    auto driver = Driver::get();
    if (!driver) return driver.take_status();
    auto device = current_device(**driver);
    if (!device) return device.take_status();
    if (!*device)
        return fail(weftInvalidUsage, "no device is current in this thread, to allocate {} bytes on: cudaSetDevice",
                    bytes);
    const RelaxedCapture relaxed(**driver);
    GivenMemory given;
    auto context = Context::retain(**driver, **device);
    if (!context) return context.take_status();
    given.context = std::move(*context);
    auto properties = describe_device(**driver, **device);
    if (!properties) return properties.take_status();
    if (properties->vmm && properties->vmm_fd) {
        auto peers = devices_that_reach(**driver, **device);
        if (!peers) return peers.take_status();
        auto memory = VmmMemory::allocate(given.context, bytes, *peers);
        if (!memory) return memory.take_status();
        given.shared = std::move(*memory);
    } else {
        auto memory = DeviceMemory::allocate(given.context, bytes > 0 ? bytes : 1);
        if (!memory) return memory.take_status();
        given.plain = std::move(*memory);
    }
    AllGivenMemory& all = given_memory();
    const CUdeviceptr address = given.address();
    const std::lock_guard lock(all.mutex);
    all.by_address[address] = std::move(given);
    return reinterpret_cast<void*>(address);
}

bool free_device_memory(void* address) {
    AllGivenMemory& all = given_memory();
    GivenMemory freed;  // which may wait for the device, without the lock
    {
        const std::lock_guard lock(all.mutex);
        const auto place = all.by_address.find(reinterpret_cast<CUdeviceptr>(address));
        if (place == all.by_address.end()) return false;
        freed = std::move(place->second);
        all.by_address.erase(place);
    }
    const RelaxedCapture relaxed(freed.context.driver());
    freed.shared = {};
    freed.plain = {};
    return true;
}

bool is_own_device_memory(const void* address, size_t bytes) {
    AllGivenMemory& all = given_memory();
    const auto begin = reinterpret_cast<CUdeviceptr>(address);
    const std::lock_guard lock(all.mutex);
    const auto next = all.by_address.upper_bound(begin);
    if (next == all.by_address.begin()) return false;
    const GivenMemory& given = std::prev(next)->second;
    const size_t offset = begin - given.address();
    return offset <= given.bytes() && bytes <= given.bytes() - offset;
}

}  // namespace weft
