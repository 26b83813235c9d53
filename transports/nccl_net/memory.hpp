// memory.hpp: registered memory of a plugin's connections. A plugin registers for each comm, so a range that a caller
// registers once gets a handle in each comm that uses it, at the first use.
#pragma once
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/fd.hpp"
#include "transports/memory.hpp"
#include "transports/nccl_net/net.hpp"

namespace weft::internal::nccl_net {

// The handles of one range. Shared by the range's owner and the comms, so that either may end first. Thread-safe.
class Registrations {
  public:
    Registrations(const Net& net, const MemoryRange& range, Fd dma_buf);
    // The handle in this comm.
    Result<void*> in(void* comm);
    void end(void* comm);  // before the comm is closed
    void end_all();        // before the memory is freed
    bool ended();
    // Messages of the range are copied, for this reason: writes the log's only line about it.
    void log_refusal(const Status& why);

  private:
    struct Entry {
        void* comm;
        void* handle;
    };
    const Net& net_;
    const MemoryRange range_;
    const Fd dma_buf_;  // empty: the memory is registered by its address
    std::mutex mutex_;
    std::vector<Entry> entries_;
    bool ended_ = false, logged_ = false;
};

// The result of Transport::register_memory(), owned by the caller.
class NetMemory final : public RegisteredMemory {
  public:
    // `refusals`: as refusal(), by NIC; empty: all NICs take the range.
    NetMemory(const MemoryRange& range, std::shared_ptr<Registrations> registrations,
              std::vector<std::string> refusals = {});
    NetMemory(const NetMemory&) = delete;
    NetMemory& operator=(const NetMemory&) = delete;
    ~NetMemory() override { registrations_->end_all(); }
    const std::shared_ptr<Registrations>& registrations() const { return registrations_; }
    // Why this NIC, a place in Net::devices(), does not register the range; empty: it does.
    std::string refusal(size_t nic) const { return refusals_.empty() ? "" : refusals_[nic]; }

  private:
    std::shared_ptr<Registrations> registrations_;
    const std::vector<std::string> refusals_;
};

// The handles of one comm, found without a lock. Thread-bound to the comm.
class CommMemory {
  public:
    CommMemory() = default;
    CommMemory(const CommMemory&) = delete;
    CommMemory& operator=(const CommMemory&) = delete;
    ~CommMemory() { end(); }
    void begin(void* comm) { comm_ = comm; }
    Result<void*> handle_of(const NetMemory& memory);
    // Empty: the plugin refuses this memory, so its messages must be copied.
    Result<std::optional<void*>> handle_or_refusal(const NetMemory& memory);
    void end();  // before the comm is closed

  private:
    struct Entry {
        std::shared_ptr<Registrations> registrations;
        std::optional<void*> handle;
    };
    void* comm_ = nullptr;
    std::vector<Entry> entries_;
};

// Memory of an end's own: whole pages, because some plugins register pages. Zeroed.
class OwnMemory {
  public:
    static Result<OwnMemory> allocate(const Net& net, size_t bytes);
    std::byte* data() const { return data_.get(); }
    const NetMemory& registered() const { return *registered_; }
    explicit operator bool() const { return data_ != nullptr; }

  private:
    struct Freed {
        void operator()(std::byte* memory) const { free(memory); }
    };
    std::unique_ptr<std::byte, Freed> data_;
    std::unique_ptr<NetMemory> registered_;  // ends before data_
};

}  // namespace weft::internal::nccl_net
