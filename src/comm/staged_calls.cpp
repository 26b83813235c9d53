// staged_calls.cpp: calls on device memory that no kernel of Weft serves.
// The buffers are copied to the host, the call runs on host memory, and the results are copied back.
// docs/design/gpu-domain.md.
#include <cstring>

#include "src/comm/communicator.hpp"
#include "src/gpu/engine/device_failure.hpp"

namespace weft::internal {

namespace {

using CopiedSpans = std::vector<DeviceSpan>;

CopiedSpans spans_of(const std::vector<PeerBuffer>& peer_buffers, size_t element) {
    CopiedSpans spans;
    for (const PeerBuffer& peer_buffer : peer_buffers) spans.push_back({peer_buffer.data, peer_buffer.count * element});
    return spans;
}

// Only a refusal before the call leaves the communicator as it was.
bool refused(const Status& status) { return status.code() == weftInvalidArgument || status.code() == weftInvalidUsage; }

}  // namespace

// Counts in device memory, which normally kernels read.
Status Communicator::read_counts(const Call& call, PeerBuffers& peer_buffers) {
    const CountsOnDevice& counts = call.peer_buffers->counts;
    const size_t n = size_t(ranks()), element = datatype_bytes[call.operation.type];
    std::vector<uint64_t> tables[4];
    const uint64_t* const from[4] = {counts.sent, counts.send_places, counts.received, counts.receive_places};
    CopiedSpans reads;
    for (const uint64_t* table : from) reads.push_back({table, n * sizeof(uint64_t)});
    WEFT_TRY(device_->staging().copy_in(GpuStaging::Copied::call, reads, {}, call.stream));
    for (int table = 0; table < 4; ++table) {
        const auto* at = static_cast<const uint64_t*>(device_->staging().at(GpuStaging::Copied::call, from[table]));
        tables[table].assign(at, at + n);
    }
    const cuda::MessageCounts read{.sent = tables[0].data(),
                                   .send_places = tables[1].data(),
                                   .received = tables[2].data(),
                                   .receive_places = tables[3].data(),
                                   .send = static_cast<std::byte*>(const_cast<void*>(call.send)),
                                   .receive = static_cast<std::byte*>(call.receive),
                                   .send_room = counts.send_room,
                                   .receive_room = counts.receive_room,
                                   .zero_copy_least = 0,
                                   .element = uint32_t(element),
                                   .mark = 0,
                                   .remote_sends = {}};
    const cuda::CountFaults faults(read, rank_, ranks());
    cuda::CountFault fault{};
    // The other ranks are already in the call.
    for (int pair = 0; pair < faults.pairs(); ++pair)
        if (faults.find(pair, fault)) return die(explain_counts(rank_, fault));
    const auto add = [&](std::vector<PeerBuffer>& to, std::byte* buffer, const std::vector<uint64_t>& count,
                         const std::vector<uint64_t>& place) {
        // The displacement of an empty part is not used.
        for (size_t peer = 0; peer < n; ++peer)
            to.push_back({int(peer), count[peer] == 0 ? buffer : buffer + place[peer] * element, count[peer]});
    };
    add(peer_buffers.sends, read.send, tables[0], tables[1]);
    add(peer_buffers.receives, read.receive, tables[2], tables[3]);
    return ok();
}

// Copies the call's buffers to the host and points `on_host` at the copies.
Status Communicator::copy_in(Call& on_host) {
    const Operation& operation = on_host.operation;
    const size_t element = datatype_bytes[operation.type];
    CopiedSpans reads, writes;
    copied_peer_buffers_ = {};
    if (uneven(operation.collective)) {
        if (on_host.peer_buffers->counts.sent)
            WEFT_TRY(read_counts(on_host, copied_peer_buffers_));
        else
            copied_peer_buffers_ = *on_host.peer_buffers;
        reads = spans_of(copied_peer_buffers_.sends, element);
        writes = spans_of(copied_peer_buffers_.receives, element);
        on_host.peer_buffers = &copied_peer_buffers_;
    } else if (operation.collective != Collective::barrier) {  // a barrier's tokens are in host memory
        const int parts = parts_of(operation.collective, ranks());
        const auto held = [&](const void* buffer, Held held) {
            return DeviceSpan{buffer, operation.bytes() * size_t(parts_held(held, parts))};
        };
        reads.push_back(held(on_host.send, input_of(operation.collective, rank_, operation.root)));
        writes.push_back(held(on_host.receive, output_of(operation.collective, rank_, operation.root)));
    }
    if (on_host.operand_on_device) reads.push_back({on_host.operand, element});
    WEFT_TRY(device_->staging().copy_in(GpuStaging::Copied::call, reads, writes, on_host.stream));
    const auto move = [&](const void* from) { return device_->staging().at(GpuStaging::Copied::call, from); };
    for (auto* peer_buffers : {&copied_peer_buffers_.sends, &copied_peer_buffers_.receives})
        for (PeerBuffer& peer_buffer : *peer_buffers) peer_buffer.data = move(peer_buffer.data);
    on_host.send = move(on_host.send);
    on_host.receive = move(on_host.receive);
    if (on_host.operand_on_device) on_host.operand = move(on_host.operand);
    on_host.operand_on_device = on_host.copied = false;
    on_host.stream = nullptr;
    return ok();
}

Status Communicator::begin_copied(const Call& call) {
    Call on_host = call;
    if (Status copied = copy_in(on_host); !copied) return refused(copied) ? std::move(copied) : die(std::move(copied));
    copying_ = true;
    Status begun = begin(on_host);
    if (!begun) copying_ = false;
    return begun;
}

Status Communicator::end_copied() {
    copying_ = false;
    Status copied = device_->staging().copy_out(GpuStaging::Copied::call);
    return copied ? std::move(copied) : die(std::move(copied));
}

Status Communicator::begin_copied_messages(std::vector<Call>& messages) {
    CopiedSpans reads, writes;
    const Call* first = nullptr;
    for (const Call& call : messages) {
        if (!call.copied) continue;
        if (!first) first = &call;
        if (call.stream != first->stream)
            return fail(error::group_streams, "messages of one group on device memory must go to one stream");
        const bool outgoing = call.operation.collective == Collective::send;
        (outgoing ? reads : writes).push_back({outgoing ? call.send : call.receive, call.operation.bytes()});
    }
    WEFT_TRY(usable());
    if (Status copied = device_->staging().copy_in(GpuStaging::Copied::messages, reads, writes, first->stream); !copied)
        return refused(copied) ? std::move(copied) : die(std::move(copied));
    for (Call& call : messages) {
        if (!call.copied) continue;
        call.send = device_->staging().at(GpuStaging::Copied::messages, call.send);
        call.receive = device_->staging().at(GpuStaging::Copied::messages, call.receive);
    }
    copying_messages_ = true;
    return ok();
}

Progress Communicator::end_copied_messages() {
    copying_messages_ = false;
    Status copied = device_->staging().copy_out(GpuStaging::Copied::messages);
    if (copied) return Progress::done;
    failure_ = die(std::move(copied));
    return Progress::failed;
}

}  // namespace weft::internal
