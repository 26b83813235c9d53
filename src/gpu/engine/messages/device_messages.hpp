// device_messages.hpp: arranges the messages of a group for the message kernel: a queue for each peer and direction,
// and the pairs of messages of a rank to itself. Knows no driver. Thread-bound to the rank. It is kept between calls,
// so that a call allocates nothing.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "src/gpu/engine/device_calls.hpp"
#include "src/gpu/kernels/message_arguments.hpp"

namespace weft::internal {

class DeviceMessages {
  public:
    // remote: the ranks that are reached over the network.
    DeviceMessages(int rank, int ranks, const cuda::RankBits& remote)
        : rank_(rank), geometry_{ranks}, remote_(remote) {}

    // The address of this rank's buffer in kernels of `peer`; null: they cannot access it.
    using RemoteAddress = std::function<const std::byte*(const DeviceMessage& message, int peer)>;
    // Fails if a message to this rank itself has no matching counterpart, or if there are too many messages for a
    // kernel.
    Status arrange(std::span<const DeviceMessage> messages, const RemoteAddress& remote_address);
    // An all-to-all whose counts a kernel reads first (bind_counts()).
    void arrange(const CountedMessages& messages, const RemoteAddress& remote_address);
    bool counted() const { return counts_.has_value(); }
    void bind_counts(cuda::MessageArguments& arguments) const;
    // Sets all items, or none if they are in the table.
    void bind(cuda::MessageArguments& arguments) const;
    // Sets the items from `first` on for a kernel that only stores them in the table, and returns their number.
    int note(cuda::MessageArguments& arguments, int first) const;
    int items() const { return int(items_.size()); }
    bool fit() const { return items_.size() <= cuda::message_items_within && !counted(); }
    // The most blocks that have work.
    int p2p_channels() const { return lanes_; }

  private:
    Status pair_own();
    // The number of channels that a message of this size uses.
    uint8_t channels_to(int peer, uint64_t bytes, uint32_t mark) const {
        return remote_.has(peer) ? uint8_t(1) : uint8_t(geometry_.pieces(bytes, of_collective(caller_of(mark))));
    }

    int rank_;
    cuda::MessageGeometry geometry_;
    cuda::RankBits remote_;
    std::vector<const DeviceMessage*> sorted_;
    std::vector<cuda::MessageItem> items_;
    std::optional<cuda::MessageCounts> counts_;  // if set, there are no items
    std::vector<cuda::MessageQueue> queues_;
    int lanes_ = 0;
};

}  // namespace weft::internal
