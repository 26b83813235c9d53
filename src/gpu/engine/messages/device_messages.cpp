#include "src/gpu/engine/messages/device_messages.hpp"

#include <algorithm>

#include "src/base/datatype.hpp"

namespace weft::internal {

using cuda::message_items_max;
using cuda::message_items_within;
using cuda::MessageArguments;
using cuda::MessageCounts;
using cuda::MessageQueue;

namespace {

// A shorter message is in a slot sooner than the peer could acknowledge that it has read it in place.
constexpr uint64_t device_zero_copy_least = 256 << 10;

uint64_t bytes_of(const DeviceMessage& message) { return message.count * size_of(message.type); }
// The mark has no number, because a replayed graph would repeat it. The slots keep the order.
uint32_t mark_of(const DeviceMessage& message) { return message_mark(message.type, message.by, 0); }
MessageView view_of(const DeviceMessage& message) { return {mark_of(message), message.count}; }

}  // namespace

Status DeviceMessages::arrange(std::span<const DeviceMessage> messages, const RemoteAddress& remote_address) {
    if (messages.size() > message_items_max)
        return fail(error::usage_limit, "a group has {} messages on device memory: it can have at most {}",
                    messages.size(), message_items_max);
    sorted_.clear();
    items_.clear();
    queues_.clear();
    counts_.reset();
    for (const DeviceMessage& message : messages) sorted_.push_back(&message);
    // Every rank begins with its neighbours, so that not all ranks send to the same rank first. Messages to itself come
    // last.
    const auto place = [&](const DeviceMessage* one) {
        const int ranks = geometry_.ranks, away = one->outgoing ? one->peer - rank_ : rank_ - one->peer;
        return ((away + ranks - 1) % ranks) * 2 + (one->outgoing ? 0 : 1);
    };
    // Messages of one queue keep their order, which is the order of their addresses.
    std::sort(sorted_.begin(), sorted_.end(), [&](const DeviceMessage* one, const DeviceMessage* other) {
        const int here = place(one), there = place(other);
        return here != there ? here < there : one < other;
    });
    const auto own = std::find_if(sorted_.begin(), sorted_.end(),
                                  [&](const DeviceMessage* message) { return message->peer == rank_; });
    for (auto at = sorted_.begin(); at != own; ++at) {
        const DeviceMessage& message = **at;
        const uint64_t bytes = bytes_of(message);
        const auto kind = message.outgoing ? MessageQueue::outgoing : MessageQueue::incoming;
        if (queues_.empty() || queues_.back().peer != message.peer || queues_.back().kind != kind)
            queues_.push_back({int16_t(message.peer), kind, 0, uint16_t(items_.size()), 0});
        items_.push_back(
            {static_cast<std::byte*>(message.data),
             message.outgoing && bytes >= device_zero_copy_least ? remote_address(message, message.peer) : nullptr,
             bytes, mark_of(message)});
    }
    sorted_.erase(sorted_.begin(), own);
    WEFT_TRY(pair_own());
    lanes_ = 0;
    for (MessageQueue& queue : queues_) {
        queue.count = uint16_t((&queue == &queues_.back() ? items_.size() : size_t((&queue + 1)->first)) - queue.first);
        for (int i = queue.first; i < queue.first + queue.count; ++i)
            queue.channels =
                std::max(queue.channels, channels_to(queue.peer, items_[size_t(i)].bytes, items_[size_t(i)].mark));
        lanes_ += queue.channels;
    }
    return ok();
}

// One message to each rank and one from each, in the order of peers. Only the largest possible size is known.
void DeviceMessages::arrange(const CountedMessages& call, const RemoteAddress& remote_address) {
    const CountsOnDevice& counts = *call.counts;
    const uint64_t element = size_of(call.type);
    items_.clear();
    queues_.clear();
    counts_ = MessageCounts{
        .sent = counts.sent,
        .send_places = counts.send_places,
        .received = counts.received,
        .receive_places = counts.receive_places,
        .send = static_cast<std::byte*>(const_cast<void*>(call.send)),
        .receive = static_cast<std::byte*>(call.receive),
        .send_room = counts.send_room,
        .receive_room = counts.receive_room,
        .zero_copy_least = device_zero_copy_least,
        .element = uint32_t(element),
        .mark = message_mark(call.type, MessageCaller::all_to_all_v, 0),
        .remote_sends = {},
    };
    lanes_ = 0;
    const auto add = [&](int peer, MessageQueue::Direction kind) {
        const uint64_t room = kind == MessageQueue::incoming ? counts.receive_room : counts.send_room;
        const uint8_t channels = channels_to(peer, room * element, counts_->mark);
        queues_.push_back({int16_t(peer), kind, channels, uint16_t(queues_.size()), 1});
        lanes_ += channels;
    };
    const DeviceMessage whole{
        rank_,      true, const_cast<void*>(call.send), counts.send_room, call.type, MessageCaller::all_to_all_v,
        call.mapped};
    for (int away = 1; away < geometry_.ranks; ++away) {
        const int to = (rank_ + away) % geometry_.ranks;
        counts_->remote_sends[to] = remote_address(whole, to);
        add(to, MessageQueue::outgoing);
        add((rank_ + geometry_.ranks - away) % geometry_.ranks, MessageQueue::incoming);
    }
    add(rank_, MessageQueue::own);
}

// The k-th message that a rank sends itself is the k-th that it receives from itself.
Status DeviceMessages::pair_own() {
    const auto first_received =
        std::find_if(sorted_.begin(), sorted_.end(), [](const DeviceMessage* message) { return !message->outgoing; });
    const size_t sent = size_t(first_received - sorted_.begin()), received = sorted_.size() - sent;
    for (size_t i = 0; i < std::min(sent, received); ++i) {
        const DeviceMessage &from = *sorted_[i], &to = *sorted_[sent + i];
        const MessageView given = view_of(from), wanted = view_of(to);
        if (compared(given.mark) != compared(wanted.mark) || given.count != wanted.count)
            return {error::mismatch_message, differing_messages(rank_, given, rank_, wanted)};
        if (i == 0) queues_.push_back({int16_t(rank_), MessageQueue::own, 0, uint16_t(items_.size()), 0});
        items_.push_back(
            {static_cast<std::byte*>(to.data), static_cast<const std::byte*>(from.data), bytes_of(to), wanted.mark});
    }
    if (sent == received) return ok();
    const bool outgoing = sent > received;
    const DeviceMessage& alone = *sorted_[outgoing ? received : sent + sent];
    return {error::usage_self_message, message_to_oneself(rank_, outgoing, view_of(alone))};
}

void DeviceMessages::bind(MessageArguments& arguments) const {
    arguments.does = MessageArguments::move;
    arguments.counted = counted();
    arguments.queue_count = int32_t(queues_.size());
    arguments.item_count = int32_t(items_.size());
    arguments.in_table = !fit();
    std::copy(queues_.begin(), queues_.end(), arguments.queues);
    if (fit()) std::copy(items_.begin(), items_.end(), arguments.items);
}

void DeviceMessages::bind_counts(MessageArguments& arguments) const {
    bind(arguments);
    arguments.does = MessageArguments::count;
    arguments.counts = *counts_;
}

int DeviceMessages::note(MessageArguments& arguments, int first) const {
    const int count = std::min(message_items_within, items() - first);
    arguments.does = MessageArguments::note;
    arguments.noted = first;
    arguments.item_count = count;
    std::copy_n(items_.begin() + first, count, arguments.items);
    return count;
}

}  // namespace weft::internal
