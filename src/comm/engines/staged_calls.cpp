#include "src/comm/engines/staged_calls.hpp"

#include <cstring>

#include "src/gpu/engine/device_failure.hpp"

namespace weft::internal {

namespace {

using CopiedSpans = std::vector<DeviceSpan>;

CopiedSpans spans_of(const std::vector<PeerBuffer>& peer_buffers, size_t element) {
    CopiedSpans spans;
    for (const PeerBuffer& peer_buffer : peer_buffers) spans.push_back({peer_buffer.data, peer_buffer.count * element});
    return spans;
}

}  // namespace

// Only a refusal before the call leaves the communicator as it was.
Begun StagedCalls::copied(Status copy) {
    failure_ = std::move(copy);
    if (failure_) return Begun::yes;
    const bool refused = failure_.code() == weftInvalidArgument || failure_.code() == weftInvalidUsage;
    return refused ? Begun::refused : Begun::failed;
}

// Counts in device memory, which normally kernels read.
Begun StagedCalls::read_counts(const Call& call, const UnevenCall& collective) {
    const CountsOnDevice& counts = collective.peer_buffers->counts;
    const size_t n = size_t(context_.ranks()), element = datatype_bytes[collective.operation.type];
    GpuStaging& staging = context_.device->staging();
    std::vector<uint64_t> tables[4];
    const uint64_t* const from[4] = {counts.sent, counts.send_places, counts.received, counts.receive_places};
    CopiedSpans reads;
    for (const uint64_t* table : from) reads.push_back({table, n * sizeof(uint64_t)});
    if (Status copy = staging.copy_in(GpuStaging::Copied::call, reads, {}, call.stream); !copy)
        return copied(std::move(copy));
    for (int table = 0; table < 4; ++table) {
        const auto* at = static_cast<const uint64_t*>(staging.at(GpuStaging::Copied::call, from[table]));
        tables[table].assign(at, at + n);
    }
    const cuda::MessageCounts read{.sent = tables[0].data(),
                                   .send_places = tables[1].data(),
                                   .received = tables[2].data(),
                                   .receive_places = tables[3].data(),
                                   .send = static_cast<std::byte*>(const_cast<void*>(collective.send)),
                                   .receive = static_cast<std::byte*>(collective.receive),
                                   .send_room = counts.send_room,
                                   .receive_room = counts.receive_room,
                                   .zero_copy_least = 0,
                                   .element = uint32_t(element),
                                   .mark = 0,
                                   .remote_sends = {}};
    const cuda::CountFaults faults(read, context_.rank, context_.ranks());
    cuda::CountFault fault{};
    for (int pair = 0; pair < faults.pairs(); ++pair)
        if (faults.find(pair, fault)) {
            failure_ = explain_counts(context_.rank, fault);
            return Begun::failed;  // the other ranks are already in the call
        }
    const auto add = [&](std::vector<PeerBuffer>& to, std::byte* buffer, const std::vector<uint64_t>& count,
                         const std::vector<uint64_t>& place) {
        // The displacement of an empty part is not used.
        for (size_t peer = 0; peer < n; ++peer)
            to.push_back({int(peer), count[peer] == 0 ? buffer : buffer + place[peer] * element, count[peer]});
    };
    add(peer_buffers_.sends, read.send, tables[0], tables[1]);
    add(peer_buffers_.receives, read.receive, tables[2], tables[3]);
    return Begun::yes;
}

Begun StagedCalls::copy_in(Call& call) {
    GpuStaging& staging = context_.device->staging();
    CopiedSpans reads, writes;
    peer_buffers_ = {};
    Operand* operand = nullptr;
    const void** send = nullptr;
    void** receive = nullptr;
    size_t element = 0;
    if (auto* uneven = std::get_if<UnevenCall>(&call.kind)) {
        element = datatype_bytes[uneven->operation.type];
        operand = &uneven->operand;
        send = &uneven->send;
        receive = &uneven->receive;
        if (uneven->peer_buffers->counts.sent) {
            if (const Begun read = read_counts(call, *uneven); read != Begun::yes) return read;
        } else {
            peer_buffers_ = *uneven->peer_buffers;
        }
        reads = spans_of(peer_buffers_.sends, element);
        writes = spans_of(peer_buffers_.receives, element);
        uneven->peer_buffers = &peer_buffers_;
    } else {
        auto& collective = std::get<CollectiveCall>(call.kind);
        const Operation& operation = collective.operation;
        element = datatype_bytes[operation.type];
        operand = &collective.operand;
        send = &collective.send;
        receive = &collective.receive;
        if (operation.collective != Collective::barrier) {  // a barrier's tokens are in host memory
            const int parts = parts_of(operation.collective, context_.ranks());
            const auto held = [&](const void* buffer, Held held) {
                return DeviceSpan{buffer, operation.bytes() * size_t(parts_held(held, parts))};
            };
            reads.push_back(held(*send, input_of(operation.collective, context_.rank, operation.root)));
            writes.push_back(held(*receive, output_of(operation.collective, context_.rank, operation.root)));
        }
    }
    if (operand->on_device) reads.push_back({operand->data, element});
    if (Status copy = staging.copy_in(GpuStaging::Copied::call, reads, writes, call.stream); !copy)
        return copied(std::move(copy));
    const auto move = [&](const void* from) { return staging.at(GpuStaging::Copied::call, from); };
    for (auto* peer_buffers : {&peer_buffers_.sends, &peer_buffers_.receives})
        for (PeerBuffer& peer_buffer : *peer_buffers) peer_buffer.data = move(peer_buffer.data);
    *send = move(*send);
    *receive = move(*receive);
    if (operand->on_device) operand->data = move(operand->data);
    operand->on_device = call.copied = false;
    call.stream = nullptr;
    return Begun::yes;
}

Begun StagedCalls::copy_in(std::vector<Call>& messages) {
    CopiedSpans reads, writes;
    const Call* first = nullptr;
    for (const Call& call : messages) {
        if (!call.copied) continue;
        if (!first) first = &call;
        if (call.stream != first->stream)
            return copied(fail(error::group_streams, "messages of one group on device memory must go to one stream"));
        const auto& message = std::get<MessageCall>(call.kind);
        (message.outgoing ? reads : writes).push_back({message.data, message.bytes()});
    }
    if (Status copy = context_.device->staging().copy_in(GpuStaging::Copied::messages, reads, writes, first->stream);
        !copy)
        return copied(std::move(copy));
    for (Call& call : messages)
        if (call.copied) {
            auto& message = std::get<MessageCall>(call.kind);
            message.data = context_.device->staging().at(GpuStaging::Copied::messages, message.data);
        }
    return Begun::yes;
}

}  // namespace weft::internal
