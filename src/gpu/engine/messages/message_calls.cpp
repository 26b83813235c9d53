#include "src/gpu/engine/messages/message_calls.hpp"

#include <algorithm>

namespace weft::internal {

using cuda::Kernel;
using cuda::LaunchShape;
using cuda::message_items_within;
using cuda::MessageArguments;
using cuda::MessageItem;
using cuda::ranks_max;

DeviceMessages& MessageCalls::arranged() {
    if (!messages_) [[unlikely]] {
        gpu_.domain->memory().bind(arguments_);
        messages_ = std::make_unique<DeviceMessages>(gpu_.rank, gpu_.layout.ranks, arguments_.remote.ranks);
    }
    return *messages_;
}

// The address of the sent data in kernels of `peer`; null: they cannot access it.
DeviceMessages::RemoteAddress MessageCalls::remote_addresses() {
    return [this](const DeviceMessage& message, int peer) -> const std::byte* {
        std::byte* at[ranks_max];
        const size_t bytes = message.count * size_of(message.type);
        if (launcher_.registers_captured()) [[unlikely]]
            launcher_.register_captured(message.data, bytes);
        return gpu_.exports_buffers && gpu_.buffer_registry->find(message.data, bytes, message.mapped, at) ? at[peer]
                                                                                                           : nullptr;
    };
}

Status MessageCalls::prepare(std::span<const DeviceMessage> messages, void* stream) {
    WEFT_TRY(launcher_.take_stream(stream));
    return arranged().arrange(messages, remote_addresses());
}

Status MessageCalls::prepare(const CountedMessages& messages, void* stream) {
    WEFT_TRY(launcher_.take_stream(stream));
    arranged().arrange(messages, remote_addresses());
    return ok();
}

Status MessageCalls::launch(void* stream, const CallSettings& settings) {
    arguments_.launch = launcher_.next_launch();
    arguments_.timeout_ns = launcher_.timeout_of(settings);
    if (messages_->p2p_channels() == 0) return launcher_.order(stream);
    const int blocks_max = gpu_.layout.block_rules.limits_for(settings.blocks).most;
    return launcher_.in_order(stream, settings,
                              [&](std::optional<int> priority) { return enqueue(stream, priority, blocks_max); });
}

Status MessageCalls::enqueue(void* stream, std::optional<int> priority, int blocks_max) {
    const Kernel& kernel = gpu_.kernels().messages();
    const LaunchShape storing{.blocks = 1, .threads = 128, .priority = priority};
    if (messages_->counted()) {
        messages_->bind_counts(arguments_);
        WEFT_TRY(launcher_.enqueue(kernel, storing, stream, &arguments_));
        arguments_.launch = launcher_.next_launch();
    }
    for (int stored = 0; !messages_->fit() && stored < messages_->items();) {
        stored += messages_->note(arguments_, stored);
        WEFT_TRY(launcher_.enqueue(kernel, storing, stream, &arguments_));
    }
    messages_->bind(arguments_);
    const LaunchShape shape{.blocks = unsigned(std::clamp(messages_->p2p_channels(), 1, blocks_max)),
                            .threads = unsigned(gpu_.layout.threads),
                            .remote_sync_domain = gpu_.kernels().sync_domains(),
                            .priority = priority};
    return arguments_.remote.ranks.none() ? launcher_.enqueue_last(kernel, shape, stream, arguments_)
                                          : launcher_.enqueue_served(kernel, shape, stream, arguments_);
}

Status MessageCalls::store(std::span<const MessageItem> items, void* stream, std::optional<int> priority) {
    (void)arranged();
    MessageArguments& a = arguments_;
    a.does = MessageArguments::note;
    for (size_t stored = 0; stored < items.size(); stored += size_t(a.item_count)) {
        a.noted = int32_t(stored);
        a.item_count = int32_t(std::min(items.size() - stored, size_t(message_items_within)));
        std::copy_n(items.begin() + ptrdiff_t(stored), a.item_count, a.items);
        a.launch = launcher_.next_launch();
        WEFT_TRY(launcher_.enqueue(gpu_.kernels().messages(), {.blocks = 1, .threads = 128, .priority = priority},
                                   stream, &a));
    }
    return ok();
}

}  // namespace weft::internal
