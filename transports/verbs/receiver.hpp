// receiver.hpp: the receiving end of a connection over verbs.
#pragma once
#include <memory>

#include "transports/verbs/endpoint.hpp"

namespace weft::internal::verbs {

// Thread-bound (transport.hpp). Its slots outlive it, because the peer may still write there.
class VerbsReceiver final : public Receiver {
  public:
    VerbsReceiver(std::shared_ptr<Endpoint> endpoint, std::shared_ptr<Incoming> incoming)
        : endpoint_(std::move(endpoint)), state_(std::move(incoming)) {}
    ~VerbsReceiver() override;

    Result<Slot> receive(SlotInfo& info) override { return look_ahead(0, info); }
    Result<Slot> look_ahead(uint64_t ahead, SlotInfo& info) override;
    Status release() override;
    void add_wakeups(Wakeups& wakeups) override;
    Result<bool> offer(std::byte* target, size_t capacity, RegisteredMemory* memory, uint64_t message) override;
    uint64_t next() const override { return state_->released; }
    void withdraw() override { state_->offers.withdraw(); }

  private:
    Status failure();
    Status damaged(const MessageHeader& header, uint64_t message) const;

    std::shared_ptr<Endpoint> endpoint_;
    std::shared_ptr<Incoming> state_;
    bool flushing_ = false;  // a message is ready, and kernels do not see it yet
};

}  // namespace weft::internal::verbs
