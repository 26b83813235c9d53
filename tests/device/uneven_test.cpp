// uneven_test.cpp: collectives of uneven parts on device memory give what they give on host memory.
#include "tests/device/ranks.hpp"

namespace weft::test {

namespace {

constexpr std::byte untouched{0xa5};

std::vector<int> rank_counts() { return small() ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 5, 8}; }

// Uneven parts of all ranks: counts[p][q] elements from rank p to rank q; with room between them.
struct Uneven {
    std::vector<std::vector<size_t>> counts;
    std::vector<std::vector<size_t>> send_places, receive_places;
    std::vector<size_t> sent, received;  // elements of each rank's buffer

    Uneven(int n, std::mt19937& random) {
        const auto some = [&] { return random() % 4 == 0 ? 0 : random() % 8 == 0 ? random() % 30'000 : random() % 90; };
        for (int p = 0; p < n; ++p) {
            counts.emplace_back();
            for (int q = 0; q < n; ++q) counts.back().push_back(some());
        }
        lay();
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

enum class Kind { all_to_all, gather, scatter, all_gather, reduce_scatter };

// The same call on device memory and on host memory, which has tests of its own.
void compare_uneven(const Ranks& ranks, Kind kind, std::mt19937& random) {
    const int n = ranks.count(), root = int(random() % unsigned(n));
    Uneven parts(n, random);
    const auto type = kind == Kind::reduce_scatter ? weftInt32 : weftFloat32;
    if (kind == Kind::all_gather || kind == Kind::gather)
        for (auto& row : parts.counts) row.assign(row.size(), row[0]);  // each gives all the same
    if (kind == Kind::reduce_scatter)
        for (auto& row : parts.counts) row = parts.counts[0];  // each gets the same from all
    parts.lay();
    std::vector<Bytes> inputs, outputs;
    std::vector<std::unique_ptr<DeviceBuffer>> sends, receives;
    for (size_t rank = 0; rank < size_t(n); ++rank) {
        inputs.push_back(reference::whole(type, parts.sent[rank], n, int(rank), random));
        outputs.emplace_back(parts.received[rank] * 4, untouched);
        sends.push_back(std::make_unique<DeviceBuffer>(ranks.placing[rank], inputs.back().size()));
        receives.push_back(std::make_unique<DeviceBuffer>(ranks.placing[rank], outputs.back().size()));
        sends.back()->write(inputs.back().data(), inputs.back().size());
        receives.back()->write(outputs.back().data(), outputs.back().size());
    }
    const auto call = [&](int rank, const void* send, void* receive, weftStream_t stream) {
        const auto r = size_t(rank);
        weftComm_t comm = ranks.comms[r];
        std::vector<size_t> to_us;
        for (const auto& row : parts.counts) to_us.push_back(row[kind == Kind::gather ? size_t(root) : r]);
        const auto &counts = parts.counts[r], &from = parts.send_places[r], &to = parts.receive_places[r];
        const bool is_root = rank == root;
        switch (kind) {
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

TEST_CASE("collectives of uneven parts give what they give on host memory", "[messages]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const int n : rank_counts()) {
        const Ranks ranks(spread(n));
        for (int round = 0; round < (small() ? 2 : 5); ++round)
            for (const Kind kind :
                 {Kind::all_to_all, Kind::gather, Kind::scatter, Kind::all_gather, Kind::reduce_scatter})
                compare_uneven(ranks, kind, random);
    }
}

TEST_CASE("uneven parts of more ranks than know each other's words", "[messages]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    compare_uneven(Ranks(spread(small() ? 17 : 33)), Kind::all_to_all, random);
}

}  // namespace weft::test
