#include "tests/device/calls.hpp"

#include <algorithm>

namespace weft::internal::test {

namespace {

constexpr size_t margin = 32;
constexpr std::byte mark{0xa5};

}  // namespace

Buffers::Buffers(const Ranks& ranks, const Call& call, DeviceBuffer::Kind kind) : kind_(kind), first_(ranks.first) {
    for (int own = 0; own < ranks.count(); ++own) {
        const int rank = first_ + own;
        const Bytes& input = call.inputs[size_t(rank)];
        const Held in = call.input_held(rank), out = call.output_held(rank);
        const size_t received = call.bytes() * size_t(parts_held(out, call.parts()));
        RankBuffers place{};
        place.in_place = !call.in_place.empty() && call.in_place[size_t(rank)] && in != Held::nothing &&
                         out != Held::nothing && !facts_of(call.collective()).transposes;
        // In place: where the shorter of the two lies in the longer.
        if (place.in_place && out == Held::all) place.send_offset = first_held(in, rank, call.bytes());
        if (place.in_place && in == Held::all) place.receive_offset = first_held(out, rank, call.bytes());
        place.receive_bytes = received;
        place.first_bytes = place.in_place ? std::max(input.size(), received) : input.size();
        place.second_bytes = place.in_place ? 0 : received;
        const auto make = [&](size_t bytes, size_t offset) {
            auto buffer = std::make_unique<DeviceBuffer>(ranks.placing[size_t(own)], bytes + margin, offset, kind);
            const Bytes marks(bytes + margin, mark);
            buffer->write(marks.data(), marks.size());
            return buffer;
        };
        place.first = make(place.first_bytes, call.send_offset);
        place.second = make(place.second_bytes, call.receive_offset);
        Bytes content(place.first_bytes, mark);
        std::copy(input.begin(), input.end(), content.begin() + ptrdiff_t(place.send_offset));
        place.first->write(content.data(), content.size());
        auto* const first = static_cast<std::byte*>(place.first->data());
        if (in != Held::nothing) place.send = first + place.send_offset;
        if (out != Held::nothing) place.receive = place.in_place ? first + place.receive_offset : place.second->data();
        rank_buffers_.push_back(std::move(place));
    }
}

std::vector<Bytes> Buffers::results() const {
    std::vector<Bytes> all;
    for (const RankBuffers& place : rank_buffers_) {
        const DeviceBuffer& buffer = place.in_place ? *place.first : *place.second;
        const Bytes content = buffer.read(place.receive_offset + place.receive_bytes);
        all.emplace_back(content.begin() + ptrdiff_t(place.receive_offset), content.end());
    }
    return all;
}

void Buffers::forget_results(const Ranks& ranks) const {
    for (size_t own = 0; own < rank_buffers_.size(); ++own) {
        const RankBuffers& place = rank_buffers_[own];
        if (place.in_place || place.receive_bytes == 0) continue;
        const Current current(ranks.placing[own]);
        demand(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(place.second->data()), 0x5a, place.receive_bytes,
                               ranks.streams[own]->handle));
    }
}

int Buffers::spoilt(const Call& call) const {
    for (size_t own = 0; own < rank_buffers_.size(); ++own) {
        const size_t rank = size_t(first_) + own;
        const RankBuffers& place = rank_buffers_[own];
        const Bytes first = place.first->read(place.first_bytes + margin),
                    second = place.second->read(place.second_bytes + margin);
        const auto marked = [](const Bytes& bytes, size_t from) {
            return std::all_of(bytes.begin() + ptrdiff_t(from), bytes.end(), [](std::byte one) { return one == mark; });
        };
        const bool kept =
            place.in_place || std::equal(call.inputs[rank].begin(), call.inputs[rank].end(), first.begin());
        if (!kept || !marked(first, place.first_bytes) || !marked(second, place.second_bytes)) return int(rank);
    }
    return -1;
}

namespace {

void sum(const void* left, const void* right, void* result, size_t count, weftDataType_t type, void*) {
    const void* const sources[] = {left, right};
    find_cpu_kernels("plain")->reduce[type][weftSum]({.destinations = &result,
                                                      .destination_count = 1,
                                                      .sources = sources,
                                                      .source_count = 2,
                                                      .count = count,
                                                      .average_of = 0,
                                                      .stores = Stores::ordinary});
}

}  // namespace

Reductions::Reductions(const Ranks& ranks, int op, weftDataType_t type, const std::vector<Bytes>& scalars,
                       bool by_function)
    : ranks_(ranks), made_(op == premul || by_function), ops_(ranks.comms.size(), weftRedOp_t(op)) {
    REQUIRE((!by_function || op == weftSum));
    for (size_t own = 0; own < ops_.size() && by_function; ++own)
        demand(weftRedOpCreate(&ops_[own], sum, nullptr, type, 1, ranks.comms[own]));
    for (size_t own = 0; own < ops_.size() && op == premul; ++own) {
        Bytes scalar = scalars[size_t(ranks.first) + own];
        demand(weftRedOpCreatePreMulSum(&ops_[own], scalar.data(), type, weftScalarHostImmediate, ranks.comms[own]));
    }
}
Reductions::~Reductions() {
    for (size_t own = 0; own < ops_.size() && made_; ++own) (void)weftRedOpDestroy(ops_[own], ranks_.comms[own]);
}

void enqueue(const Ranks& ranks, const Call& call, const Buffers& buffers) {
    const Reductions reductions(ranks, facts_of(call.collective()).reduces ? call.op : weftSum, call.type, call.scalars,
                                call.by_function && buffers.on_host());
    const size_t count = call.operation().count;
    const int root = call.root;
    ranks.group([&](int rank) {
        const void* const send = buffers.send(rank);
        void* const receive = buffers.receive(rank);
        weftComm_t comm = ranks.comms[size_t(rank)];
        const weftStream_t stream = buffers.on_host() ? nullptr : ranks.streams[size_t(rank)]->weft();
        const weftDataType_t type = call.type;
        const weftRedOp_t op = reductions.of(rank);
        switch (call.collective()) {
            case Collective::all_reduce: return weftAllReduce(send, receive, count, type, op, comm, stream);
            case Collective::broadcast: return weftBroadcast(send, receive, count, type, root, comm, stream);
            case Collective::reduce: return weftReduce(send, receive, count, type, op, root, comm, stream);
            case Collective::all_gather: return weftAllGather(send, receive, count, type, comm, stream);
            case Collective::reduce_scatter: return weftReduceScatter(send, receive, count, type, op, comm, stream);
            case Collective::all_to_all: return weftAlltoAll(send, receive, count, type, comm, stream);
            case Collective::gather: return weftGather(send, receive, count, type, root, comm, stream);
            case Collective::scatter: return weftScatter(send, receive, count, type, root, comm, stream);
            default: return weftInvalidArgument;
        }
    });
}

}  // namespace weft::internal::test
