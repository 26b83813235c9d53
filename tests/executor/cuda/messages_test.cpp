// messages_test.cpp: the body of the message kernel on the host, a thread for each block. Ranks have grids of any size
// and any order of posting, over slots and in place, one kernel after the other.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "src/base/datatype.hpp"
#include "src/gpu/engine/messages/device_messages.hpp"
#include "src/gpu/kernels/host_kernels.hpp"
#include "src/gpu/kernels/messages.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"

namespace weft::internal::test {
namespace {

using namespace cuda;
using Bytes = std::vector<std::byte>;

struct MessageRanks {
    explicit MessageRanks(int ranks) : count(ranks), geometry{ranks} {
        for (int rank = 0; rank < ranks; ++rank) {
            // Slots are never read before they were written.
            areas.emplace_back(new std::byte[geometry.bytes() + 128]);
            memset(area(rank), 0, geometry.state_bytes());
            memset(area(rank) + geometry.state_bytes(), 0x5a, geometry.bytes() - geometry.state_bytes());
            words.push_back(std::make_unique<RankFlags>());
            tables.push_back(std::make_unique<MessageItem[]>(message_items_max));
            arrangements.emplace_back(rank, ranks, RankBits{});
        }
        reports.resize(size_t(ranks)), message_reports.resize(size_t(ranks)), aborts.resize(size_t(ranks));
        block_waits.resize(size_t(ranks) * blocks_max);
    }
    std::byte* area(int rank) const {
        std::byte* const begin = areas[size_t(rank)].get();
        return begin + (128 - reinterpret_cast<uintptr_t>(begin) % 128) % 128;
    }
    MessageArguments arguments(int rank) {
        MessageArguments a{};
        const auto r = size_t(rank);
        a.rank = rank, a.ranks = count, a.launch = ++launches, a.timeout_ns = timeout_ns;
        a.abort = &aborts[r], a.report = &reports[r], a.message_report = &message_reports[r];
        a.block_waits = &block_waits[r * blocks_max], a.own = words[r].get(), a.table = tables[r].get();
        for (int peer = 0; peer < count; ++peer) a.areas[peer] = area(peer);
        return a;
    }
    // A rank's kernels, one behind the other, in so many blocks.
    std::jthread start(int rank, std::vector<DeviceMessage> messages, int blocks, bool zero_copy) {
        return std::jthread([this, rank, messages = std::move(messages), blocks, zero_copy] {
            DeviceMessages& arrangement = arrangements[size_t(rank)];
            const Status arranged = arrangement.arrange(messages, [&](const DeviceMessage& message, int) {
                return zero_copy ? static_cast<const std::byte*>(message.data) : nullptr;
            });
            if (!arranged) std::abort();
            MessageArguments a = arguments(rank);
            const auto run = [&](int block, int of) {
                MessageBlock shared;
                cuda::run_block(1 + int(a.launch % 3), block, of,
                                [&](const Team& team) { cuda::messages(team, a, shared); });
            };
            for (int noted = 0; !arrangement.fit() && noted < arrangement.items(); run(0, 1))
                noted += arrangement.note(a, noted);
            arrangement.bind(a);
            std::vector<std::jthread> all;
            for (int block = 0; block < blocks && arrangement.p2p_channels() > 0; ++block)
                all.emplace_back(run, block, blocks);
        });
    }

    int count;
    MessageGeometry geometry;
    uint64_t timeout_ns = 0;
    std::atomic<uint32_t> launches{0};
    std::vector<std::unique_ptr<std::byte[]>> areas;
    std::vector<std::unique_ptr<RankFlags>> words;
    std::vector<std::unique_ptr<MessageItem[]>> tables;
    std::vector<DeviceMessages> arrangements;
    std::vector<FailureReport> reports;
    std::vector<MessageReport> message_reports;
    std::vector<BlockWait> block_waits;
    std::vector<uint32_t> aborts;
};

// Messages among all ranks, and the content of each.
struct Mesh {
    struct End {
        Bytes data;
        DeviceMessage message;
    };
    std::vector<std::vector<std::unique_ptr<End>>> ends;  // by rank
    std::vector<std::pair<const End*, const End*>> pairs;

    Mesh(int ranks, int count, std::mt19937& random) : ends(size_t(ranks)) {
        for (int i = 0; i < count; ++i) {
            const int from = int(random() % unsigned(ranks)), to = int(random() % unsigned(ranks));
            const uint64_t bytes = random() % 6 == 0 ? random() % 900'000 : random() % 4 == 0 ? 0 : random() % 500;
            const auto add = [&](int rank, int peer, bool outgoing) {
                auto end = std::make_unique<End>();
                end->data.resize(bytes);
                for (std::byte& one : end->data) one = outgoing ? std::byte(random()) : std::byte(0);
                end->message = {peer, outgoing, end->data.data(), bytes, weftInt8, MessageCaller::send, false};
                ends[size_t(rank)].push_back(std::move(end));
                return ends[size_t(rank)].back().get();
            };
            const End* const sent = add(from, to, true);
            pairs.emplace_back(sent, add(to, from, false));
        }
    }
    std::vector<DeviceMessage> of(int rank) const {
        std::vector<DeviceMessage> all;
        for (const auto& end : ends[size_t(rank)]) all.push_back(end->message);
        return all;
    }
    bool arrived() const {
        return std::all_of(pairs.begin(), pairs.end(),
                           [](const auto& pair) { return pair.first->data == pair.second->data; });
    }
};

}  // namespace

TEST_CASE("messages arrive with any grids of their ranks", "[cuda]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const int n : small() ? std::vector{1, 3} : std::vector{1, 2, 3, 5, 9}) {
        MessageRanks ranks(n);
        // Kernels of a rank run one after the other; a rank that is done goes on.
        std::vector<std::unique_ptr<Mesh>> meshes;
        for (int round = 0; round < (small() ? 3 : 8); ++round)
            meshes.push_back(
                std::make_unique<Mesh>(n, round == 2 ? 60 * n : 1 + int(random() % unsigned(8 * n)), random));
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < n; ++rank)
            threads.emplace_back([&, rank, own = random()] {
                std::mt19937 mine(own);
                for (const auto& mesh : meshes)
                    ranks.start(rank, mesh->of(rank), 1 + int(mine() % 6), mine() % 2 == 0).join();
            });
        threads.clear();
        for (const auto& mesh : meshes) CHECK(mesh->arrived());
        for (const FailureReport& report : ranks.reports) CHECK(report.failure == cuda::KernelFailure::none);
        for (const BlockWait& block_waits : ranks.block_waits) CHECK(block_waits.ranks.none());
    }
}

TEST_CASE("two ranks that each send more than the slots hold, one block each, report no single missing rank",
          "[cuda]") {
    MessageRanks ranks(3);
    std::vector<Bytes> data(18, Bytes(2'000'000, std::byte(7)));
    std::vector<std::jthread> kernels;
    for (int rank = 0; rank < 3; ++rank) {
        std::vector<DeviceMessage> all;
        for (int peer = 0; peer < 3; ++peer)
            for (const bool outgoing : {true, false})
                if (peer != rank)
                    all.push_back({peer, outgoing, data[size_t(rank * 6 + peer * 2 + outgoing)].data(), data[0].size(),
                                   weftInt8, MessageCaller::send, false});
        if (rank == 1) std::reverse(all.begin(), all.end());
        kernels.push_back(ranks.start(rank, std::move(all), 1, false));
    }
    kernels.clear();
    for (const FailureReport& report : ranks.reports) CHECK(report.failure == cuda::KernelFailure::none);
}

TEST_CASE("a mismatched or missing message ends the kernel with a report", "[cuda]") {
    const auto one = [](int peer, bool outgoing, Bytes& data, weftDataType_t type) {
        return std::vector<DeviceMessage>{
            {peer, outgoing, data.data(), data.size() / size_of(type), type, MessageCaller::send, false}};
    };
    Bytes sent(8), received(16);
    {
        MessageRanks ranks(2);
        ranks.start(0, one(1, true, sent, weftFloat32), 2, false).join();
        ranks.start(1, one(0, false, received, weftFloat32), 2, false).join();
        CHECK(ranks.reports[0].failure == cuda::KernelFailure::none);
        CHECK(ranks.reports[1].failure == cuda::KernelFailure::mismatch);
        CHECK(ranks.message_reports[1].valid);
        CHECK(ranks.message_reports[1].bytes == 16);
        CHECK(ranks.message_reports[1].other_bytes == 8);
        // Behind a failure nothing moves.
        ranks.start(1, one(0, true, received, weftFloat32), 2, false).join();
        CHECK(reinterpret_cast<const MessageChannelState*>(ranks.area(0))[ranks.geometry.p2p(1, 0)].headers[0].filled ==
              0);
    }
    {
        MessageRanks ranks(2);
        ranks.timeout_ns = 20'000'000;
        ranks.start(1, one(0, false, received, weftFloat32), 1, false).join();
        CHECK(ranks.reports[1].failure == cuda::KernelFailure::timeout);
        CHECK(ranks.reports[1].peer == 0);
    }
    {
        MessageRanks ranks(2);
        std::jthread waits = ranks.start(1, one(0, false, received, weftFloat32), 1, false);
        // It says whom it misses, and that it goes on looking.
        const BlockWait& block_waits = ranks.block_waits[blocks_max];
        while (load_acquire(&block_waits.polls) < 3) std::this_thread::yield();
        CHECK(load_acquire(&block_waits.ranks.low) == 1);
        store_release(&ranks.aborts[1], 1u);
        waits.join();
        CHECK(ranks.reports[1].failure == cuda::KernelFailure::aborted);
    }
}

TEST_CASE("p2p_channels of all ranks lie apart, and a rank's fit a kernel's", "[cuda]") {
    for (int ranks = 1; ranks <= ranks_max; ++ranks) {
        const MessageGeometry geometry{ranks};
        INFO(ranks << " ranks");
        CHECK(2 * (ranks - 1) + 1 <= message_queues_max);
        CHECK((2 * (ranks - 1) + 1) * geometry.channels() <= message_p2p_max);
        CHECK(geometry.bytes() <= size_t(17) << 20);
        for (const bool of_collective : {false, true}) {
            CHECK(geometry.pieces(0, of_collective) == 1);
            CHECK(geometry.pieces(message_slot_bytes + 1, of_collective) <= 2);
        }
        CHECK(geometry.pieces(uint64_t(1) << 40, false) == uint64_t(geometry.channels()));
        CHECK(geometry.pieces(uint64_t(1) << 40, true) == uint64_t(geometry.channels_of_collective()));
        CHECK(geometry.channels_of_collective() <= geometry.channels());
        CHECK(geometry.p2p(ranks - 1, geometry.channels() - 1) + 1 == geometry.p2p_channels());
    }
}

}  // namespace weft::internal::test
