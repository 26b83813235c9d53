// registered.hpp: memory that the devices of this process may read and write.
#pragma once
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "transports/memory.hpp"
#include "transports/verbs/devices.hpp"

namespace weft::internal::verbs {

// Registered with every device that the settings admit: which of them a peer will use is not known yet. Device memory may
// lack those without an active port.
class Registered final : public RegisteredMemory {
  public:
    static constexpr uint32_t key_magic = 0x6b766677;  // "wfvk"
    // `access`: verbs::access. verbs.memlock, verbs.call.
    static Result<std::unique_ptr<Registered>> make(const Devices& devices, const MemoryRange& range, int access);
    // 0, which no memory has: the device was gone or is left out, or after revoke().
    uint32_t lkey(size_t device) const { return has(device) ? regions_[device]->lkey() : 0; }
    uint32_t rkey(size_t device) const { return has(device) ? regions_[device]->rkey() : 0; }
    void revoke() override { regions_.clear(); }
    std::vector<std::byte> key() const override;

  private:
    using RegisteredMemory::RegisteredMemory;
    bool has(size_t device) const { return device < regions_.size() && regions_[device]; }
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
