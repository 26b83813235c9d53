// tcp_connection_test.cpp: two connections between two ranks, one each way, share sockets. Traffic of one direction
// neither disturbs nor stops the other, and each ends by itself.
#include <random>

#include "src/net/secret.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/subprocess.hpp"
#include "transports/tcp/tcp.hpp"

namespace weft::internal::test {
namespace {

constexpr size_t slot_bytes = 100'000;

size_t length_of(uint64_t number) { return size_t(number * 2654435761u) % slot_bytes; }

// Two ranks of this process, with a connection each way.
struct Pair {
    struct End {
        std::shared_ptr<Shared> shared;
        std::unique_ptr<Receiver> receiver;
        std::unique_ptr<Sender> sender;
        uint64_t sent = 0, received = 0;
    };
    net::Identity identity;
    End ends[2];

    explicit Pair(bool sharing = true) {
        net::Secret secret;
        net::random_bytes(secret.key.data(), secret.key.size());
        identity = net::Identity::of(secret);
        Blob blobs[2];
        const auto options = [&](int self) {
            return ConnectionOptions{
                self, 1 - self, 0, 2, slot_bytes, nullptr, nullptr, &identity, sharing ? &ends[self].shared : nullptr};
        };
        for (int self = 0; self < 2; ++self)
            ends[self].receiver = must(tcp_transport().listen(options(self), blobs[self]));
        for (int self = 0; self < 2; ++self)
            ends[self].sender = must(tcp_transport().connect(options(self), blobs[1 - self]));
    }
    template <class T>
    static T must(Result<T> result) {
        if (!result) FAIL(result.status().sentence());
        return std::move(*result);
    }
    // True: a message more is on its way from this rank.
    bool send(int self) {
        End& end = ends[self];
        std::vector<std::byte> data(length_of(end.sent), std::byte(end.sent * 2 + uint64_t(self)));
        const bool gone = must(end.sender->send(data.data(), {data.size(), end.sent, uint32_t(self)}));
        end.sent += gone;
        return gone;
    }
    // True: this rank has received another message, whole.
    bool receive(int self) {
        End& end = ends[self];
        std::vector<std::byte> target(slot_bytes);
        SlotInfo info;
        // The same target until it is whole.
        const bool came = eventually([&] {
            push();
            return must(end.receiver->receive_into(target.data(), target.size(), info));
        });
        if (!came) return false;
        CHECK(info.operation == end.received);
        CHECK(info.fingerprint == uint32_t(1 - self));
        CHECK(info.bytes == length_of(end.received));
        const std::byte expected = std::byte(end.received * 2 + uint64_t(1 - self));
        CHECK(std::all_of(target.begin(), target.begin() + long(info.bytes),
                          [&](std::byte byte) { return byte == expected; }));
        ++end.received;
        return true;
    }
    // Senders may be gone.
    void push() {
        for (End& end : ends)
            if (end.sender) must(end.sender->progress());
    }
    int descriptor(int self, short events) {
        Wakeups wakeups;
        if (events == POLLIN) ends[self].receiver->add_wakeups(wakeups);
        if (events == POLLOUT) ends[self].sender->add_wakeups(wakeups);
        const auto& list = wakeups.descriptors;
        REQUIRE(list.size() == 1);
        REQUIRE(list[0].events == events);
        return list[0].fd;
    }
    void fill(int self) {
        while (send(self)) REQUIRE(ends[self].sent < 10'000);
    }
};

}  // namespace

TEST_CASE("messages both ways over one connection arrive whole and in order, at any speed of the ends", "[tcp]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    Pair pair;
    while (pair.ends[0].received + pair.ends[1].received < 600) {
        const int self = int(random() % 2);
        if (random() % 2 == 0)
            pair.send(self);
        else if (pair.ends[self].received < pair.ends[1 - self].sent)
            REQUIRE(pair.receive(self));
    }
}

TEST_CASE("a connection is one socket a rank for both ways; one way that is stuck does not stop the other", "[tcp]") {
    for (const bool sharing : {true, false}) {
        Pair pair(sharing);
        for (int self = 0; self < 2; ++self) REQUIRE(pair.send(self));
        for (int self = 0; self < 2; ++self) REQUIRE(pair.receive(self));
        pair.fill(0);
        CHECK((pair.descriptor(0, POLLOUT) == pair.descriptor(0, POLLIN)) == sharing);
        for (int i = 0; i < 200; ++i) {
            REQUIRE(pair.send(1));
            REQUIRE(pair.receive(0));
        }
        while (pair.ends[1].received < pair.ends[0].sent) REQUIRE(pair.receive(1));
    }
}

TEST_CASE("a sender that closes ends its direction of a connection after its last data", "[tcp]") {
    const int leaving = GENERATE(0, 1);  // who called, and who was called
    Pair pair;
    for (int self = 0; self < 2; ++self) REQUIRE(pair.send(self));
    for (int self = 0; self < 2; ++self) REQUIRE(pair.receive(self));
    REQUIRE(pair.send(leaving));
    REQUIRE(eventually([&] { return pair.must(pair.ends[leaving].sender->progress()); }));
    pair.ends[leaving].sender.reset();
    REQUIRE(pair.receive(1 - leaving));
    std::byte nothing[1];
    SlotInfo info;
    Status ended;
    REQUIRE(eventually([&] {
        auto there = pair.ends[1 - leaving].receiver->receive_into(nothing, 1, info);
        if (!there) ended = there.take_status();
        return !ended.ok();
    }));
    CHECK(ended.code() == weftRemoteError);
    CHECK_THAT(ended.sentence(), Catch::Contains("was closed"));
    for (int i = 0; i < 20; ++i) {
        REQUIRE(pair.send(1 - leaving));
        REQUIRE(pair.receive(leaving));
    }
}

}  // namespace weft::internal::test
