// registered.hpp: memory that the devices of this process may read and write.
#pragma once
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "transports/memory.hpp"
#include "transports/verbs/devices.hpp"

namespace weft::internal::verbs {

// Registered with every device: which of them a peer will use is not known yet.
class Registered final : public RegisteredMemory {
  public:
    // `access`: verbs::access. verbs.memlock, verbs.call.
    static Result<std::unique_ptr<Registered>> make(const Devices& devices, const MemoryRange& range, int access);
    // 0: the device was gone.
    uint32_t lkey(size_t device) const { return regions_[device] ? regions_[device]->lkey() : 0; }
    uint32_t rkey(size_t device) const { return regions_[device] ? regions_[device]->rkey() : 0; }

  private:
    using RegisteredMemory::RegisteredMemory;
    std::vector<std::optional<MemoryRegion>> regions_;  // by device
};

// Slots of a connection: whole pages, every page touched. The owner ends it when no device uses it any more.
class SlotMemory {
  public:
    static Result<std::unique_ptr<SlotMemory>> make(const Devices& devices, size_t bytes, int access);
    std::byte* data() const { return memory_.get(); }
    const Registered& registered() const { return *registered_; }

  private:
    struct Freed {
        void operator()(std::byte* memory) const { free(memory); }
    };
    std::unique_ptr<std::byte, Freed> memory_;
    std::unique_ptr<Registered> registered_;
};

}  // namespace weft::internal::verbs
