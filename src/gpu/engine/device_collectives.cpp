#include "src/gpu/engine/device_collectives.hpp"

#include <algorithm>

#include "src/base/log.hpp"

namespace weft::internal {

using cuda::adds;
using cuda::bind_operation;
using cuda::Body;
using cuda::DomainLayout;
using cuda::element_of;
using cuda::KernelArguments;
using cuda::LaunchShape;
using cuda::MessageItem;
using cuda::multicast_access;
using cuda::ranks_max;

namespace {

// Of kernels of `multicast`: a reduce-scatter.
bool scatters(const KernelArguments& a) { return a.reduces && a.send_stride != 0; }

}  // namespace

void DeviceCollectives::prefer(uint8_t preference, const CallPreference& wanted) {
    if (!gpu_.domain) return;  // nothing is chosen here
    CallPreference here = wanted;
    if (here.channels == int(gpu_.group->header().agreed.channels)) here.channels = 0;
    preferred_[preference] =
        layout_preferring(gpu_.layout, here, gpu_.machines->device_layout(0), gpu_.catalog->rows());
}

const DeviceLayout& DeviceCollectives::layout_for(uint8_t preference) const {
    const auto found = preferred_.find(preference);
    return found == preferred_.end() ? gpu_.layout : found->second;
}

// Plans a new key. It calls no function of the driver, so it may happen during a capture.
Result<PreparedLaunch*> DeviceCollectives::plan(const Operation& called, uint8_t preference) {
    auto plan = plan_on_device(called, layout_for(preference));
    if (!plan) return plan.take_status();
    const Operation operation = served_as(called);
    auto fresh = std::make_unique<PreparedLaunch>();
    fresh->plan = *plan;
    fresh->kernel =
        &gpu_.kernels().kernel(plan->body, element_of(operation, plan->body), adds(weftRedOp_t(operation.op)));
    fresh->shape = {.blocks = unsigned(plan->blocks),
                    .threads = unsigned(plan->threads),
                    .remote_sync_domain = gpu_.kernels().sync_domains()};
    KernelArguments& a = fresh->arguments;
    gpu_.domain->memory().bind(a);
    a.fingerprint = plan->fingerprint();
    // Fused bodies combine the contributions of all ranks at once.
    const bool in_one_place =
        plan->steps < 0 || gpu_.layout.steps[size_t(plan->steps)].algorithm->sums == Sums::in_rank_order;
    bind_operation(a, operation, gpu_.layout.ranks, in_one_place);
    // Without data no message would be sent, and no rank would wait for another.
    fresh->of_tokens = a.bytes == 0 && !a.domain;
    if (fresh->of_tokens) a.bytes = DomainLayout::token_bytes;
    const int parts = parts_of(operation.collective, gpu_.layout.ranks);
    const Held in = input_of(operation.collective, gpu_.rank, operation.root),
               out = output_of(operation.collective, gpu_.rank, operation.root);
    const bool steps = plan->steps >= 0;
    fresh->send_bytes = a.bytes * size_t(parts_held(in, parts));
    fresh->receive_bytes = a.bytes * size_t(parts_held(out, parts));
    fresh->send_begins = steps ? first_held(in, gpu_.rank, a.bytes) : 0;
    fresh->receive_begins = steps ? first_held(out, gpu_.rank, a.bytes) : 0;
    // If peers read a buffer in place, each receiver's part is one part of a tile.
    a.tile_bytes = steps ? plan->tile_bytes : 0;
    cuda::DomainMemory& memory = gpu_.domain->memory();
    const bool switched = plan->body == Body::multicast;
    if (switched) memory.bind_multicast(a);
    if (switched || plan->staged()) {
        const bool parted = a.send_stride != 0 ? plan->body != Body::peer_two_shot : switched && a.receive_stride != 0;
        const size_t staging = switched                ? memory.multicast().object.bytes()
                               : memory.fabric().works ? memory.fabric().layout.staging_bytes
                                                       : memory.layout().staging_bytes;
        a.tile_bytes = staging / 2 / size_t(parted ? gpu_.layout.ranks : 1) / 64 * 64;
    }
    fresh->send_in_place = in != Held::nothing;
    fresh->receive_in_place = out != Held::nothing && plan->body == Body::peer_two_shot;
    if (steps) gpu_.domain->memory().bind_program(a, gpu_.layout.steps[size_t(plan->steps)].program(operation.root));
    a.exports_buffers =
        switched ? gpu_.domain->switched_windows() != nullptr : plan->staged() && gpu_.exports_buffers && !a.scaled;
    gpu_.known.add(plan->operation);
    if (gpu_.rank == 0)
        WEFT_LOG_RANK(gpu_.rank, info, algo, "{}: {}{}", plan->operation.text(), plan->text(),
                      plan->staged() ? fmt::format(", in tiles of {} bytes unless in place", a.tile_bytes) : "");
    return plans_.insert(PlanKey(called, preference), std::move(fresh));
}

Status DeviceCollectives::prepare(const DeviceCall& call) {
    WEFT_TRY(launcher_.take_stream(call.stream));
    // Only collectives are counted: other calls are not the same on all ranks.
    if (gpu_.sharing) WEFT_TRY(launcher_.claim(call.stream));
    auto plan = plan_of(call);
    if (!plan) return plan.take_status();
    prepared_ = *plan;
    return ok();
}

Result<PreparedLaunch*> DeviceCollectives::plan_of(const DeviceCall& call) {
    PreparedLaunch* const known = plans_.find(PlanKey(call.operation, call.settings.preference));
    if (known) [[likely]]
        return known;
    return plan(call.operation, call.settings.preference);
}

// Exports both addresses or none: a peer that finds one uses both. An address that a peer does not need is never read.
void DeviceCollectives::export_buffers(PreparedLaunch& it, const DeviceCall& call) {
    if (launcher_.registers_captured()) [[unlikely]] {
        if (it.send_in_place) launcher_.register_captured(call.send, it.send_bytes);
        if (it.receive_in_place) launcher_.register_captured(call.receive, it.receive_bytes);
    }
    KernelArguments& a = it.arguments;
    std::byte *send[ranks_max], *receive[ranks_max];
    std::fill(std::begin(send), std::end(send), a.outputs[gpu_.rank]);
    std::fill(std::begin(receive), std::end(receive), a.outputs[gpu_.rank]);
    const bool all =
        (!it.send_in_place || gpu_.buffer_registry->find(call.send, it.send_bytes, call.mapped, send)) &&
        (!it.receive_in_place || gpu_.buffer_registry->find(call.receive, it.receive_bytes, call.mapped, receive));
    if (all) WEFT_LOG_RANK(gpu_.rank, trace, coll, "offers its buffers of launch {} in place", launcher_.launches());
    for (int peer = 0; peer < gpu_.layout.ranks; ++peer) {
        a.exported_send[peer] = all ? send[peer] : nullptr;
        a.exported_receive[peer] = all ? receive[peer] : nullptr;
    }
}

// All ranks do so for the same calls, whether their buffers are suitable or not.
void DeviceCollectives::register_captured(const DeviceCall& call) {
    if (!launcher_.registers_switched()) [[likely]]
        return;
    const PreparedLaunch& it = *prepared_;
    const KernelArguments& a = it.arguments;
    if (it.plan.body != Body::multicast || !a.exports_buffers || a.bytes % multicast_access != 0) return;
    const uint64_t number = gpu_.domain->switched_buffers()->number_call(launcher_.capture_id());
    const auto add = [&](uint64_t its_number, const void* address, size_t bytes) {
        if (reinterpret_cast<uintptr_t>(address) % multicast_access == 0 &&
            gpu_.domain->switched_windows()->find(address, bytes).token == 0)
            launcher_.register_switched(its_number, address, bytes);
    };
    if (a.reduces) add(number, call.send, it.send_bytes);
    if (!scatters(a)) add(number + 1, call.receive, it.receive_bytes);
    gpu_.domain->switched_buffers()->pass(number + 1);
}

// Exports the places of the call's buffers in windows or registered buffers behind the switch, or nothing. Sums are loaded
// from all ranks' send buffers. All but reduce-scatters are stored into all ranks' receive buffers.
void DeviceCollectives::export_places(const PreparedLaunch& it, KernelArguments& a) const {
    const auto find = [&](const void* address, size_t bytes) -> cuda::SwitchedMemory {
        if (a.bytes % multicast_access != 0 || reinterpret_cast<uintptr_t>(address) % multicast_access != 0) return {};
        const cuda::SwitchedMemory in_window = gpu_.domain->switched_windows()->find(address, bytes);
        return in_window.token != 0
                   ? in_window
                   : gpu_.domain->switched_buffers()->find(address, bytes, launcher_.registers_switched());
    };
    const auto send = find(a.send, it.send_bytes), receive = find(a.receive, it.receive_bytes);
    a.switched_send = send.address;
    a.switched_receive = receive.address;
    // The buffer that the switch does not access may be anywhere: the other one's place stands in for it.
    const uint64_t first = a.reduces ? send.token : receive.token, second = scatters(a) ? send.token : receive.token;
    const bool all = first != 0 && second != 0;
    std::fill(std::begin(a.exported_send), std::end(a.exported_send),
              reinterpret_cast<const std::byte*>(all ? first : 0));
    std::fill(std::begin(a.exported_receive), std::end(a.exported_receive),
              reinterpret_cast<std::byte*>(all ? second : 0));
    if (all)
        WEFT_LOG_RANK(gpu_.rank, trace, coll, "offers its memory behind the switch for launch {}",
                      launcher_.launches());
}

Status DeviceCollectives::launch(const DeviceCall& call) {
    PreparedLaunch& it = *prepared_;
    KernelArguments& a = it.arguments;
    if (it.of_tokens) {
        gpu_.domain->memory().bind_tokens(a);
    } else {
        a.send = static_cast<const std::byte*>(call.send) - it.send_begins;
        a.receive = static_cast<std::byte*>(call.receive) - it.receive_begins;
    }
    a.launch = launcher_.next_launch();
    a.timeout_ns = launcher_.timeout_of(call.settings);
    if (a.exports_buffers) it.plan.body == Body::multicast ? export_places(it, a) : export_buffers(it, call);
    a.scalar_pointer = a.scaled && call.scalar_on_device ? call.scalar : nullptr;
    if (a.scaled && !a.scalar_pointer) __builtin_memcpy(&a.scalar, call.scalar, datatype_bytes[call.operation.type]);
    return launcher_.in_order(call.stream, call.settings, [&](std::optional<int> priority) {
        LaunchShape shape = it.shape;
        shape.priority = priority;
        return it.plan.steps >= 0 ? launcher_.enqueue_served(*it.kernel, shape, call.stream, a)
                                  : launcher_.enqueue_last(*it.kernel, shape, call.stream, a);
    });
}

// Not if ranks share a device: launches are counted then, to find ranks that share a stream.
bool DeviceCollectives::joins() const { return gpu_.domain && !gpu_.sharing && has_fused_kernels(gpu_.layout); }

Status DeviceCollectives::prepare_coalesced(std::span<const DeviceCall> calls) {
    WEFT_TRY(launcher_.take_stream(calls[0].stream));
    coalesced_.clear();
    // All plans are made before one is kept, because a full cache is emptied.
    for (const DeviceCall& call : calls)
        if (auto plan = plan_of(call); !plan) return plan.take_status();
    for (const DeviceCall& call : calls) {
        auto plan = plan_of(call);
        if (!plan) return plan.take_status();
        // The kernel computes the blocks of each call from its bytes alone.
        if ((*plan)->plan.body != Body::packet_one_shot || layout_for(call.settings.preference).blocks_min > 1)
            return fail(error::gpu_not_served, "{} uses a kernel that executes only one call", call.operation.text());
        coalesced_.push_back(*plan);
    }
    return ok();
}

Status DeviceCollectives::launch_coalesced(std::span<const DeviceCall> calls) {
    PreparedLaunch& first = *coalesced_[0];
    std::vector<MessageItem>& batched = coalesced_items_;
    batched.clear();
    LaunchShape shape = first.shape;
    for (size_t i = 1; i < calls.size(); ++i) {
        const KernelArguments& its = coalesced_[i]->arguments;
        batched.push_back({static_cast<std::byte*>(calls[i].receive), static_cast<const std::byte*>(calls[i].send),
                           its.bytes, its.fingerprint});
        shape.blocks = std::max(shape.blocks, coalesced_[i]->shape.blocks);
    }
    void* const stream = calls[0].stream;
    return launcher_.in_order(stream, calls[0].settings, [&](std::optional<int> priority) -> Status {
        shape.priority = priority;
        WEFT_TRY(table_.store(batched, stream, priority));
        KernelArguments a = first.arguments;
        a.send = static_cast<const std::byte*>(calls[0].send);
        a.receive = static_cast<std::byte*>(calls[0].receive);
        a.launch = launcher_.next_launch();
        a.timeout_ns = launcher_.timeout_of(calls[0].settings);
        a.batched = table_.table();
        a.batched_count = int32_t(batched.size());
        return launcher_.enqueue_last(*first.kernel, shape, stream, a);
    });
}

}  // namespace weft::internal
