// tcp_test.cpp: promises of TCP beyond transport_test.cpp. Peers break, lie, vanish or stop reading, strangers connect
// to the listener, streams are cut anywhere, and several sockets share a message.
#include "transports/tcp/tcp.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>

#include <random>

#include "src/base/options.hpp"
#include "src/net/socket.hpp"
#include "tests/amount.hpp"
#include "tests/conformance/connection.hpp"
#include "tests/error.hpp"
#include "tests/net/ends.hpp"
#include "transports/tcp/receiver.hpp"
#include "transports/tcp/sender.hpp"

namespace weft::internal::test {
namespace {

using tcp::ListenAddress;
using tcp::MessageHeader;
using tcp::TcpReceiver;
using tcp::TcpSender;

constexpr size_t tcp_slot_bytes = 300'000;

std::unique_ptr<TcpReceiver> receiver_at(const ConnectionOptions& options, std::shared_ptr<net::Listener> listener,
                                         const ListenAddress& listen_address) {
    return std::make_unique<TcpReceiver>(
        options, std::make_shared<tcp::TcpConnection>(options, std::move(listener), listen_address.token));
}
std::unique_ptr<TcpSender> sender_to(const ConnectionOptions& options, const ListenAddress& listen_address,
                                     const std::vector<net::Address>& sources) {
    auto connection = std::make_shared<tcp::TcpConnection>(options);
    connection->set_target(listen_address, sources, listen_address.stripes);
    return std::make_unique<TcpSender>(options, std::move(connection));
}

// A receiver of rank 0 with its own listener, and the parts of a hand-made rank 1.
struct Bench {
    net::Identity identity = fresh_identity();
    std::shared_ptr<net::Listener> listener;
    ListenAddress listen_address{
        .token = 4711, .depth = 2, .stripes = 1, .slot_bytes = tcp_slot_bytes, .addresses = {}};
    std::unique_ptr<TcpReceiver> receiver;

    explicit Bench(int stripes = 1) {
        std::vector<net::Address> addresses = {loopback()};
        if (stripes == 2) addresses.push_back(loopback("127.0.0.2").of_interface(1));
        if (stripes == 3)
            addresses = {loopback(), loopback(has_ipv6() ? "::1" : "127.0.0.4").of_interface(1),
                         loopback("127.0.0.3").of_interface(2)};
        listener = open_test_listener(addresses);
        listen_address.addresses = listener->addresses();
        listen_address.stripes = stripes;
        receiver = receiver_at(options(0), listener, listen_address);
    }
    ConnectionOptions options(int self) {
        return {self, 1 - self, 0, listen_address.depth, tcp_slot_bytes, nullptr, nullptr, &identity};
    }
    std::unique_ptr<TcpSender> sender() { return sender_to(options(1), listen_address, listener->addresses()); }
    // A sender's socket for us to write on, past the handshake.
    Fd hand(int stripe = 0, int stripes = 1) {
        net::OutgoingConnection call(identity, {net::data, tcp::stripe_detail(stripe, stripes), listen_address.token},
                                     listener->addresses());
        auto socket = finish(call, listener.get());
        if (!socket) FAIL(socket.status().sentence());
        return std::move(*socket);
    }
    // The receiver's error, after the messages before it.
    Status failure() {
        Status seen;
        const bool failed = eventually([&] {
            SlotInfo info;
            auto slot = receiver->receive(info);
            if (slot && *slot) REQUIRE(receiver->release().ok());
            if (!slot) seen = slot.take_status();
            return !seen.ok();
        });
        REQUIRE(failed);
        return seen;
    }
    std::vector<std::byte> next(std::vector<TcpSender*> senders = {}) {
        std::vector<std::byte> message;
        const bool came = eventually([&] {
            for (TcpSender* sender : senders) REQUIRE(sender->progress().ok());
            SlotInfo info;
            auto slot = receiver->receive(info);
            if (!slot) FAIL(slot.status().sentence());
            if (!*slot) return false;
            message.assign(slot->data, slot->data + info.bytes);
            REQUIRE(receiver->release().ok());
            return true;
        });
        REQUIRE(came);
        return message;
    }
};

std::vector<std::byte> pattern(size_t bytes, size_t seed) {
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = std::byte((i * 31 + i / 256 + seed * 7) & 0xff);
    return data;
}

std::string bytes_of_message(uint64_t sequence, const std::vector<std::byte>& body) {
    const MessageHeader header{.fingerprint = 5, .sequence = sequence, .bytes = body.size(), .operation = 9};
    std::string stream(reinterpret_cast<const char*>(&header), sizeof header);
    return stream.append(reinterpret_cast<const char*>(body.data()), body.size());
}

// Closing it sends a reset.
void reset(Fd socket) {
    const linger at_once{1, 0};
    REQUIRE(setsockopt(socket.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
}

}  // namespace

TEST_CASE("messages arrive whole wherever TCP cuts the stream", "[tcp]") {
    const std::string stream =
        bytes_of_message(1, pattern(100, 1)) + bytes_of_message(2, {}) + bytes_of_message(3, pattern(50, 3));
    for (size_t cut = 0; cut <= stream.size(); cut += 3) {
        Bench bench;
        const Fd hand = bench.hand();
        if (cut > 0) write_all(hand, stream.data(), cut);
        SlotInfo info;
        int taken = 0;
        for (int attempt = 0; attempt < 10; ++attempt) {
            auto slot = bench.receiver->receive(info);
            REQUIRE(slot.ok());
            if (!*slot) continue;
            ++taken;
            REQUIRE(bench.receiver->release().ok());
        }
        if (cut < stream.size()) write_all(hand, stream.data() + cut, stream.size() - cut);
        for (; taken < 3; ++taken)
            CHECK(bench.next() == pattern(taken == 0 ? 100 : taken == 1 ? 0 : 50, size_t(taken) + 1));
    }
}

TEST_CASE("a header that lies is an error that names rank and address, never an overrun", "[tcp]") {
    const auto said = [](const MessageHeader& header) {
        Bench bench;
        const Fd hand = bench.hand();
        const std::string good = bytes_of_message(1, pattern(10, 1));
        write_all(hand, good.data(), good.size());
        write_all(hand, &header, sizeof header);
        const Status seen = bench.failure();
        CHECK_ERROR(seen, "internal.damaged", 1, 0);
        CHECK_THAT(seen.sentence(), Catch::Contains("rank 1 at 127.0.0.1:"));
        return seen.sentence();
    };
    CHECK_THAT(said({.magic = 1, .sequence = 2}), Catch::Contains("numbered 2"));
    CHECK_THAT(said({.sequence = 1}), Catch::Contains("numbered 1"));
    CHECK_THAT(said({.sequence = 3}), Catch::Contains("numbered 3"));
    CHECK_THAT(said({.sequence = 2, .bytes = tcp_slot_bytes + 1}), Catch::Contains(std::to_string(tcp_slot_bytes + 1)));
    CHECK_THAT(said({.sequence = 2, .bytes = ~uint64_t(0)}), Catch::Contains(std::to_string(~uint64_t(0))));
}

TEST_CASE("a peer that resets or closes is an error with rank, address and errno, after its last data", "[tcp]") {
    for (const bool resets : {true, false}) {
        for (const size_t inside : {size_t(0), size_t(10), size_t(500)}) {
            Bench bench;
            Fd hand = bench.hand();
            const std::string stream = bytes_of_message(1, pattern(1000, 1)),
                              half = bytes_of_message(2, pattern(1000, 2)).substr(0, inside);
            write_all(hand, stream.data(), stream.size());
            if (!half.empty()) write_all(hand, half.data(), half.size());
            CHECK(bench.next() == pattern(1000, 1));
            if (resets)
                reset(std::move(hand));
            else
                hand.reset();
            const Status seen = bench.failure();
            CHECK(seen.code() == weftRemoteError);
            CHECK_THAT(seen.sentence(), Catch::Contains("rank 0") && Catch::Contains("rank 1 at 127.0.0.1:") &&
                                            Catch::Contains(resets ? "errno 104" : "was closed"));
            CHECK((seen.sentence().find("middle of a message") != std::string::npos) == (inside > 0));
        }
    }
}

TEST_CASE("a sender whose peer closed or vanished gets an error that names it", "[tcp]") {
    for (const bool vanishes : {false, true}) {
        Bench bench;
        bench.receiver.reset();
        bench.listener->register_identity(bench.identity);
        auto sender = bench.sender();
        std::optional<net::AcceptedConnection> accepted;
        REQUIRE(eventually([&] {
            REQUIRE(bench.listener->progress().ok());
            REQUIRE(sender->progress().ok());
            if (!accepted)
                accepted = bench.listener->accept_for(bench.identity.name, net::data, bench.listen_address.token);
            return accepted.has_value();
        }));
        const std::vector<std::byte> data = pattern(1000, 1);
        REQUIRE(eventually([&] {  // connected, and something is on its way
            REQUIRE(bench.listener->progress().ok());
            return *sender->send(data.data(), {1000, 1, 1}) && *sender->progress();
        }));
        if (vanishes) {
            // In repair mode a socket goes without a word, as with a host that lost its power: half-open.
            const int on = 1;
            if (setsockopt(accepted->socket.number(), IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) != 0) {
                WARN("not allowed to make a half-open connection here");
                continue;
            }
        }
        accepted.reset();
        Status seen;
        REQUIRE(eventually([&] {
            auto sent = sender->send(data.data(), {1000, 2, 2});
            if (!sent) seen = sent.take_status();
            return !seen.ok();
        }));
        CHECK(seen.code() == weftRemoteError);
        CHECK_THAT(seen.sentence(),
                   Catch::Contains("rank 1 cannot send to rank 0 at 127.0.0.1:") && Catch::Contains("errno"));
        CHECK_FALSE(sender->send(data.data(), {1000, 3, 3}).ok());  // for good
    }
}

TEST_CASE("a peer that left before it was reached is an error of a rank that has data for it", "[tcp]") {
    Bench bench;
    bench.receiver.reset();
    bench.listener.reset();
    // No process listens there, nor can as long as it is bound.
    const Fd deserted(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(bind(deserted.number(), loopback().raw(), loopback().raw_bytes()) == 0);
    bench.listen_address.addresses = {net::local_address(deserted.number())};
    auto sender = sender_to(bench.options(1), bench.listen_address, {loopback()});
    // The refusal may come at once or a moment later; it is no error as long as nothing is to be sent.
    for (int step = 0; step < 100; ++step) {
        auto through = sender->progress();
        REQUIRE(through.ok());
        REQUIRE(*through);
    }
    const std::vector<std::byte> data = pattern(100, 1);
    Status seen;
    REQUIRE(eventually([&] {
        auto sent = sender->send(data.data(), {100, 1, 1});
        if (sent) sent = sender->progress();
        if (!sent) seen = sent.take_status();
        return !seen.ok();
    }));
    CHECK_THAT(seen.sentence(),
               Catch::Contains("rank 1 has no connection to rank 0: 127.0.0.1:") && Catch::Contains("refused"));
    CHECK_FALSE(sender->progress().ok());  // for good
}

TEST_CASE("a peer that stops reading stops the sender, which sleeps until there is room", "[tcp]") {
    Bench bench;
    auto sender = bench.sender();
    const std::vector<std::byte> data = pattern(tcp_slot_bytes, 0);
    uint64_t sent = 0;
    const auto fill = [&] {
        for (;;) {
            REQUIRE(bench.listener->progress().ok());
            auto gone = sender->send(data.data(), {tcp_slot_bytes, sent, 0});
            REQUIRE(gone.ok());
            if (!*gone) return;
            REQUIRE(++sent < 1000);
        }
    };
    SlotInfo info;
    REQUIRE(eventually([&] {
        REQUIRE(bench.receiver->receive(info).ok());  // claims
        fill();
        return sent > uint64_t(bench.listen_address.depth);
    }));
    fill();
    CHECK_FALSE(*sender->progress());
    Wakeups wakeups;
    sender->add_wakeups(wakeups);
    REQUIRE(wakeups.descriptors.size() == 1);
    CHECK(wakeups.descriptors[0].events == POLLOUT);
    for (uint64_t received = 0; received < sent; ++received) CHECK(bench.next({sender.get()}) == data);
    CHECK(*sender->progress());
    wakeups.clear();
    sender->add_wakeups(wakeups);
    CHECK(wakeups.descriptors.empty());  // nothing to wait for
}

TEST_CASE("a sender that closes leaves the data that the kernel took, and no reset", "[tcp]") {
    Bench bench;
    auto sender = bench.sender();
    const size_t bytes = options().socket_buffer_bytes > 0 ? 100 : 50'000;  // all of it fits into the kernel's buffers
    uint64_t sent = 0;
    REQUIRE(eventually([&] {
        REQUIRE(bench.listener->progress().ok());
        const std::vector<std::byte> data = pattern(bytes, sent);
        sent += *sender->send(data.data(), {bytes, sent, 0});
        return sent == 10;
    }));
    REQUIRE(eventually([&] {
        REQUIRE(bench.listener->progress().ok());
        return *sender->progress();
    }));
    sender.reset();
    for (uint64_t received = 0; received < sent; ++received) CHECK(bench.next() == pattern(bytes, received));
    CHECK_THAT(bench.failure().sentence(), Catch::Contains("was closed"));
}

TEST_CASE("connections that arrive in another order than they were made find their receivers", "[tcp]") {
    const net::Identity identity = fresh_identity();
    auto listener = open_test_listener();
    constexpr int count = 20;
    std::vector<std::unique_ptr<TcpReceiver>> receivers;
    std::vector<std::unique_ptr<TcpSender>> senders;
    ConnectionOptions from{0, 1, 0, 2, 1000, nullptr, nullptr, &identity},
        to{1, 0, 0, 2, 1000, nullptr, nullptr, &identity};
    const auto listen_address = [&](int i) {
        return ListenAddress{.token = uint64_t(100 + i),
                             .depth = 2,
                             .stripes = 1,
                             .slot_bytes = 1000,
                             .addresses = listener->addresses()};
    };
    for (int i = 0; i < count; ++i) receivers.push_back(receiver_at(from, listener, listen_address(i)));
    for (int i = count; i-- > 0;) {
        senders.push_back(sender_to(to, listen_address(i), listener->addresses()));
        auto slot = senders.back()->acquire();  // before anything is connected
        REQUIRE((slot.ok() && *slot));
        slot->data[0] = std::byte(i);
        REQUIRE(senders.back()->publish({1, 0, 0}).ok());
    }
    for (int i = 0; i < count; ++i)
        REQUIRE(eventually([&] {
            for (auto& sender : senders) REQUIRE(sender->progress().ok());
            SlotInfo info;
            auto slot = receivers[size_t(i)]->receive(info);
            REQUIRE(slot.ok());
            return *slot && slot->data[0] == std::byte(i);
        }));
}

TEST_CASE("strangers at the listener with noise, silence or a recording do not disturb a connection", "[tcp]") {
    Bench bench;
    const net::Address address = bench.listener->addresses()[0];
    const Fd silent = stranger_at(address);
    const Fd noisy = stranger_at(address);
    const std::string noise = bytes_of_message(1, pattern(100, 1));  // a message without a handshake
    write_all(noisy, noise.data(), noise.size());
    net::HelloMessage hello;
    hello.name = bench.identity.name;
    net::ProofMessage proof;  // recorded for another challenge
    proof.purpose = {net::data, tcp::stripe_detail(0, 1), bench.listen_address.token};
    proof.mac = net::client_proof(bench.identity.secret, hello, {}, proof.purpose);
    const Fd replaying = stranger_at(address);
    write_all(replaying, &hello, sizeof hello);
    write_all(replaying, &proof, sizeof proof);
    write_all(replaying, noise.data(), noise.size());
    CHECK(read_to_end(noisy, *bench.listener) == "");
    CHECK(read_to_end(replaying, *bench.listener).size() == sizeof(net::ChallengeMessage));
    auto sender = bench.sender();
    const std::vector<std::byte> data = pattern(1000, 3);
    REQUIRE(*sender->send(data.data(), {1000, 0, 0}));
    CHECK(bench.next({sender.get()}) == data);
}

TEST_CASE("a receiver that sleeps is woken by the connection and by its data", "[tcp]") {
    Bench bench;
    std::optional<Fd> hand;
    SlotInfo info;
    bool sent = false;
    net::OutgoingConnection call(bench.identity, {net::data, tcp::stripe_detail(0, 1), bench.listen_address.token},
                                 bench.listener->addresses());
    for (;;) {
        if (!hand) {
            auto step = call.advance();
            REQUIRE(step.ok());
            if (*step) hand = std::move(**step);
        } else if (!sent) {
            const std::string stream = bytes_of_message(1, pattern(1500, 1));
            write_all(*hand, stream.data(), stream.size());
            sent = true;
        }
        auto slot = bench.receiver->receive(info);
        REQUIRE(slot.ok());
        if (*slot) break;
        Wakeups wakeups;
        bench.receiver->add_wakeups(wakeups);
        auto& list = wakeups.descriptors;
        REQUIRE_FALSE(list.empty());
        if (!hand) call.add_descriptors(list);
        if (!hand || sent) REQUIRE(poll(list.data(), list.size(), 60'000) > 0);
    }
    CHECK(info.bytes == 1500);
}

TEST_CASE("a message over several sockets is whole again, whichever is faster", "[tcp]") {
    const int stripes = GENERATE(2, 3);
    Bench bench(stripes);
    auto sender = bench.sender();
    std::mt19937 random(seed());
    const std::vector<size_t> sizes = {0,
                                       1,
                                       tcp::striped_bytes - 1,
                                       tcp::striped_bytes,
                                       tcp::striped_bytes + 1,
                                       tcp_slot_bytes,
                                       3,
                                       tcp_slot_bytes - 1,
                                       70'000,
                                       64,
                                       200'000};
    uint64_t sent = 0, received = 0;
    std::vector<std::byte> target(tcp_slot_bytes);
    while (received < 200) {
        const size_t bytes = sizes[sent % sizes.size()];
        if (sent < 200 && random() % 3 != 0) {
            const std::vector<std::byte> data = pattern(bytes, sent);
            auto gone = sender->send(data.data(), {bytes, sent, uint32_t(sent)});
            if (!gone) FAIL(gone.status().sentence());
            sent += *gone;
        } else if (received < sent) {
            SlotInfo info;
            REQUIRE(eventually([&] {
                REQUIRE(sender->progress().ok());
                auto there = bench.receiver->receive_into(target.data(), target.size(), info);
                if (!there) FAIL(there.status().sentence());
                return *there;
            }));
            CHECK(info.operation == received);
            const std::vector<std::byte> expected = pattern(sizes[received % sizes.size()], received);
            REQUIRE(info.bytes == expected.size());
            REQUIRE(std::equal(expected.begin(), expected.end(), target.begin()));
            ++received;
        }
    }
}

TEST_CASE("stripes that contradict each other are errors", "[tcp]") {
    {
        Bench bench(2);
        const Fd first = bench.hand(0, 2), second = bench.hand(1, 2);
        MessageHeader header{.sequence = 1, .bytes = 100'000};
        write_all(first, &header, sizeof header);
        header.operation = 1;
        write_all(second, &header, sizeof header);
        CHECK_ERROR(bench.failure(), "internal.damaged", 1, 0);
    }
    for (const auto& [stripe, stripes] : {std::pair(0, 2), std::pair(2, 2), std::pair(1, 3), std::pair(0, 1)}) {
        Bench bench(2);
        const Fd first = bench.hand(0, 2), other = bench.hand(stripe, stripes);
        const Status seen = bench.failure();
        CHECK_ERROR(seen, "internal.damaged", 1, 0);
        CHECK_THAT(seen.sentence(), Catch::Contains(fmt::format("stripe {} of {}", stripe, stripes)));
    }
    for (const int stripes : {0, tcp::stripes_max + 1}) {
        Bench bench;
        const Fd first = bench.hand(0, stripes);
        CHECK_ERROR(bench.failure(), "internal.damaged", 1, 0);
    }
}

}  // namespace weft::internal::test
