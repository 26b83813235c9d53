#include "src/drivers/verbs/completion_queue.hpp"

#include <fcntl.h>

#include <cerrno>

#include "src/base/fd.hpp"
#include "src/drivers/verbs/refusal.hpp"

namespace weft::internal::verbs {

namespace {

constexpr unsigned taken_most = 64;
constexpr size_t entry_bytes = 64;  // about what a device pins for a completion

Result<abi::Channel*> make_channel(const Context& context) {
    const StandardNumbers held;
    errno = 0;
    abi::Channel* channel = context.functions().ibv_create_comp_channel(context.get());
    if (channel == nullptr) return refused(context, "a completion channel", 0, errno);
    const int flags = fcntl(channel->fd, F_GETFL);
    if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        const int error = errno;
        context.functions().ibv_destroy_comp_channel(channel);
        return refused(context, "a completion channel that does not block", 0, error);
    }
    return channel;
}

}  // namespace

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::make(const Context& context, int entries, bool sleeps) {
    if (entries > context.facts().limits.queue_entries)
        return fail(error::verbs_call, "{} has completion queues of {} entries at most; {} are needed",
                    context.facts().name, context.facts().limits.queue_entries, entries);
    abi::Channel* channel = nullptr;
    if (sleeps) {
        Result<abi::Channel*> made = make_channel(context);
        if (!made) return made.take_status();
        channel = *made;
    }
    errno = 0;
    abi::Queue* queue = context.functions().ibv_create_cq(context.get(), entries, nullptr, channel, 0);
    if (queue == nullptr) {
        const int error = errno;
        if (channel != nullptr) context.functions().ibv_destroy_comp_channel(channel);
        return refused(context, fmt::format("a completion queue of {} entries", entries), size_t(entries) * entry_bytes,
                       error);
    }
    return std::unique_ptr<CompletionQueue>(new CompletionQueue(context, channel, queue));
}

CompletionQueue::~CompletionQueue() {
    take_signals();
    acknowledge();  // the library would wait for it
    context_.functions().ibv_destroy_cq(queue_);
    if (channel_ != nullptr) context_.functions().ibv_destroy_comp_channel(channel_);
}

Status CompletionQueue::arm() {
    if (const int error = queue_->context->operations.req_notify_cq(queue_, 0))
        return refused(context_, "to signal completions", 0, error);
    return ok();
}

void CompletionQueue::take_signals() {
    if (channel_ == nullptr) return;
    abi::Queue* queue = nullptr;
    void* user = nullptr;
    while (context_.functions().ibv_get_cq_event(channel_, &queue, &user) == 0)
        if (++taken_ == taken_most) acknowledge();
}

void CompletionQueue::acknowledge() {
    if (taken_ > 0) context_.functions().ibv_ack_cq_events(queue_, taken_);
    taken_ = 0;
}

}  // namespace weft::internal::verbs
