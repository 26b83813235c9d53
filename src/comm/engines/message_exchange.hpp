// message_exchange.hpp: an exchange of messages that is made at its first message, as the engines of messages use it.
#pragma once
#include "src/comm/engines/call_engine.hpp"
#include "src/p2p/messages.hpp"

namespace weft::internal {

// Owned by an engine. Thread-bound to the rank.
class MessageExchange {
  public:
    // `name` keeps its connection info apart from that of other exchanges and of schedules.
    MessageExchange(RankContext& context, uint64_t name) : context_(context), name_(name) {}

    Exchange& get() {
        if (!messages_) [[unlikely]]
            messages_ =
                std::make_unique<Messages>(*context_.segment, context_.rank, context_.link_settings(name_),
                                           context_.planner.cpu_kernels(), context_.planner.streamed_message_bytes());
        return messages_->exchange();
    }
    bool exists() const { return messages_ != nullptr; }
    // The rest needs an exchange that exists.
    Exchange& existing() const { return messages_->exchange(); }
    Progress advance() {
        const Progress progress = existing().advance();
        if (progress != Progress::blocked && progress != Progress::failed) context_.waiting.stir();
        return progress;
    }
    Blocked blocked() const { return {&existing().missing(), existing().networked(), existing().connecting()}; }
    void withdraw() {
        if (messages_) existing().withdraw();
    }
    bool may_be_read_by(int peer) const { return messages_ && existing().may_be_read_by(peer); }

  private:
    RankContext& context_;
    uint64_t name_;
    std::unique_ptr<Messages> messages_;
};

}  // namespace weft::internal
