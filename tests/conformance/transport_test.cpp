// transport_test.cpp: the promises of every transport (transports/transport.hpp). It walks the registry, so that a new
// row is tested without a change here.
#include <sched.h>

#include <atomic>
#include <random>
#include <thread>

#include "src/base/clock.hpp"
#include "src/base/options.hpp"
#include "src/control/watchdog.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/liveness.hpp"
#include "src/segment/oob_store.hpp"
#include "src/segment/waiting.hpp"
#include "tests/amount.hpp"
#include "tests/conformance/connection.hpp"
#include "tests/error.hpp"
#include "tests/subprocess.hpp"

namespace weft::internal::test {
namespace {

const Transport& every_transport() {
    const size_t index = GENERATE(range(size_t(0), usable_transports().size()));
    return *usable_transports()[index];
}

size_t length_of(uint64_t number, size_t most) { return size_t(number * 2654435761u) % (most + 1); }

}  // namespace

TEST_CASE("a transport has a name and says whether it can be used here", "[transport]") {
    const Transport& transport = every_transport();
    CHECK(std::string(transport.name) != "");
    CHECK(transport.available() == "");
    Connection connection(transport, 2, 64);
    CHECK(transport.can_connect(connection.options(0, 2, 64)) == "");
    ConnectionOptions apart = connection.options(0, 2, 64);
    apart.host = nullptr;
    apart.identity = nullptr;
    CHECK(transport.can_connect(apart) != "");  // ranks that share neither memory nor a secret
}

TEST_CASE("messages arrive whole and in order, at any speed of the ends", "[transport]") {
    const Transport& transport = every_transport();
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const int depth : {1, 2, 3, 8}) {
        Connection connection(transport, depth, 1000);
        uint64_t sent = 0, received = 0;
        const unsigned bias = 1 + random() % 7;
        while (received < 2000) {
            if (random() % 8 < bias) {
                sent += sent < 2000 && connection.send(sent, length_of(sent, 1000));
            } else if (received < sent) {
                REQUIRE(connection.arrives(received, length_of(received, 1000)));
                ++received;
            } else {
                REQUIRE(!connection.receive(received, 0));
            }
        }
    }
}

TEST_CASE("messages arrive whole and in order between two threads", "[transport]") {
    const Transport& transport = every_transport();
    Connection connection(transport, 3, 512);
    constexpr uint64_t count = 20000;
    std::atomic<bool> failed{false};
    std::thread sending([&] {
        for (uint64_t number = 0; number < count && !failed;) {
            auto slot = connection.sender->acquire();
            if (!slot.ok()) failed = true;
            if (!slot.ok() || !*slot) {
                sched_yield();
                continue;
            }
            const size_t bytes = length_of(number, 512);
            memset(slot->data, int(number & 0xff), bytes);
            if (!connection.sender->publish({bytes, number, uint32_t(number * 7)}).ok()) failed = true;
            ++number;
        }
        while (!failed) {
            auto through = connection.sender->progress();
            if (!through) failed = true;
            if (!through || *through) break;
            sched_yield();
        }
    });
    uint64_t received = 0;
    std::string wrong;
    while (received < count && !failed && wrong.empty()) {
        SlotInfo info;
        auto slot = connection.receiver->receive(info);
        if (!slot.ok()) wrong = slot.status().sentence();
        if (!slot.ok() || !*slot) {
            sched_yield();
            continue;
        }
        if (info.operation != received || info.bytes != length_of(received, 512))
            wrong = "message " + std::to_string(received) + " is another";
        for (size_t i = 0; i < info.bytes; ++i)
            if (slot->data[i] != std::byte(received & 0xff))
                wrong = "message " + std::to_string(received) + " is damaged";
        if (!connection.receiver->release().ok()) wrong = "release failed";
        ++received;
    }
    if (!wrong.empty()) failed = true;
    sending.join();
    CHECK(wrong == "");
    CHECK(received == count);
}

TEST_CASE("a sender has at least as many credits as slots, not endlessly many, and reading gives them back",
          "[transport]") {
    const Transport& transport = every_transport();
    for (const int depth : {1, 2, 5}) {
        Connection connection(transport, depth, 65536);
        uint64_t sent = 0;
        while (connection.send(sent, 65536)) REQUIRE(++sent < 10'000);
        REQUIRE(sent >= uint64_t(depth));
        REQUIRE(!connection.send(sent, 1));
        for (uint64_t received = 0; received < sent; ++received) REQUIRE(connection.arrives(received, 65536));
        for (uint64_t round = 0; round < 20; ++round) {
            for (int i = 0; i < depth; ++i) REQUIRE(connection.send(uint64_t(i), 65536));
            for (int i = 0; i < depth; ++i) REQUIRE(connection.arrives(uint64_t(i), 65536));
        }
    }
}

TEST_CASE("acquire gives the same slot until it is published, receive the same until it is released", "[transport]") {
    const Transport& transport = every_transport();
    Connection connection(transport, 4, 256);
    SlotInfo info;
    CHECK(!*connection.receiver->receive(info));
    const Slot slot = *connection.sender->acquire();
    CHECK(connection.sender->acquire()->data == slot.data);
    CHECK(slot.capacity == 256);
    CHECK(!*connection.receiver->receive(info));  // acquired is not published
    REQUIRE(connection.send(1, 10));
    REQUIRE(connection.send(2, 20));
    Slot first;
    REQUIRE(eventually([&] {
        connection.push();
        return bool(first = *connection.receiver->receive(info));
    }));
    REQUIRE(connection.send(3, 30));
    CHECK(connection.receiver->receive(info)->data == first.data);
    CHECK(info.bytes == 10);
    CHECK(first.data[9] == std::byte{1});
    REQUIRE(connection.arrives(1, 10));  // and releases it
    REQUIRE(connection.arrives(2, 20));
    REQUIRE(connection.arrives(3, 30));
}

TEST_CASE("messages go from any memory to any memory, and the sender's may change at once", "[transport]") {
    const Transport& transport = every_transport();
    Connection connection(transport, 2, 100'000);
    std::vector<std::byte> source(100'000), target(100'000);
    uint64_t sent = 0, received = 0;
    const auto take = [&] {
        SlotInfo info;
        // Every third message is read from its slot instead.
        if (received % 3 == 2) return connection.receive(received, length_of(received, 100'000));
        auto there = connection.receiver->receive_into(target.data(), target.size(), info);
        if (!there) FAIL(there.status().sentence());
        if (!*there) return false;
        CHECK(info.operation == received);
        CHECK(info.fingerprint == uint32_t(received * 7));
        REQUIRE(info.bytes == length_of(received, 100'000));
        for (size_t i = 0; i < info.bytes; ++i)
            if (target[i] != std::byte(received & 0xff))
                FAIL("byte " << i << " of message " << received << " is wrong");
        return true;
    };
    while (received < 500) {
        if (sent < 500 && sent - received < 40) {
            const size_t bytes = length_of(sent, 100'000);
            std::fill(source.begin(), source.end(), std::byte(sent & 0xff));
            auto gone = connection.sender->send(source.data(), {bytes, sent, uint32_t(sent * 7)});
            if (!gone) FAIL(gone.status().sentence());
            std::fill(source.begin(), source.end(), std::byte{0xee});
            sent += *gone;
            if (*gone) continue;
        }
        REQUIRE(connection.soon(take));
        ++received;
    }
}

TEST_CASE("a message that is larger than where it should go is an error, and nothing behind is written",
          "[transport]") {
    const Transport& transport = every_transport();
    Connection connection(transport, 2, 1000);
    REQUIRE(connection.send(0, 101));
    std::vector<std::byte> target(200, std::byte{7});
    SlotInfo info;
    Status seen;
    REQUIRE(eventually([&] {
        connection.push();
        auto there = connection.receiver->receive_into(target.data(), 100, info);
        REQUIRE(!(there.ok() && *there));
        if (!there) seen = there.take_status();
        return !seen.ok();
    }));
    CHECK_ERROR(seen, "internal.damaged");
    CHECK_THAT(seen.sentence(), Catch::Contains("101") && Catch::Contains("100"));
    for (size_t i = 100; i < target.size(); ++i) CHECK(target[i] == std::byte{7});
}

TEST_CASE("empty and huge messages arrive", "[transport]") {
    const Transport& transport = every_transport();
    constexpr size_t huge = size_t(4) << 20;
    Connection connection(transport, 2, huge);
    for (uint64_t round = 0; round < 3; ++round) {
        REQUIRE(connection.send(3 * round, 0));
        REQUIRE(connection.send(3 * round + 1, huge));
        REQUIRE(connection.arrives(3 * round, 0));
        REQUIRE(eventually([&] { return connection.push(), connection.send(3 * round + 2, 1); }));
        REQUIRE(connection.arrives(3 * round + 1, huge));
        REQUIRE(connection.arrives(3 * round + 2, 1));
    }
}

TEST_CASE("a slow reader loses nothing: slots wait for it, full", "[transport]") {
    const Transport& transport = every_transport();
    Connection connection(transport, 3, 20'000);
    uint64_t sent = 0, received = 0;
    for (int round = 0; round < 50; ++round) {
        while (connection.send(sent, 20'000)) ++sent;  // until it must wait
        REQUIRE(sent - received >= 3);
        const int drained = round % 3 + 1;
        for (int i = 0; i < drained; ++i, ++received) REQUIRE(connection.arrives(received, 20'000));
    }
    for (; received < sent; ++received) REQUIRE(connection.arrives(received, 20'000));
}

TEST_CASE("a header that claims more bytes than a slot holds is an error that names the ranks", "[transport]") {
    const Transport& transport = every_transport();
    Connection connection(transport, 2, 128);
    REQUIRE(*connection.sender->acquire());
    if (!connection.sender->publish({129, 1, 1}).ok()) return;  // a sender may refuse to lie
    SlotInfo info;
    const auto slot = connection.receiver->receive(info);
    CHECK_ERROR(slot, "internal.damaged", 1, 0);
    CHECK_THAT(slot.status().sentence(), Catch::Contains("129"));
}

TEST_CASE("an address that cannot be right is refused with a sentence", "[transport]") {
    const Transport& transport = every_transport();
    Connection connection(transport, 2, 128);
    Blob right;
    const auto listening = transport.listen(connection.options(0, 2, 128), right);
    REQUIRE(listening.ok());
    const auto refused = [&](const Blob& blob, int depth, size_t slot_bytes) {
        const auto sender = transport.connect(connection.options(1, depth, slot_bytes), blob);
        CHECK_ERROR(sender, "mismatch.algorithm", 0, 1);
    };
    REQUIRE(transport.connect(connection.options(1, 2, 128), right).ok());
    // The other end chose another shape.
    refused(right, 3, 128);
    refused(right, 2, 256);
    refused(Blob{}, 2, 128);
}

TEST_CASE("a rank that waits on a connection sees an abort and its origin", "[transport]") {
    const Transport& transport = every_transport();
    Connection connection(transport, 2, 128);
    std::atomic<bool> waiting{false};
    Status seen;
    std::thread blocked([&] {
        Waiting rule(*connection.segment, 0, 1000);
        Watchdog watchdog(*connection.segment, 0, "", {0, 0});
        RankSet missing;
        missing.insert(1);
        while (seen) {
            SlotInfo info;
            if (auto slot = connection.receiver->receive(info); !slot.ok() || *slot) break;
            waiting = true;
            if (rule.pause(missing)) seen = watchdog.look(missing, 1, {}, rule.silence_us(), false);
        }
    });
    while (!waiting) sched_yield();
    FailureRecord(*connection.segment).raise(error::rank_failed, 1, "rank 1 has had enough");
    blocked.join();
    CHECK_ERROR(seen, "rank.failed");
    CHECK(seen.sentence() == "rank 1 has had enough");
}

TEST_CASE("a peer that dies is an error on the survivor, never a hang, and its last data still arrives",
          "[transport]") {
    const Transport& transport = every_transport();
    Connection connection(transport, 4, 128);
    Segment& segment = *connection.segment;
    segment.row(1).process = 0;
    Subprocess peer(
        {CONFORMANCE_PEER, fmt::format("/proc/{}/fd/{}", getpid(), segment.memory().fd()), "1", transport.name,
         connection.secret_text()},
        {"WEFT_TRANSPORT_PLUGIN=" + options().transport_plugin, "WEFT_NCCL_NET_PLUGIN=" + options().nccl_net_plugin,
         "WEFT_TRANSPORTS=" + options().transports, "WEFT_VERBS_LIBRARY=" + options().verbs_library});
    // It connects to a receiver of its own making here: its blob goes by the OOB store.
    Blob blob;
    auto listening = transport.listen(connection.options(0, 4, 128), blob);
    REQUIRE(listening.ok());
    REQUIRE(OobStore(segment).put(0, 1, 1, &blob, sizeof blob).ok());
    connection.receiver = std::move(*listening);
    // A connection over a network is made as both ends step it.
    INFO(transport.name);
    const bool came = eventually([&] { return connection.receive(0, 100); });
    INFO(peer.error());
    REQUIRE(came);
    REQUIRE(peer.says("sent"));
    CHECK(Liveness(segment).alive(1));

    std::atomic<bool> waiting{false};
    Status seen;
    std::thread survivor([&] {
        Waiting rule(segment, 0, 1000);
        Watchdog watchdog(segment, 0, "", {0, 0});
        RankSet missing;
        missing.insert(1);
        for (uint64_t number = 1; seen;) {
            SlotInfo info;
            auto slot = connection.receiver->receive(info);
            if (!slot.ok()) {
                seen = slot.take_status();
                break;
            }
            if (*slot) {
                if (info.operation != number++ || !connection.receiver->release().ok()) break;
                continue;
            }
            waiting = number == 3;
            if (rule.pause(missing)) seen = watchdog.look(missing, 1, {}, rule.silence_us(), false);
        }
    });
    CHECK(eventually([&] { return waiting.load(); }));  // the other two have arrived
    peer.kill(SIGKILL);
    survivor.join();
    CHECK(peer.wait() == 128 + SIGKILL);
    CHECK(!Liveness(segment).alive(1));
    CHECK(seen.code() == weftRemoteError);
    CHECK_THAT(seen.sentence(),
               Catch::Contains(fmt::format("rank 1 (pid {}) died", peer.pid())) || Catch::Contains("from rank 1 "));
}

}  // namespace weft::internal::test
