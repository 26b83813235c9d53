// messages_test.cpp: sends and receives on device memory: random graphs of messages against a model, from threads, in
// graphs, beside collectives, more than a kernel's arguments hold.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/device/ranks.hpp"

namespace weft::internal::test {

namespace {

constexpr std::byte untouched{0xa5};

std::byte content(size_t message, size_t index) {
    return std::byte((message * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u) >> 40);
}

size_t draw_bytes(std::mt19937& random) {
    switch (random() % 8) {
        case 0: return 0;
        case 1: return random() % 300'000;
        case 2: return random() % 40'000;
        case 3: return small() ? 70'000 : 200'000 + random() % 1'000'000;
        default: return random() % 200;
    }
}

// A graph of messages between ranks, in the order of each pair; every end has a place in a buffer of its rank.
struct Graph {
    struct Message {
        int from, to;
        weftDataType_t type;
        size_t count, sent_at, received_at;
        size_t bytes() const { return count * size_of(type); }
    };
    std::vector<Message> messages;
    std::vector<size_t> sent, received;  // bytes of each rank

    Graph(int n, int count, std::mt19937& random) : sent(size_t(n)), received(size_t(n)) {
        for (int i = 0; i < count; ++i) {
            const auto type = weftDataType_t(random() % weftNumTypes);
            Message message{int(random() % unsigned(n)),
                            int(random() % unsigned(n)),
                            type,
                            draw_bytes(random) / size_of(type),
                            0,
                            0};
            const auto place = [&](size_t& used) {
                // As elements lie: sometimes as packs of 16 bytes do.
                used = (used + 15) / 16 * 16 + (random() % 2 ? size_of(type) * (random() % 5) : 0);
                const size_t at = used;
                used += message.bytes() + 8;
                return at;
            };
            message.sent_at = place(sent[size_t(message.from)]);
            message.received_at = place(received[size_t(message.to)]);
            messages.push_back(message);
        }
    }
};

// Their buffers, filled, on the devices of the ranks.
struct Ends {
    Ends(const Ranks& ranks, const Graph& of) : graph(of) {
        for (int rank = 0; rank < ranks.count(); ++rank) {
            const auto r = size_t(rank);
            sends.push_back(std::make_unique<DeviceBuffer>(ranks.placing[r], graph.sent[r]));
            receives.push_back(std::make_unique<DeviceBuffer>(ranks.placing[r], graph.received[r]));
            Bytes all(graph.sent[r], untouched);
            for (size_t i = 0; i < graph.messages.size(); ++i)
                for (size_t at = 0; graph.messages[i].from == rank && at < graph.messages[i].bytes(); ++at)
                    all[graph.messages[i].sent_at + at] = content(i, at);
            sends.back()->write(all.data(), all.size());
            clear(rank);
        }
    }
    void clear(int rank) const {
        const Bytes nothing(graph.received[size_t(rank)], untouched);
        receives[size_t(rank)]->write(nothing.data(), nothing.size());
    }
    std::byte* send(const Graph::Message& message) const {
        return static_cast<std::byte*>(sends[size_t(message.from)]->data()) + message.sent_at;
    }
    std::byte* receive(const Graph::Message& message) const {
        return static_cast<std::byte*>(receives[size_t(message.to)]->data()) + message.received_at;
    }
    // Every message arrived at its place, and no other byte changed.
    void check() const {
        for (size_t rank = 0; rank < receives.size(); ++rank) {
            Bytes expected(graph.received[rank], untouched);
            for (size_t i = 0; i < graph.messages.size(); ++i)
                for (size_t at = 0; graph.messages[i].to == int(rank) && at < graph.messages[i].bytes(); ++at)
                    expected[graph.messages[i].received_at + at] = content(i, at);
            if (receives[rank]->read(expected.size()) != expected) FAIL_CHECK("rank " << rank << " got something else");
        }
    }
    const Graph& graph;
    std::vector<std::unique_ptr<DeviceBuffer>> sends, receives;
};

// One rank's messages, in a random order that keeps that of each pair.
std::vector<std::pair<size_t, bool>> posts_of(const Graph& graph, int rank, std::mt19937& random) {
    std::vector<std::pair<size_t, bool>> left, posts;  // message, outgoing
    for (size_t i = 0; i < graph.messages.size(); ++i) {
        if (graph.messages[i].from == rank) left.push_back({i, true});
        if (graph.messages[i].to == rank) left.push_back({i, false});
    }
    const auto peer = [&](const auto& post) {
        const Graph::Message& message = graph.messages[post.first];
        return std::pair(post.second, post.second ? message.to : message.from);
    };
    while (!left.empty()) {
        const auto drawn = left[random() % left.size()];
        const auto first =
            std::find_if(left.begin(), left.end(), [&](const auto& p) { return peer(p) == peer(drawn); });
        posts.push_back(*first);
        left.erase(first);
    }
    return posts;
}

weftResult_t post(const Ranks& ranks, const Ends& ends, int rank, const std::pair<size_t, bool>& post) {
    const Graph::Message& message = ends.graph.messages[post.first];
    weftComm_t comm = ranks.comms[size_t(rank)];
    const weftStream_t stream = ranks.streams[size_t(rank)]->weft();
    return post.second ? weftSend(ends.send(message), message.count, message.type, message.to, comm, stream)
                       : weftRecv(ends.receive(message), message.count, message.type, message.from, comm, stream);
}
void post_all(const Ranks& ranks, const Ends& ends, std::mt19937& random) {
    ranks.group([&](int rank) {
        for (const auto& each : posts_of(ends.graph, rank, random))
            if (const weftResult_t posted = post(ranks, ends, rank, each); posted != weftSuccess) return posted;
        return weftSuccess;
    });
}

std::vector<int> rank_counts() { return small() ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 5, 8}; }

}  // namespace

TEST_CASE("random graphs of messages arrive in any order of posting", "[messages][copies]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const int n : rank_counts()) {
        INFO(n << " ranks");
        const Ranks ranks(spread(n));
        // Without waiting in between.
        std::vector<Graph> graphs;
        std::vector<std::unique_ptr<Ends>> all;
        const int rounds = small() ? 6 : 15;
        for (int round = 0; round < rounds; ++round)
            graphs.emplace_back(n, 1 + int(random() % unsigned(6 * n)), random);
        for (const Graph& graph : graphs) all.push_back(std::make_unique<Ends>(ranks, graph));
        for (const auto& ends : all) post_all(ranks, *ends, random);
        ranks.finish();
        ranks.check_healthy();
        for (const auto& ends : all) ends->check();
    }
}

TEST_CASE("messages of a group go before its collectives, wherever they stand in it", "[messages]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const int n = 3;
    const Ranks ranks(spread(n));
    for (int round = 0; round < (small() ? 3 : 10); ++round) {
        const Graph graph(n, 9, random);
        const Ends ends(ranks, graph);
        std::vector<std::unique_ptr<DeviceBuffer>> sums;
        const uint32_t one = 1;
        for (int rank = 0; rank < n; ++rank) {
            sums.push_back(std::make_unique<DeviceBuffer>(ranks.placing[size_t(rank)], 4));
            sums.back()->write(&one, 4);
        }
        ranks.group([&](int rank) {
            const auto posts = posts_of(graph, rank, random);
            const size_t before = random() % (posts.size() + 1);
            for (size_t i = 0; i <= posts.size(); ++i) {
                void* const own = sums[size_t(rank)]->data();
                if (i == before)
                    demand(weftAllReduce(own, own, 1, weftUint32, weftSum, ranks.comms[size_t(rank)],
                                         ranks.streams[size_t(rank)]->weft()));
                if (i < posts.size()) demand(post(ranks, ends, rank, posts[i]));
            }
            return weftSuccess;
        });
        ranks.finish();
        ends.check();
        for (const auto& sum : sums) {
            uint32_t got;
            memcpy(&got, sum->read(4).data(), 4);
            CHECK(got == 3);
        }
    }
}

TEST_CASE("ranks in threads of their own send and receive one by one", "[messages][copies]") {
    const int n = small() ? 2 : 4, rounds = small() ? 10 : 40;
    const Ranks ranks(spread(n));
    check_on_threads(n, [&](int rank) {
        const auto r = size_t(rank);
        const DeviceBuffer from(ranks.placing[r], 1 << 20), to(ranks.placing[r], 1 << 20);
        std::mt19937 random(3);  // the same everywhere
        for (int round = 0; round < rounds; ++round) {
            const size_t count = round % 4 == 0 ? random() % (1 << 20) : random() % 100;
            const Bytes sent(count, std::byte(rank + round)), wanted(count, std::byte((rank + n - 1) % n + round));
            from.write(sent.data(), count);
            // Around in a ring: the even ones send first, as they would have to without a group.
            const auto send = [&] {
                demand(
                    weftSend(from.data(), count, weftInt8, (rank + 1) % n, ranks.comms[r], ranks.streams[r]->weft()));
            };
            if (rank % 2 == 0) send();
            demand(weftRecv(to.data(), count, weftInt8, (rank + n - 1) % n, ranks.comms[r], ranks.streams[r]->weft()));
            if (rank % 2 == 1) send();
            ranks.streams[r]->finish();
            if (to.read(count) != wanted) throw std::runtime_error("wrong in round " + std::to_string(round));
        }
    });
}

TEST_CASE("weftSendRecv shifts around a ring, and with itself", "[messages][copies]") {
    for (const int n : rank_counts()) {
        const Ranks ranks(spread(n));
        for (const size_t count : {size_t(0), size_t(1), size_t(1001), size_t(small() ? 90'000 : 400'000)}) {
            std::vector<std::unique_ptr<DeviceBuffer>> from, to;
            for (int rank = 0; rank < n; ++rank) {
                from.push_back(std::make_unique<DeviceBuffer>(ranks.placing[size_t(rank)], count * 4));
                to.push_back(std::make_unique<DeviceBuffer>(ranks.placing[size_t(rank)], count * 4));
                const std::vector<uint32_t> values(count, uint32_t(rank));
                from.back()->write(values.data(), count * 4);
            }
            ranks.group([&](int rank) {
                const auto r = size_t(rank);
                return weftSendRecv(from[r]->data(), count, (rank + 1) % n, to[r]->data(), count, (rank + n - 1) % n,
                                    weftUint32, ranks.comms[r], ranks.streams[r]->weft());
            });
            ranks.finish();
            for (int rank = 0; rank < n; ++rank) {
                const std::vector<uint32_t> values(count, uint32_t((rank + n - 1) % n));
                const Bytes got = to[size_t(rank)]->read(count * 4);
                if (count > 0) CHECK(memcmp(got.data(), values.data(), count * 4) == 0);
            }
        }
    }
}

TEST_CASE("captured messages replay, and between replays other messages go on", "[messages]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const int n = 3;
    const Ranks ranks(spread(n));
    const Graph captured(n, 20, random), between(n, 12, random);
    const Ends ends(ranks, captured), others(ranks, between);
    const Captured graphs(ranks, [&] { post_all(ranks, ends, random); });  // the first call of all
    for (int round = 0; round < 3; ++round) {
        for (int rank = 0; rank < n; ++rank) ends.clear(rank), others.clear(rank);
        graphs.launch();
        if (round != 1) post_all(ranks, others, random);
        ranks.finish();
        ends.check();
        if (round != 1) others.check();
    }
    ranks.check_healthy();
}

TEST_CASE("more messages than a kernel's arguments hold go by a table, in graphs too", "[messages]") {
    const int messages = small() ? 150 : 700;
    const Ranks ranks(spread(2));
    const DeviceBuffer from(ranks.placing[0], size_t(messages) * 4), to(ranks.placing[1], size_t(messages) * 4);
    std::vector<uint32_t> values(static_cast<size_t>(messages));
    std::iota(values.begin(), values.end(), 7u);
    from.write(values.data(), values.size() * 4);
    const auto enqueue = [&] {
        ranks.group([&](int rank) {
            for (size_t i = 0; i < values.size(); ++i) {
                // Backwards in memory, in order between the two.
                const size_t at = (values.size() - 1 - i) * 4;
                const auto r = size_t(rank);
                const weftStream_t stream = ranks.streams[r]->weft();
                demand(
                    rank == 0
                        ? weftSend(static_cast<std::byte*>(from.data()) + at, 1, weftUint32, 1, ranks.comms[r], stream)
                        : weftRecv(static_cast<std::byte*>(to.data()) + at, 1, weftUint32, 0, ranks.comms[r], stream));
            }
            return weftSuccess;
        });
    };
    const auto check = [&] {
        ranks.finish();
        CHECK(memcmp(to.read(values.size() * 4).data(), values.data(), values.size() * 4) == 0);
        const Bytes nothing(values.size() * 4);
        to.write(nothing.data(), nothing.size());
    };
    enqueue();
    check();
    const Captured graphs(ranks, enqueue);
    for (int round = 0; round < 2; ++round) {
        graphs.launch();
        check();
    }
    demand(weftGroupStart());
    for (int i = 0; i < 8193; ++i)
        demand(weftSend(from.data(), 1, weftUint32, 1, ranks.comms[0], ranks.streams[0]->weft()));
    CHECK(weftGroupEnd() == weftInvalidUsage);
    CHECK_ERROR(last_error(), "usage.limit");
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains("8192"));
    ranks.check_healthy();
}

TEST_CASE("more ranks than know each other's words send each other messages too", "[messages]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const int n = small() ? 17 : 33;
    const Ranks ranks(spread(n));
    const Graph graph(n, 100, random);
    const Ends ends(ranks, graph);
    post_all(ranks, ends, random);
    ranks.finish();
    ends.check();
}

}  // namespace weft::internal::test
