// uneven_test.cpp: collectives of uneven parts on device memory give what they give on host memory.
#include <algorithm>
#include <cstring>

#include "tests/device/ranks.hpp"

namespace weft::internal::test {

namespace {

constexpr std::byte untouched{0xa5};

std::vector<int> rank_counts() { return small() ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 5, 8}; }

// Uneven parts of all ranks: counts[p][q] elements from rank p to rank q; with room between them.
struct Uneven {
    std::vector<std::vector<size_t>> counts;
    std::vector<std::vector<size_t>> send_places, receive_places;
    std::vector<size_t> sent, received;  // elements of each rank's buffer

    Uneven(int n, std::mt19937& random) {
        // Now and then as many as are read where they lie.
        const auto some = [&]() -> size_t {
            const auto kind = random() % 32;
            return kind < 8 ? 0 : kind < 12 ? random() % 30'000 : kind < 13 ? 65'536 + random() % 3000 : random() % 90;
        };
        for (int p = 0; p < n; ++p) {
            counts.emplace_back();
            for (int q = 0; q < n; ++q) counts.back().push_back(some());
        }
        lay();
    }
    std::vector<size_t> to(size_t rank) const {
        std::vector<size_t> column;
        for (const auto& row : counts) column.push_back(row[rank]);
        return column;
    }
    void lay() {
        send_places.clear(), receive_places.clear(), sent.clear(), received.clear();
        const size_t n = counts.size();
        for (size_t p = 0; p < n; ++p) {
            size_t sends = 3, receives = 1;
            std::vector<size_t> from, to;
            for (size_t q = 0; q < n; ++q) {
                from.push_back(sends), to.push_back(receives);
                sends += counts[p][q] + 2, receives += counts[q][p] + 1;
            }
            send_places.push_back(from), receive_places.push_back(to);
            sent.push_back(sends), received.push_back(receives);
        }
    }
};

enum class Kind { all_to_all, device_counts, gather, scatter, all_gather, reduce_scatter };

// A rank's counts of an all-to-all.
struct Counts {
    Counts(int device, const Uneven& parts, size_t rank)
        : sent(device, parts.counts[rank]),
          send_places(device, parts.send_places[rank]),
          received(device, parts.to(rank)),
          receive_places(device, parts.receive_places[rank]) {}
    void set(const Uneven& parts, size_t rank) const {
        sent.set(parts.counts[rank]), send_places.set(parts.send_places[rank]);
        received.set(parts.to(rank)), receive_places.set(parts.receive_places[rank]);
    }
    Numbers sent, send_places, received, receive_places;
};

// The same call on device memory and on host memory, which has tests of its own.
void compare_uneven(const Ranks& ranks, Kind kind, std::mt19937& random) {
    const int n = ranks.count(), root = int(random() % unsigned(n));
    Uneven parts(n, random);
    const auto type = kind == Kind::reduce_scatter  ? weftInt32
                      : kind != Kind::device_counts ? weftFloat32
                      : random() % 2 != 0           ? weftUint8
                                                    : weftFloat64;
    const size_t size = size_of(type);
    // Of some the driver does not know the end.
    const auto memory = [&] {
        return kind == Kind::device_counts ? DeviceBuffer::Kind(random() % 3) : DeviceBuffer::Kind::plain;
    };
    if (kind == Kind::all_gather || kind == Kind::gather)
        for (auto& row : parts.counts) row.assign(row.size(), row[0]);  // each gives all the same
    if (kind == Kind::reduce_scatter)
        for (auto& row : parts.counts) row = parts.counts[0];  // each gets the same from all
    parts.lay();
    std::vector<Bytes> inputs, outputs;
    std::vector<std::unique_ptr<DeviceBuffer>> sends, receives;
    for (size_t rank = 0; rank < size_t(n); ++rank) {
        inputs.push_back(reference::whole(type, parts.sent[rank], n, int(rank), random));
        outputs.emplace_back(parts.received[rank] * size, untouched);
        sends.push_back(std::make_unique<DeviceBuffer>(ranks.placing[rank], inputs.back().size(), 0, memory()));
        receives.push_back(std::make_unique<DeviceBuffer>(ranks.placing[rank], outputs.back().size(), 0, memory()));
        sends.back()->write(inputs.back().data(), inputs.back().size());
        receives.back()->write(outputs.back().data(), outputs.back().size());
    }
    std::vector<std::unique_ptr<Counts>> on_devices(static_cast<size_t>(n));
    if (kind == Kind::device_counts)
        for (size_t rank = 0; rank < size_t(n); ++rank)
            if (random() % 4 != 0) on_devices[rank] = std::make_unique<Counts>(ranks.placing[rank], parts, rank);
    const auto call = [&](int rank, const void* send, void* receive, weftStream_t stream) {
        const auto r = size_t(rank);
        weftComm_t comm = ranks.comms[r];
        const std::vector<size_t> to_us = parts.to(kind == Kind::gather ? size_t(root) : r);
        const auto &counts = parts.counts[r], &from = parts.send_places[r], &to = parts.receive_places[r];
        const bool is_root = rank == root;
        if (const Counts* there = stream ? on_devices[r].get() : nullptr)
            return weftAlltoAllvDeviceCounts(send, there->sent.data(), there->send_places.data(), receive,
                                             there->received.data(), there->receive_places.data(), type, comm, stream);
        switch (kind) {
            case Kind::device_counts:
            case Kind::all_to_all:
                return weftAlltoAllv(send, counts.data(), from.data(), receive, to_us.data(), to.data(), type, comm,
                                     stream);
            case Kind::gather:
                return weftGatherv(send, counts[size_t(root)], is_root ? receive : nullptr,
                                   is_root ? to_us.data() : nullptr, is_root ? to.data() : nullptr, type, root, comm,
                                   stream);
            case Kind::scatter:
                return weftScatterv(is_root ? send : nullptr, is_root ? counts.data() : nullptr,
                                    is_root ? from.data() : nullptr, receive, parts.counts[size_t(root)][r], type, root,
                                    comm, stream);
            case Kind::all_gather:
                return weftAllGatherv(send, counts[0], receive, to_us.data(), to.data(), type, comm, stream);
            default: return weftReduceScatterv(send, receive, counts.data(), type, weftSum, comm, stream);
        }
    };
    ranks.group([&](int rank) {
        return call(rank, sends[size_t(rank)]->data(), receives[size_t(rank)]->data(),
                    ranks.streams[size_t(rank)]->weft());
    });
    ranks.group(
        [&](int rank) { return call(rank, inputs[size_t(rank)].data(), outputs[size_t(rank)].data(), nullptr); });
    ranks.finish();
    ranks.check_healthy();
    for (size_t rank = 0; rank < size_t(n); ++rank) {
        if (receives[rank]->read(outputs[rank].size()) != outputs[rank])
            FAIL_CHECK("rank " << rank << " of " << n << ", kind " << int(kind) << ", root " << root);
        if (sends[rank]->read(inputs[rank].size()) != inputs[rank]) FAIL_CHECK("rank " << rank << "'s input changed");
    }
}

}  // namespace

TEST_CASE("collectives of uneven parts have the same results as on host memory", "[messages][copies]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const int n : rank_counts()) {
        const Ranks ranks(spread(n));
        for (int round = 0; round < (small() ? 2 : 5); ++round)
            for (const Kind kind : {Kind::all_to_all, Kind::device_counts, Kind::gather, Kind::scatter,
                                    Kind::all_gather, Kind::reduce_scatter})
                compare_uneven(ranks, kind, random);
    }
}

TEST_CASE("uneven parts of more ranks than know each other's words", "[messages]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const Ranks ranks(spread(small() ? 17 : 33));
    for (const Kind kind : {Kind::all_to_all, Kind::device_counts}) compare_uneven(ranks, kind, random);
}

namespace {

// All-to-all among three ranks whose counts are in device memory. A test may spoil its numbers and buffers.
struct Routing {
    static constexpr size_t n = 3;
    explicit Routing(const Uneven& first, size_t elements = 2000) : room(elements) {
        for (size_t rank = 0; rank < n; ++rank) {
            const int device = ranks.placing[rank];
            counts.push_back(std::make_unique<Counts>(device, first, rank));
            sends.push_back(std::make_unique<DeviceBuffer>(device, room * 4));
            receives.push_back(std::make_unique<DeviceBuffer>(device, room * 4));
        }
    }
    weftResult_t call(size_t rank, void* receive = nullptr) const {
        const Counts& c = *counts[rank];
        return weftAlltoAllvDeviceCounts(
            sends[rank]->data(), c.sent.data(), c.send_places.data(), receive ? receive : receives[rank]->data(),
            c.received.data(), c.receive_places.data(), weftInt32, ranks.comms[rank], ranks.streams[rank]->weft());
    }
    // Element i of what p sends q is 10000 p + 1000 q + i.
    void fill(const Uneven& parts) const {
        for (size_t p = 0; p < n; ++p) {
            std::vector<int32_t> values(room, -1);
            for (size_t q = 0; q < n; ++q)
                for (size_t i = 0; i < parts.counts[p][q]; ++i)
                    values[parts.send_places[p][q] + i] = int32_t(10'000 * p + 1000 * q + i);
            sends[p]->write(values.data(), room * 4);
            values.assign(room, -2);
            receives[p]->write(values.data(), room * 4);
        }
    }
    void check(const Uneven& parts) const {
        for (size_t q = 0; q < n; ++q) {
            std::vector<int32_t> expected(room, -2), got(room);
            for (size_t p = 0; p < n; ++p)
                for (size_t i = 0; i < parts.counts[p][q]; ++i)
                    expected[parts.receive_places[q][p] + i] = int32_t(10'000 * p + 1000 * q + i);
            const Bytes bytes = receives[q]->read(room * 4);
            memcpy(got.data(), bytes.data(), bytes.size());
            CHECK(got == expected);
        }
    }
    size_t room;
    Ranks ranks{spread(int(n))};
    std::vector<std::unique_ptr<Counts>> counts;
    std::vector<std::unique_ptr<DeviceBuffer>> sends, receives;
};

Uneven three_by_three(std::vector<std::vector<size_t>> counts) {
    std::mt19937 unused;
    Uneven parts(3, unused);
    parts.counts = std::move(counts);
    parts.lay();
    return parts;
}

}  // namespace

TEST_CASE("counts on devices are read anew by every replay of a graph", "[messages]") {
    const Uneven first = three_by_three({{1, 2, 3}, {0, 400, 6}, {7, 0, 0}}),
                 second = three_by_three({{0, 0, 0}, {0, 0, 0}, {0, 0, 900}}),
                 third = three_by_three({{9, 300, 0}, {1, 0, 5}, {0, 8, 2}});
    // In several pieces, and read where they lie.
    const Uneven long_ones = three_by_three({{9, 30'000, 70'000}, {66'000, 0, 5}, {20'000, 8, 80'000}});
    const Routing routing(first, 200'000);
    std::vector<CUgraphExec> graphs;
    for (size_t rank = 0; rank < Routing::n; ++rank) {
        const Current current(routing.ranks.placing[rank]);
        CUstream const stream = routing.ranks.streams[rank]->handle;
        demand(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        demand(routing.call(rank));
        CUgraph graph = nullptr;
        demand(cuStreamEndCapture(stream, &graph));
        demand(cuGraphInstantiateWithFlags(&graphs.emplace_back(), graph, 0));
        demand(cuGraphDestroy(graph));
    }
    for (const Uneven* parts : {&first, &second, &long_ones, &third, &long_ones, &second}) {
        routing.fill(*parts);
        for (size_t rank = 0; rank < Routing::n; ++rank) routing.counts[rank]->set(*parts, rank);
        for (size_t rank = 0; rank < Routing::n; ++rank) {
            const Current current(routing.ranks.placing[rank]);
            demand(cuGraphLaunch(graphs[rank], routing.ranks.streams[rank]->handle));
        }
        routing.ranks.finish();
        routing.check(*parts);
    }
    routing.ranks.check_healthy();
    for (CUgraphExec graph : graphs) demand(cuGraphExecDestroy(graph));
}

TEST_CASE("device counts that do not fit are errors on every rank, and no byte outside is written",
          "[messages][copies]") {
    const Uneven right = three_by_three({{1, 2, 3}, {0, 400, 6}, {7, 0, 0}});
    constexpr size_t whole = 2000, vast = size_t(1) << 63;
    struct {
        std::vector<size_t> sent, send_places, received, receive_places;  // rank 1's
        const char* text;
    } const cases[] = {
        {{0, 400, whole + 1},
         {0, 0, 0},
         {2, 400, 0},
         {0, 2, 0},
         "sendcounts[2] 2001 and sdispls[2] 0, but sendbuff has room for 2000"},
        {{0, 400, 6},
         {0, 0, whole - 5},
         {2, 400, 0},
         {0, 2, 0},
         "sendcounts[2] 6 and sdispls[2] 1995, but sendbuff has room for 2000"},
        {{0, 400, 6}, {0, 0, vast}, {2, 400, 0}, {0, 2, 0}, "sendcounts[2] 6 and sdispls[2] 9223372036854775808"},
        {{0, 400, vast}, {0, 0, 0}, {2, 400, 0}, {0, 2, 0}, "sendcounts[2] 9223372036854775808 and sdispls[2] 0"},
        {{0, 400, 6},
         {0, 0, 0},
         {2, 400, 0},
         {whole - 1, 2, 0},
         "recvcounts[0] 2 and rdispls[0] 1999, but recvbuff has room for 2000"},
        {{0, 400, 6}, {0, 0, 0}, {2, 399, 0}, {0, 2, 0}, "sendcounts[1] 400 and recvcounts[1] 399"},
        {{0, 400, 6},
         {0, 0, 0},
         {2, 400, 0},
         {0, 1, 0},
         "rank 1 called weftAlltoAllvDeviceCounts: recvbuff: the parts of ranks 0 and 1 overlap: 2 elements there, and "
         "the other begins 1 behind; displacements must leave each rank its recvcounts"},
        {{0, 400, 6},
         {0, 0, 0},
         {2, 400, 0},
         {399, 0, 0},
         "recvbuff: the parts of ranks 1 and 0 overlap: 400 elements there, and the other begins 399 behind"},
    };
    for (const auto& each : cases) {
        INFO(each.text);
        const Routing routing(right);
        routing.fill(right);
        const Counts& spoilt = *routing.counts[1];
        spoilt.sent.set(each.sent), spoilt.send_places.set(each.send_places);
        spoilt.received.set(each.received), spoilt.receive_places.set(each.receive_places);
        routing.ranks.failing_group(weftInvalidArgument, [&](int rank) { return routing.call(size_t(rank)); });
        routing.ranks.finish();
        for (int rank = 0; rank < 3; ++rank) {
            CHECK(routing.ranks.await_failure(rank) == weftInvalidArgument);
            CHECK_REFUSED(routing.call(size_t(rank)), routing.ranks.comms[size_t(rank)], "argument.counts", 1);
            CHECK_THAT(weftGetLastError(routing.ranks.comms[size_t(rank)]), Catch::Contains(each.text));
        }
        // Rank 1 has moved nothing, neither to itself nor to others.
        const size_t to_2 = right.receive_places[2][1];
        const Bytes at_2 = routing.receives[2]->read(whole * 4);
        CHECK(std::all_of(at_2.begin() + ptrdiff_t(to_2 * 4), at_2.begin() + ptrdiff_t((to_2 + 6) * 4),
                          [](std::byte one) { return one == std::byte{0xff} || one == std::byte{0xfe}; }));
        const Bytes got = routing.receives[1]->read(whole * 4);
        CHECK(std::all_of(got.begin(), got.end(),
                          [](std::byte one) { return one == std::byte{0xff} || one == std::byte{0xfe}; }));
    }
}

TEST_CASE("device counts that overlap the send buffer are an error, and correct ones work", "[messages][copies]") {
    const Uneven right = three_by_three({{1, 2, 3}, {0, 400, 6}, {7, 0, 0}});
    for (const bool over : {false, true}) {
        const Routing routing(right);
        routing.fill(right);
        // Of rank 1, in one allocation.
        auto* const sent = static_cast<int32_t*>(routing.sends[1]->data());
        const auto call = [&](int rank) {
            return routing.call(size_t(rank), rank == 1 ? sent + (over ? 100 : 1000) : nullptr);
        };
        if (!over) {
            routing.ranks.group(call);
            routing.ranks.finish();
            routing.ranks.check_healthy();
            int32_t last = 0;
            const Bytes all = routing.sends[1]->read(2000 * 4);
            memcpy(&last, &all[(1000 + right.receive_places[1][1] + 399) * 4], sizeof last);
            CHECK(last == 11'399);
            continue;
        }
        routing.ranks.failing_group(weftInvalidArgument, call);
        routing.ranks.finish();
        for (int rank = 0; rank < 3; ++rank) {
            CHECK(routing.ranks.await_failure(rank) == weftInvalidArgument);
            CHECK_REFUSED(call(rank), routing.ranks.comms[size_t(rank)], "argument.overlap", 1);
        }
    }
}

TEST_CASE("different device counts of one part are errors of both ends", "[messages]") {
    const Uneven right = three_by_three({{1, 2, 3}, {0, 400, 6}, {7, 0, 0}});
    const Routing routing(right);
    routing.counts[2]->received.set({3, 5, 0});
    routing.ranks.group([&](int rank) { return routing.call(size_t(rank)); });
    routing.ranks.finish();
    for (int rank = 0; rank < 3; ++rank) CHECK(routing.ranks.await_failure(rank) == weftMismatch);
    CHECK_REFUSED(routing.call(0), routing.ranks.comms[0], "mismatch.message");
    CHECK_THAT(weftGetLastError(routing.ranks.comms[0]),
               Catch::Contains(
                   "rank 1 called weftAlltoAllv with 6 int32 for rank 2, which called weftAlltoAllv with 5 int32"));
}

TEST_CASE("refused device counts leave the communicator usable", "[messages]") {
    const Uneven right = three_by_three({{1, 2, 3}, {0, 400, 6}, {7, 0, 0}});
    const Routing routing(right);
    routing.fill(right);
    const std::vector<size_t> host(3), *const counts = &host;
    weftComm_t const comm = routing.ranks.comms[0];
    const Counts& there = *routing.counts[0];
    void* const send = routing.sends[0]->data();
    void* const receive = routing.receives[0]->data();
    weftStream_t const stream = routing.ranks.streams[0]->weft();
    const auto call = [&](const void* from, const size_t* sent, void* to, weftStream_t on) {
        return weftAlltoAllvDeviceCounts(from, sent, there.send_places.data(), to, there.received.data(),
                                         there.receive_places.data(), weftInt32, comm, on);
    };
    CHECK_REFUSED(call(send, counts->data(), receive, stream), nullptr, "memory.kind");
    CHECK_REFUSED(call(send, there.sent.data() + 1, receive, stream), nullptr, "memory.bounds");
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains("sendcounts ends 7 bytes"));
    const auto* const unaligned = reinterpret_cast<const size_t*>(static_cast<const char*>(there.sent.on.data()) + 4);
    CHECK(call(send, unaligned, receive, stream) == weftInvalidArgument);
    CHECK_REFUSED(call(send, nullptr, receive, stream), nullptr, "argument.null");
    CHECK_REFUSED(call(send, there.sent.data(), send, stream), nullptr, "argument.overlap");
    std::vector<int32_t> one(10), other(10);
    CHECK(call(one.data(), there.sent.data(), other.data(), nullptr) == weftInvalidArgument);
    if (devices() > 1) {
        const Numbers elsewhere(1, {1, 2, 3});
        CHECK_REFUSED(call(send, elsewhere.data(), receive, stream), nullptr, "memory.device");
    }
    routing.ranks.group([&](int rank) { return routing.call(size_t(rank)); });
    routing.ranks.finish();
    routing.ranks.check_healthy();
    routing.check(right);
}

TEST_CASE("a prepared group reads counts on devices whenever it starts, and ranks without parts need no buffer",
          "[messages]") {
    const Uneven first = three_by_three({{1, 2, 3}, {0, 400, 6}, {7, 0, 0}}),
                 second = three_by_three({{5, 0, 3}, {0, 0, 0}, {7, 1, 70}});
    const Routing routing(first);
    demand(weftGroupStart());
    for (size_t rank = 0; rank < Routing::n; ++rank) demand(routing.call(rank));
    weftPrepared_t prepared = nullptr;
    demand(weftGroupPrepare(&prepared));
    for (const Uneven* parts : {&first, &second, &first}) {
        routing.fill(*parts);
        for (size_t rank = 0; rank < Routing::n; ++rank) routing.counts[rank]->set(*parts, rank);
        demand(weftPreparedStart(prepared));
        routing.ranks.finish();
        routing.check(*parts);
    }
    demand(weftPreparedDestroy(prepared));
    const Uneven without = three_by_three({{5, 0, 3}, {0, 0, 0}, {7, 0, 70}});
    routing.fill(without);
    for (size_t rank = 0; rank < Routing::n; ++rank) routing.counts[rank]->set(without, rank);
    routing.ranks.group([&](int rank) {
        const Counts& c = *routing.counts[size_t(rank)];
        if (rank != 1) return routing.call(size_t(rank));
        return weftAlltoAllvDeviceCounts(nullptr, c.sent.data(), c.send_places.data(), nullptr, c.received.data(),
                                         c.receive_places.data(), weftInt32, routing.ranks.comms[1],
                                         routing.ranks.streams[1]->weft());
    });
    routing.ranks.finish();
    routing.ranks.check_healthy();
    routing.check(without);
}

TEST_CASE("a reduction of uneven parts that is refused leaves the communicator whole", "[messages]") {
    const weftConfig_t config = with_algo("reduce:two_level_tree");  // for several hosts
    const Ranks ranks(spread(2), &config);
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    for (const int device : ranks.placing) buffers.push_back(std::make_unique<DeviceBuffer>(device, 100));
    for (const std::vector<size_t>& counts : {std::vector<size_t>{3, 4}, {0, 4}, {4, 0}}) {
        const auto reduce_scatter = [&](int rank) {
            void* const buffer = buffers[size_t(rank)]->data();
            return weftReduceScatterv(buffer, static_cast<int*>(buffer) + 10, counts.data(), weftInt32, weftSum,
                                      ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft());
        };
        for (int rank = 0; rank < 2; ++rank)
            CHECK_REFUSED(reduce_scatter(rank), ranks.comms[size_t(rank)], "gpu.not-served");
        int values[2] = {1, 2}, sums[2] = {};
        ranks.group([&](int rank) {
            return weftAllReduce(&values[rank], &sums[rank], 1, weftInt32, weftSum, ranks.comms[size_t(rank)], nullptr);
        });
        CHECK(sums[0] == 3);
        CHECK(sums[1] == 3);
    }
    ranks.check_healthy();
}

}  // namespace weft::internal::test
