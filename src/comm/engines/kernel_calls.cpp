#include "src/comm/engines/kernel_calls.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/comm/engines/uneven_collectives.hpp"

namespace weft::internal {

DeviceCall device_call(const Call& call, const CollectiveCall& collective) {
    Operation operation = collective.operation;
    operation.space = Space::device;
    return {operation,    collective.send, collective.receive, collective.operand.data,
            call.stream,  call.mapped,     call.send_mapped,   collective.operand.on_device,
            call.settings};
}

Begun KernelCalls::not_prepared(Status failure) {
    failure_ = std::move(failure);
    return failure_.code() == weftUnhandledCudaError ? Begun::failed : Begun::refused;
}

Begun KernelCalls::launched(Status launch) {
    failure_ = std::move(launch);
    return failure_ ? Begun::yes : Begun::failed;
}

Begun KernelCalls::begin(const Call& call, const CollectiveCall& collective) {
    const DeviceCall device = device_call(call, collective);
    if (Status prepared = context_.device->collectives().prepare(device); !prepared)
        return not_prepared(std::move(prepared));
    // Before the launch: a kernel may fail at once, and its report names the call in our row.
    GpuCollectives& collectives = context_.device->collectives();
    context_.row().position.enter(++context_.sequence, collectives.prepared());
    collectives.register_captured(device);
    if (collectives.awaits_switch()) [[unlikely]]
        return awaiting_ = device, Begun::yes;
    return launched(collectives.launch(device));
}

// This thread may have to make the call of another rank.
Progress KernelCalls::launch_awaiting() {
    GpuCollectives& collectives = context_.device->collectives();
    if (collectives.awaits_switch()) return usleep(100), Progress::moved;
    failure_ = collectives.launch(*awaiting_);
    awaiting_.reset();
    return failure_ ? Progress::done : Progress::failed;
}

Begun KernelCalls::begin_coalesced(std::span<const Call> calls) {
    std::vector<DeviceCall> device;
    for (const Call& call : calls) device.push_back(device_call(call, std::get<CollectiveCall>(call.kind)));
    if (Status prepared = context_.device->collectives().prepare_coalesced(device); !prepared)
        return not_prepared(std::move(prepared));
    for (size_t i = 0; i < calls.size(); ++i)
        context_.row().position.enter(++context_.sequence, context_.device->collectives().prepared_coalesced(i));
    return launched(context_.device->collectives().launch_coalesced(device));
}

Begun KernelCalls::begin(const Call& call, const UnevenCall& collective) {
    const Operation& operation = collective.operation;
    if (operation.collective == Collective::reduce_scatter_v) return launch_reductions(call, collective);
    const auto type = weftDataType_t(operation.type);
    if (collective.peer_buffers->counts.sent)
        return launch_messages(
            call, collective,
            context_.device->messages().prepare(CountedMessages{&collective.peer_buffers->counts, collective.send,
                                                                collective.receive, type, call.mapped},
                                                call.stream));
    messages_.clear();
    const auto add = [&](const std::vector<PeerBuffer>& parts, bool outgoing) {
        for (const PeerBuffer& part : parts)
            messages_.push_back(
                {part.peer, outgoing, part.data, part.count, type, caller_for(operation.collective), call.mapped});
    };
    add(collective.peer_buffers->sends, true);
    add(collective.peer_buffers->receives, false);
    return launch_messages(call, collective, context_.device->messages().prepare(messages_, call.stream));
}

Begun KernelCalls::launch_messages(const Call& call, const UnevenCall& collective, Status prepared) {
    if (!prepared) return not_prepared(std::move(prepared));
    Operation operation = collective.operation;
    operation.space = Space::device;
    context_.row().position.enter(++context_.sequence, operation);
    return launched(context_.device->messages().launch(call.stream, call.settings));
}

// A reduce-scatter of uneven parts is one reduce per rank. The kernels combine in rank order, as the host does.
Begun KernelCalls::launch_reductions(const Call& call, const UnevenCall& collective) {
    const auto& sends = collective.peer_buffers->sends;
    bool any = false;
    for (int root = 0; root < context_.ranks(); ++root) {
        const PeerBuffer& part =
            *std::find_if(sends.begin(), sends.end(), [&](const PeerBuffer& one) { return one.peer == root; });
        if (part.count == 0) continue;
        CollectiveCall reduce{collective.operation, part.data, nullptr, collective.operand};
        reduce.operation.collective = Collective::reduce;
        reduce.operation.root = root;
        reduce.operation.count = part.count;
        if (root == context_.rank) reduce.receive = collective.peer_buffers->receives[0].data;
        DeviceCall device = device_call(call, reduce);
        device.settings.preference = 0;  // the user's preference is for calls of equal parts
        if (Status prepared = context_.device->collectives().prepare(device); !prepared) {
            const Begun begun = not_prepared(std::move(prepared));
            return any ? Begun::failed : begun;
        }
        context_.row().position.enter(++context_.sequence, context_.device->collectives().prepared());
        any = true;
        if (const Begun begun = launched(context_.device->collectives().launch(device)); begun != Begun::yes)
            return begun;
    }
    return Begun::yes;
}

// Like a message, a one-sided call has no sequence number.
Begun KernelCalls::begin(const Call& call, const OneSidedCall& access) {
    const DeviceAccess device{access, call.stream, call.settings};
    if (Status prepared = context_.device->windows().prepare(device); !prepared) {
        const Begun begun = not_prepared(std::move(prepared));
        return failure_.code() == weftRemoteError ? Begun::failed : begun;
    }
    return launched(context_.device->windows().launch(device));
}

Begun KernelCalls::begin_messages(std::span<const Call> messages) {
    messages_.clear();
    const Call* first = nullptr;
    CallSettings settings;
    for (const Call& call : messages) {
        if (call.space == Space::host) continue;
        if (!first) settings = call.settings;
        if (!first) first = &call;
        settings.timeout_ms = context_.earlier(settings.timeout_ms, call.settings.timeout_ms);
        if (call.stream != first->stream) {
            failure_ = fail(error::group_streams,
                            "messages of one group on device memory must go to one stream, because one kernel moves "
                            "them all");
            return Begun::refused;
        }
        const auto& message = std::get<MessageCall>(call.kind);
        messages_.push_back(
            {message.peer, message.outgoing, message.data, message.count, message.type, message.by, call.mapped});
    }
    if (!first) return Begun::yes;
    if (Status prepared = context_.device->messages().prepare(messages_, first->stream); !prepared)
        return not_prepared(std::move(prepared));
    return launched(context_.device->messages().launch(first->stream, settings));
}

}  // namespace weft::internal
