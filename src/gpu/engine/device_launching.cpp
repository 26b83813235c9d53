// device_launching.cpp: calls on device memory: what is computed once for each key, and the launches of each call.
#include <algorithm>

#include "src/base/log.hpp"
#include "src/gpu/engine/gpu_engine_state.hpp"

namespace weft::internal {

using cuda::adds;
using cuda::bind_operation;
using cuda::Body;
using cuda::ContextScope;
using cuda::DomainLayout;
using cuda::element_of;
using cuda::Kernel;
using cuda::KernelArguments;
using cuda::LaunchShape;
using cuda::message_items_within;
using cuda::MessageArguments;
using cuda::MessageItem;
using cuda::ranks_max;

// Plans a new key. It calls no function of the driver, so it may happen during a capture.
Result<PreparedLaunch*> GpuEngine::State::plan(const Operation& called, uint8_t preference) {
    auto plan = plan_on_device(called, layout_for(preference));
    if (!plan) return plan.take_status();
    const Operation operation = served_as(called);
    auto fresh = std::make_unique<PreparedLaunch>();
    fresh->plan = *plan;
    fresh->kernel = &kernels->kernel(plan->body, element_of(operation), adds(weftRedOp_t(operation.op)));
    fresh->shape = {.blocks = unsigned(plan->blocks),
                    .threads = unsigned(plan->threads),
                    .remote_sync_domain = kernels->sync_domains()};
    KernelArguments& a = fresh->arguments;
    domain->memory().bind(a);
    a.fingerprint = plan->fingerprint();
    // Fused bodies combine the contributions of all ranks at once.
    const bool in_one_place =
        plan->steps < 0 || layout.steps[size_t(plan->steps)].algorithm->sums == Sums::in_rank_order;
    bind_operation(a, operation, layout.ranks, in_one_place);
    // Without data no message would be sent, and no rank would wait for another.
    fresh->of_tokens = a.bytes == 0 && !a.domain;
    if (fresh->of_tokens) a.bytes = DomainLayout::token_bytes;
    const int parts = parts_of(operation.collective, layout.ranks);
    const Held in = input_of(operation.collective, rank, operation.root),
               out = output_of(operation.collective, rank, operation.root);
    const bool steps = plan->steps >= 0;
    fresh->send_bytes = a.bytes * size_t(parts_held(in, parts));
    fresh->receive_bytes = a.bytes * size_t(parts_held(out, parts));
    fresh->send_begins = steps ? first_held(in, rank, a.bytes) : 0;
    fresh->receive_begins = steps ? first_held(out, rank, a.bytes) : 0;
    // If peers read a buffer in place, each receiver's part is one part of a tile.
    a.tile_bytes = steps ? plan->tile_bytes : 0;
    if (plan->body == Body::peer_two_shot) a.tile_bytes = DomainLayout::staging_bytes / 2;
    if (plan->body == Body::peer_one_shot)
        a.tile_bytes = DomainLayout::staging_bytes / 2 / size_t(a.send_stride ? layout.ranks : 1) / 64 * 64;
    fresh->send_in_place = in != Held::nothing;
    fresh->receive_in_place = out != Held::nothing && plan->body == Body::peer_two_shot;
    if (steps) domain->memory().bind_program(a, layout.steps[size_t(plan->steps)].program(operation.root));
    a.exports_buffers = plan->staged() && exports_buffers && !a.scaled;
    known.add(plan->operation);
    if (rank == 0) WEFT_LOG_RANK(rank, info, algo, "{}: {}", plan->operation.text(), plan->text());
    return plans.insert(PlanKey(called, preference), std::move(fresh));
}

// Checks the stream; a refused call has no effect.
Status GpuEngine::State::take_stream(void* stream_of_call) {
    const auto on = static_cast<CUstream>(stream_of_call);
    ContextScope scope(*context());
    WEFT_TRY(scope.take_status());
    auto facts = describe_stream(*driver, on);
    if (!facts) return facts.take_status();
    if (facts->context != context()->handle())
        return fail(error::memory_device,
                    "the stream belongs to {}device {}, and the communicator's rank {} is on device {}: create the "
                    "stream with that device current",
                    facts->device == device() ? "another context of " : "", facts->device, rank, device());
    if (sharing && (on == nullptr || on == CU_STREAM_LEGACY))
        return fail(
            error::stream_shared,
            "the legacy stream cannot be used if several ranks of a process share device {}: the ranks would wait "
            "for each other; give each rank a stream of its own, made with cudaStreamNonBlocking",
            device());
    if (copies && facts->capturing)
        return fail(error::stream_capture,
                    "the stream is captured, and the communicator copies device memory through host memory ({}): "
                    "such calls cannot become part of a graph",
                    why_copies());
    stream = *facts;
    return ok();
}

Status GpuEngine::copy_in(Copied which, std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes,
                          void* stream) {
    State& s = *state_;
    WEFT_TRY(s.take_stream(stream));
    auto& copies = s.copied[size_t(which)];
    if (!copies) copies = std::make_unique<HostStaging>(*s.context());
    return copies->begin(reads, writes, static_cast<CUstream>(stream));
}

void* GpuEngine::copied(Copied which, const void* on_device) const {
    return state_->copied[size_t(which)]->at(on_device);
}

Status GpuEngine::copy_out(Copied which) { return state_->copied[size_t(which)]->end(); }

uint64_t GpuEngine::copied_bytes() const {
    uint64_t bytes = 0;
    for (const auto& copies : state_->copied)
        if (copies) bytes += copies->bytes();
    return bytes;
}

Status GpuEngine::prepare(const DeviceCall& call) {
    State& s = *state_;
    WEFT_TRY(s.take_stream(call.stream));
    // Only collectives are counted: other calls are not the same on all ranks.
    if (s.sharing) WEFT_TRY(s.domain->launches().claim(static_cast<CUstream>(call.stream), s.stream));
    auto plan = s.plan_of(call);
    if (!plan) return plan.take_status();
    s.prepared = *plan;
    return ok();
}

Result<PreparedLaunch*> GpuEngine::State::plan_of(const DeviceCall& call) {
    PreparedLaunch* const known = plans.find(PlanKey(call.operation, call.settings.preference));
    if (known) [[likely]]
        return known;
    return plan(call.operation, call.settings.preference);
}

// Exports both addresses or none: a peer that finds one uses both. An address that a peer does not need is never read.
void GpuEngine::State::export_buffers(PreparedLaunch& it, const DeviceCall& call) const {
    KernelArguments& a = it.arguments;
    std::byte *send[ranks_max], *receive[ranks_max];
    std::fill(std::begin(send), std::end(send), a.outputs[rank]);
    std::fill(std::begin(receive), std::end(receive), a.outputs[rank]);
    const bool all =
        (!it.send_in_place || buffer_registry->find(call.send, it.send_bytes, call.mapped, send)) &&
        (!it.receive_in_place || buffer_registry->find(call.receive, it.receive_bytes, call.mapped, receive));
    if (all) WEFT_LOG_RANK(rank, trace, coll, "offers its buffers of launch {} in place", launches);
    for (int peer = 0; peer < layout.ranks; ++peer) {
        a.exported_send[peer] = all ? send[peer] : nullptr;
        a.exported_receive[peer] = all ? receive[peer] : nullptr;
    }
}

const Operation& GpuEngine::prepared() const { return state_->prepared->plan.operation; }

Status GpuEngine::launch(const DeviceCall& call) {
    State& s = *state_;
    PreparedLaunch& it = *s.prepared;
    KernelArguments& a = it.arguments;
    if (it.of_tokens) {
        s.domain->memory().bind_tokens(a);
    } else {
        a.send = static_cast<const std::byte*>(call.send) - it.send_begins;
        a.receive = static_cast<std::byte*>(call.receive) - it.receive_begins;
    }
    a.launch = ++s.launches;
    a.timeout_ns = s.timeout_of(call.settings);
    if (a.exports_buffers) s.export_buffers(it, call);
    a.scalar_pointer = a.scaled && call.scalar_on_device ? call.scalar : nullptr;
    if (a.scaled && !a.scalar_pointer) __builtin_memcpy(&a.scalar, call.scalar, datatype_bytes[call.operation.type]);
    const auto stream = static_cast<CUstream>(call.stream);
    ContextScope scope(s.kernels->context());
    WEFT_TRY(scope.take_status());
    auto priority = s.priority(call.settings.priority);
    if (!priority) return priority.take_status();
    WEFT_TRY(s.domain->launches().order(stream, s.stream));
    LaunchShape shape = it.shape;
    shape.priority = *priority;
    WEFT_TRY(s.enqueue_served(*it.kernel, shape, stream, a));
    return s.domain->launches().note(stream, s.stream);
}

// Not if ranks share a device: launches are counted then, to find ranks that share a stream.
bool GpuEngine::joins() const {
    const State& s = *state_;
    return s.domain && !s.sharing && s.layout.hosts == 1 && s.layout.ranks <= ranks_max;
}

Status GpuEngine::prepare_coalesced(std::span<const DeviceCall> calls) {
    State& s = *state_;
    WEFT_TRY(s.take_stream(calls[0].stream));
    s.coalesced.clear();
    // All plans are made before one is kept, because a full cache is emptied.
    for (const DeviceCall& call : calls)
        if (auto plan = s.plan_of(call); !plan) return plan.take_status();
    for (const DeviceCall& call : calls) {
        auto plan = s.plan_of(call);
        if (!plan) return plan.take_status();
        if ((*plan)->plan.body != Body::packet_one_shot)
            return fail(error::gpu_not_served, "{} uses a kernel that executes only one call", call.operation.text());
        s.coalesced.push_back(*plan);
    }
    return ok();
}

const Operation& GpuEngine::prepared_coalesced(size_t place) const { return state_->coalesced[place]->plan.operation; }

Status GpuEngine::launch_coalesced(std::span<const DeviceCall> calls) {
    State& s = *state_;
    PreparedLaunch& first = *s.coalesced[0];
    std::vector<MessageItem>& batched = s.coalesced_items;
    batched.clear();
    LaunchShape shape = first.shape;
    for (size_t i = 1; i < calls.size(); ++i) {
        const KernelArguments& its = s.coalesced[i]->arguments;
        batched.push_back({static_cast<std::byte*>(calls[i].receive), static_cast<const std::byte*>(calls[i].send),
                           its.bytes, its.fingerprint});
        shape.blocks = std::max(shape.blocks, s.coalesced[i]->shape.blocks);
    }
    const auto stream = static_cast<CUstream>(calls[0].stream);
    ContextScope scope(s.kernels->context());
    WEFT_TRY(scope.take_status());
    auto priority = s.priority(calls[0].settings.priority);
    if (!priority) return priority.take_status();
    shape.priority = *priority;
    WEFT_TRY(s.domain->launches().order(stream, s.stream));
    WEFT_TRY(s.note(batched, stream, *priority));
    KernelArguments a = first.arguments;
    a.send = static_cast<const std::byte*>(calls[0].send);
    a.receive = static_cast<std::byte*>(calls[0].receive);
    a.launch = ++s.launches;
    a.timeout_ns = s.timeout_of(calls[0].settings);
    a.batched = s.message_arguments.table;
    a.batched_count = int32_t(batched.size());
    WEFT_TRY(s.enqueue(*first.kernel, shape, stream, &a));
    return s.domain->launches().note(stream, s.stream);
}

Status GpuEngine::State::note(std::span<const MessageItem> items, CUstream on, std::optional<int> priority) {
    (void)own_messages();
    MessageArguments& a = message_arguments;
    a.does = MessageArguments::note;
    for (size_t noted = 0; noted < items.size(); noted += size_t(a.item_count)) {
        a.noted = int32_t(noted);
        a.item_count = int32_t(std::min(items.size() - noted, size_t(message_items_within)));
        std::copy_n(items.begin() + ptrdiff_t(noted), a.item_count, a.items);
        a.launch = ++launches;
        WEFT_TRY(enqueue(kernels->messages(), {.blocks = 1, .threads = 128, .priority = priority}, on, &a));
    }
    return ok();
}

Status GpuEngine::State::enqueue(const Kernel& kernel, const LaunchShape& shape, CUstream on, void* arguments) const {
    void* parameters[] = {arguments};
    const CUresult result = kernel.enqueue(shape, on, parameters);
    if (result == CUDA_SUCCESS) [[likely]]
        return ok();
    return driver->failure(result, fmt::format("launch the kernel {} with {} blocks of {} threads", kernel.name(),
                                               shape.blocks, shape.threads));
}

template <class Arguments>
Status GpuEngine::State::enqueue_served(const Kernel& kernel, const LaunchShape& shape, CUstream on,
                                        Arguments& arguments) const {
    if (network) network->launching(stream.capturing, arguments.launch, shape.blocks);
    // A replay would report again that an old launch has ended.
    uint32_t* const ended = arguments.ended;
    if (stream.capturing) arguments.ended = nullptr;
    Status enqueued = enqueue(kernel, shape, on, &arguments);
    arguments.ended = ended;
    WEFT_TRY(std::move(enqueued));
    if (network) network->launched();
    return ok();
}

DeviceMessages& GpuEngine::State::own_messages() {
    if (!messages) [[unlikely]] {
        domain->memory().bind(message_arguments);
        messages = std::make_unique<DeviceMessages>(rank, layout.ranks, message_arguments.remote);
    }
    return *messages;
}

const std::byte* GpuEngine::State::remote_address(const DeviceMessage& message, int peer) const {
    std::byte* at[ranks_max];
    const size_t bytes = message.count * size_of(message.type);
    return exports_buffers && buffer_registry->find(message.data, bytes, message.mapped, at) ? at[peer] : nullptr;
}

Status GpuEngine::prepare_messages(std::span<const DeviceMessage> messages, void* stream) {
    State& s = *state_;
    WEFT_TRY(s.own_messages().arrange(
        messages, [&](const DeviceMessage& message, int peer) { return s.remote_address(message, peer); }));
    return s.take_stream(stream);
}

Status GpuEngine::prepare_messages(const CountedMessages& messages, void* stream) {
    State& s = *state_;
    s.own_messages().arrange(messages,
                             [&](const DeviceMessage& message, int peer) { return s.remote_address(message, peer); });
    return s.take_stream(stream);
}

uint64_t GpuEngine::State::timeout_of(const CallSettings& settings) const {
    return settings.timeout_ms < 0 ? timeout_ns : nanoseconds_of(settings.timeout_ms);
}

Result<std::optional<int>> GpuEngine::State::priority(int asked) {
    if (asked == WEFT_CONFIG_UNDEF_INT) [[likely]]
        return std::optional<int>();
    if (!priorities) {
        int last = 0, first = 0;
        WEFT_TRY(driver->check(driver->CtxGetStreamPriorityRange(&last, &first), "query the range of priorities"));
        priorities = {first, last};
    }
    return std::optional<int>(std::clamp(asked, priorities->first, priorities->second));
}

Status GpuEngine::launch_messages(void* on, const CallSettings& settings) {
    State& s = *state_;
    MessageArguments& a = s.message_arguments;
    a.launch = ++s.launches;
    a.timeout_ns = s.timeout_of(settings);
    const auto stream = static_cast<CUstream>(on);
    ContextScope scope(s.kernels->context());
    WEFT_TRY(scope.take_status());
    auto priority = s.priority(settings.priority);
    if (!priority) return priority.take_status();
    WEFT_TRY(s.domain->launches().order(stream, s.stream));
    if (s.messages->p2p_channels() == 0) return ok();
    const Kernel& kernel = s.kernels->messages();
    const LaunchShape noting{.blocks = 1, .threads = 128, .priority = *priority};
    if (s.messages->counted()) {
        s.messages->bind_counts(a);
        WEFT_TRY(s.enqueue(kernel, noting, stream, &a));
        a.launch = ++s.launches;
    }
    for (int noted = 0; !s.messages->fit() && noted < s.messages->items();) {
        noted += s.messages->note(a, noted);
        WEFT_TRY(s.enqueue(kernel, noting, stream, &a));
    }
    s.messages->bind(a);
    const LaunchShape shape{.blocks = unsigned(std::clamp(s.messages->p2p_channels(), 1, s.layout.blocks_max)),
                            .threads = unsigned(s.layout.threads),
                            .remote_sync_domain = s.kernels->sync_domains(),
                            .priority = *priority};
    WEFT_TRY(s.enqueue_served(kernel, shape, stream, a));
    return s.domain->launches().note(stream, s.stream);
}

}  // namespace weft::internal
