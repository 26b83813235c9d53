// device_messages.hpp: messages of a group as the kernel of messages wants them: a queue for each peer and direction,
// what a rank gives itself paired. Knows no driver. Thread-bound to the rank; kept, so that a call allocates nothing.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "src/gpu/engine/gpu_engine.hpp"
#include "src/gpu/kernels/message_arguments.hpp"

namespace weft::internal {

class DeviceMessages {
  public:
    // remote: ranks of other hosts, by bit.
    DeviceMessages(int rank, int ranks, uint64_t remote) : rank_(rank), geometry_{ranks}, remote_(remote) {}

    // Where kernels of `peer` find a buffer of this rank's; null: they do not.
    using RemoteAddress = std::function<const std::byte*(const DeviceMessage& message, int peer)>;
    // Fails if a message to this very rank has no counterpart or another one, and if they are too many for a kernel.
    Status arrange(std::span<const DeviceMessage> messages, const RemoteAddress& remote_address);
    // An all-to-all whose counts a kernel reads first, from bind_counts().
    void arrange(const CountedMessages& messages, const RemoteAddress& remote_address);
    bool counted() const { return counts_.has_value(); }
    void bind_counts(cuda::MessageArguments& arguments) const;
    // Into `arguments`, as far as they have room: all, or, where there is a table, none.
    void bind(cuda::MessageArguments& arguments) const;
    // The items that a kernel that only notes them down takes from `first` on; how many.
    int note(cuda::MessageArguments& arguments, int first) const;
    int items() const { return int(items_.size()); }
    bool fit() const { return items_.size() <= cuda::message_items_within && !counted(); }
    // How many blocks have something to do, at most.
    int p2p_channels() const { return lanes_; }

  private:
    Status pair_own();
    // That a message of this length is cut for.
    uint8_t channels_to(int peer, uint64_t bytes) const {
        return (remote_ >> unsigned(peer) & 1) != 0 ? uint8_t(1) : uint8_t(geometry_.pieces(bytes));
    }

    int rank_;
    cuda::MessageGeometry geometry_;
    uint64_t remote_;
    std::vector<const DeviceMessage*> sorted_;
    std::vector<cuda::MessageItem> items_;
    std::optional<cuda::MessageCounts> counts_;  // then no items
    std::vector<cuda::MessageQueue> queues_;
    int lanes_ = 0;
};

}  // namespace weft::internal
