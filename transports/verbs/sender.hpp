// sender.hpp: the sending end of a connection over verbs.
#pragma once
#include <memory>

#include "transports/verbs/endpoint.hpp"

namespace weft::internal::verbs {

// Thread-bound (transport.hpp). Messages that are published outlive it.
class VerbsSender final : public Sender {
  public:
    VerbsSender(std::shared_ptr<Endpoint> endpoint, std::shared_ptr<Outgoing> outgoing)
        : endpoint_(std::move(endpoint)), state_(std::move(outgoing)) {}
    // If a device may still read the caller's memory, it waits for that up to a second, and ends the link after that.
    ~VerbsSender() override;

    Result<Slot> acquire() override;
    Status publish(const SlotInfo& info) override;
    Result<bool> progress() override;
    void add_wakeups(Wakeups& wakeups) override;
    Result<bool> post(const std::byte* data, const RegisteredMemory* memory, const SlotInfo& info) override;
    uint64_t sent() override;
    Result<std::unique_ptr<RemoteMemory>> attach(std::span<const std::byte> key) override;
    Result<bool> put(const std::byte* own, const RegisteredMemory* memory, RemoteMemory& peer, size_t offset,
                     size_t bytes) override;
    Result<bool> get(std::byte* own, const RegisteredMemory* memory, RemoteMemory& peer, size_t offset,
                     size_t bytes) override;
    uint64_t transferred() override;

  private:
    Status failure();
    Status check(const SlotInfo& info) const;
    Result<bool> has_room();
    bool through() const;
    Result<bool> transfer(const Transfer& transfer, const RemoteMemory& peer, size_t offset);
    void append(const std::byte* data, const Registered* memory, const SlotInfo& info);

    std::shared_ptr<Endpoint> endpoint_;
    std::shared_ptr<Outgoing> state_;
    bool blocked_ = false, flowing_ = false;  // what the last calls of acquire() and progress() have told
};

}  // namespace weft::internal::verbs
