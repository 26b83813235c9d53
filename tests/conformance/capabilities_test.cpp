// capabilities_test.cpp: the abilities of a transport beyond slots (Capability): posted and offered memory, registration, given
// slots, one-sided access, sleeping. A transport without a capability declines it as transports/connection.hpp says.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "tests/amount.hpp"
#include "tests/conformance/connection.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {
namespace {

const Transport& each_transport() {
    return *usable_transports()[GENERATE(range(size_t(0), usable_transports().size()))];
}

// Memory of the test that the transport has registered.
struct Registered {
    std::vector<std::byte> bytes;
    std::unique_ptr<RegisteredMemory> memory;

    Registered(const Transport& transport, size_t size, RangeKind kind = RangeKind::user) : bytes(size) {
        auto made = transport.register_memory({.data = bytes.data(), .bytes = size, .kind = kind});
        if (!made) FAIL(made.status().sentence());
        memory = std::move(*made);
    }
    std::byte* data() { return bytes.data(); }
    RegisteredMemory* get() { return memory.get(); }
};

std::byte byte_of(uint64_t message, size_t index) { return std::byte(message * 131 + index * 7 + (index >> 8)); }
void fill(std::byte* data, size_t bytes, uint64_t message) {
    for (size_t i = 0; i < bytes; ++i) data[i] = byte_of(message, i);
}
bool holds(const std::byte* data, size_t bytes, uint64_t message) {
    for (size_t i = 0; i < bytes; ++i)
        if (data[i] != byte_of(message, i)) return false;
    return true;
}

template <class T>
T must(Result<T> result) {
    if (!result) FAIL(result.status().sentence());
    return std::move(*result);
}

constexpr size_t most = 200'000;

// Sends messages of posted memory, and overwrites it as soon as the sender allows that.
class Poster {
  public:
    Poster(const Transport& transport, Connection& connection, size_t buffers) : connection_(connection) {
        for (size_t i = 0; i < buffers; ++i) buffers_.push_back(std::make_unique<Registered>(transport, most));
    }
    uint64_t posted() const { return posted_; }

    // False: no credit, or all buffers are in use.
    bool post(size_t bytes) {
        overwrite();
        if (posted_ - free_ == buffers_.size()) return false;
        Registered& buffer = *buffers_[posted_ % buffers_.size()];
        fill(buffer.data(), bytes, posted_);
        const SlotInfo info{bytes, posted_, uint32_t(posted_ * 7)};
        if (!must(connection_.sender->post(buffer.data(), buffer.get(), info))) return false;
        ++posted_;
        return true;
    }
    void overwrite() {
        const bool nothing_left = must(connection_.sender->progress());
        const uint64_t sent = std::min(connection_.sender->sent(), posted_);
        CHECK(sent >= free_);
        if (nothing_left) CHECK(sent == posted_);
        for (; free_ < sent; ++free_) {
            auto& bytes = buffers_[free_ % buffers_.size()]->bytes;
            std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
        }
    }

  private:
    Connection& connection_;
    std::vector<std::unique_ptr<Registered>> buffers_;
    uint64_t posted_ = 0;  // messages
    uint64_t free_ = 0;    // of these, the messages whose memory was overwritten
};

}  // namespace

TEST_CASE("posted memory goes out whole, and may change when sent() has counted it", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name << ", seed " << seed());
    std::mt19937 random(seed());
    Connection connection(transport, 3, most);
    Poster poster(transport, connection, 5);
    std::vector<size_t> sizes;
    uint64_t received = 0;
    const uint64_t count = small() ? 60 : 400;
    while (received < count) {
        const size_t bytes = random() % 3 == 0 ? random() % 64 : random() % (most + 1);
        if (poster.posted() < count && poster.post(bytes)) {
            sizes.push_back(bytes);
            if (random() % 2) continue;
        }
        poster.overwrite();
        SlotInfo info;
        const Slot slot = must(connection.receiver->receive(info));
        if (!slot) continue;
        REQUIRE(info.operation == received);
        REQUIRE(info.fingerprint == uint32_t(received * 7));
        REQUIRE(info.bytes == sizes[received]);
        REQUIRE(holds(slot.data, info.bytes, received));
        REQUIRE(connection.receiver->release().ok());
        ++received;
    }
    CHECK(eventually([&] { return must(connection.sender->progress()); }));
    CHECK(connection.sender->sent() >= count);
    if (!transport.can(Capability::posts)) CHECK(connection.sender->sent() == UINT64_MAX);
}

TEST_CASE("posted messages, filled slots and sends share one order and one count", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name);
    Connection connection(transport, 4, 1000);
    Registered source(transport, 1000), own(transport, 1000);
    for (uint64_t number = 0; number < 60; ++number) {
        const size_t bytes = size_t(number * 17 % 1001);
        const SlotInfo info{bytes, number, uint32_t(number * 7)};
        const auto posts = [&] {
            if (number % 3 == 0) return connection.send(number, bytes);
            std::fill(source.bytes.begin(), source.bytes.end(), std::byte(number));
            return number % 3 == 1 ? must(connection.sender->post(source.data(), source.get(), info))
                                   : must(connection.sender->send(source.data(), info));
        };
        REQUIRE(eventually(posts));
        REQUIRE(connection.arrives(number, bytes));
        REQUIRE(eventually([&] { return connection.push(); }));
        CHECK(connection.sender->sent() >= number + 1);
    }
}

TEST_CASE("a message goes into the memory offered for it, or into a slot, and nothing else is written", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name << ", seed " << seed());
    std::mt19937 random(seed());
    Registered target(transport, most + 64);
    Connection connection(transport, 2, most);
    Poster poster(transport, connection, 4);
    uint64_t direct = 0;
    for (uint64_t number = 0; number < (small() ? 40u : 200u); ++number) {
        const size_t bytes = random() % (most + 1), capacity = random() % 4 == 0 ? bytes / 2 : bytes;
        std::fill(target.bytes.begin(), target.bytes.end(), std::byte{0x5a});
        const bool early = random() % 2;
        bool offered = early && must(connection.receiver->offer(target.data(), capacity, target.get(), number));
        REQUIRE(eventually([&] { return poster.post(bytes); }));
        if (!early) offered = must(connection.receiver->offer(target.data(), capacity, target.get(), number));
        if (!transport.can(Capability::offers)) REQUIRE(!offered);
        SlotInfo info;
        Slot slot;
        REQUIRE(eventually([&] {
            poster.overwrite();
            return bool(slot = must(connection.receiver->receive(info)));
        }));
        CHECK(!must(connection.receiver->offer(target.data(), capacity, target.get(), number)));  // too late
        REQUIRE(info.bytes == bytes);
        REQUIRE(info.operation == number);
        REQUIRE(holds(slot.data, bytes, number));
        const bool into_offer = slot.data == target.data();
        if (into_offer) REQUIRE((offered && bytes <= capacity));
        direct += into_offer;
        for (size_t i = into_offer ? bytes : 0; i < target.bytes.size(); ++i)
            if (target.bytes[i] != std::byte{0x5a}) FAIL("byte " << i << " of the offered memory was written");
        if (random() % 2) {
            REQUIRE(connection.receiver->release().ok());
            continue;
        }
        REQUIRE(must(connection.receiver->receive_into(target.data(), most, info)));
        CHECK(holds(target.data(), bytes, number));
    }
    if (!transport.can(Capability::offers)) {
        CHECK(direct == 0);
        return;
    }
    // An offer that has reached the sender before its message is used.
    uint64_t number = poster.posted();
    REQUIRE(eventually([&] {
        const bool offered = must(connection.receiver->offer(target.data(), most, target.get(), number));
        for (int turn = 0; turn < 200; ++turn) (void)must(connection.sender->progress()), usleep(20);
        while (!poster.post(5'000)) {
        }
        SlotInfo info;
        Slot slot;
        while (!(slot = must(connection.receiver->receive(info)))) poster.overwrite();
        const bool into_offer = slot.data == target.data();
        CHECK((offered || !into_offer));
        CHECK(holds(slot.data, 5'000, number));
        REQUIRE(connection.receiver->release().ok());
        ++number;
        return into_offer;
    }));
}

TEST_CASE("after a receiver has withdrawn, nothing is written to the memory that it had offered", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name);
    if (!transport.can(Capability::offers)) return;
    Registered source(transport, most), target(transport, most);
    Connection connection(transport, 2, most);
    for (uint64_t number = 0; number < 3; ++number) {
        REQUIRE(eventually([&] { return connection.send(number, 100); }));
        REQUIRE(connection.arrives(number, 100));
    }
    CHECK(connection.receiver->next() == 3);
    (void)must(connection.receiver->offer(target.data(), most, target.get(), 3));
    (void)must(connection.receiver->offer(target.data(), most, target.get(), 4));
    for (int turn = 0; turn < 200; ++turn) (void)must(connection.sender->progress()), usleep(20);
    // One message is on its way meanwhile, and one comes later.
    std::fill(source.bytes.begin(), source.bytes.end(), std::byte{0x77});
    (void)connection.sender->post(source.data(), source.get(), {most, 3, 0});
    connection.receiver->withdraw();
    CHECK(!must(connection.receiver->offer(target.data(), most, target.get(), 4)));
    const std::vector<std::byte> before = target.bytes;
    (void)connection.sender->post(source.data(), source.get(), {most, 4, 0});
    for (int turn = 0; turn < 500; ++turn) (void)connection.sender->progress(), usleep(100);
    CHECK(target.bytes == before);
}

TEST_CASE("memory of every kind is registered, or declined by capability", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name);
    for (const RangeKind kind : {RangeKind::slots, RangeKind::user, RangeKind::pinned}) {
        Registered registered(transport, 10'000, kind);
        CHECK(registered.get()->range().data == registered.data());
        CHECK(registered.get()->range().kind == kind);
        CHECK(registered.get()->holds(registered.data() + 9'999, 1));
        CHECK_FALSE(registered.get()->holds(registered.data() + 9'999, 2));
        CHECK(registered.get()->key().empty() != transport.can(Capability::one_sided));
    }
    std::vector<std::byte> bytes(4096);
    const auto device = transport.register_memory(
        {.data = bytes.data(), .bytes = bytes.size(), .kind = RangeKind::device, .device = 0});
    if (!transport.can(Capability::device)) CHECK_FALSE(device.ok());
}

TEST_CASE("messages pass through slots that the caller gives", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name);
    if (!transport.can(Capability::given_slots)) return;
    constexpr int depth = 3;
    constexpr size_t slot_bytes = 5000;
    Registered slots[2] = {{transport, depth * slot_bytes, RangeKind::slots},
                           {transport, depth * slot_bytes, RangeKind::slots}};
    Connection connection(transport, depth, slot_bytes, 0,
                          {{slots[0].data(), slots[1].data()}, {slots[0].get(), slots[1].get()}});
    uint64_t sent = 0, received = 0;
    while (received < 100) {
        const Slot slot = sent < 100 ? must(connection.sender->acquire()) : Slot{};
        if (slot) {
            REQUIRE(slot.data == slots[1].data() + sent % depth * slot_bytes);
            fill(slot.data, slot_bytes - sent, sent);
            REQUIRE(connection.sender->publish({slot_bytes - sent, sent, uint32_t(sent)}).ok());
            ++sent;
            if (sent % 4 != 0) continue;
        }
        connection.push();
        SlotInfo info;
        const Slot came = must(connection.receiver->receive(info));
        if (!came) continue;
        REQUIRE(came.data == slots[0].data() + received % depth * slot_bytes);
        REQUIRE(holds(came.data, slot_bytes - received, received));
        REQUIRE(connection.receiver->release().ok());
        ++received;
    }
}

TEST_CASE("a receiver with given slots shows messages behind the next one, and releases the oldest", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name);
    if (!transport.can(Capability::given_slots)) return;
    constexpr int depth = 4;
    constexpr size_t slot_bytes = 3000;
    Registered slots[2] = {{transport, depth * slot_bytes, RangeKind::slots},
                           {transport, depth * slot_bytes, RangeKind::slots}};
    Connection connection(transport, depth, slot_bytes, 0,
                          {{slots[0].data(), slots[1].data()}, {slots[0].get(), slots[1].get()}});
    uint64_t sent = 0, seen = 0, released = 0;
    bool ahead = false;
    while (released < 100) {
        const Slot slot = sent < 100 ? must(connection.sender->acquire()) : Slot{};
        if (slot) {
            fill(slot.data, slot_bytes - sent, sent);
            REQUIRE(connection.sender->publish({slot_bytes - sent, sent, uint32_t(sent)}).ok());
            ++sent;
        }
        connection.push();
        SlotInfo info;
        const Slot came =
            seen - released < depth ? must(connection.receiver->look_ahead(seen - released, info)) : Slot{};
        if (came) {
            REQUIRE(info.operation == seen);
            REQUIRE(came.data == slots[0].data() + seen % depth * slot_bytes);
            ahead = ahead || seen > released;
            ++seen;
            continue;
        }
        // Transports may show one message at a time.
        if (seen == released) continue;
        REQUIRE(holds(slots[0].data() + released % depth * slot_bytes, slot_bytes - released, released));
        REQUIRE(connection.receiver->release().ok());
        ++released;
    }
    if (std::string(transport.name) == "unix_sockets") CHECK(ahead);
}

TEST_CASE("what another end of the rank has taken from the network wakes a sleeper", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name);
    if (!transport.can(Capability::sleeps)) return;
    Connection connection(transport, 2, 1000);
    Blob blob;
    const auto back_receiver = must(transport.listen(connection.options(1, 2, 1000), blob));
    const auto back_sender = must(transport.connect(connection.options(0, 2, 1000), blob));
    REQUIRE(connection.send(0, 100));
    REQUIRE(connection.arrives(0, 100));
    // Afterwards each attempt to send looks at the network.
    for (int message = 0; message < 8; ++message)
        if (must(back_sender->acquire())) REQUIRE(back_sender->publish({100, 0, 0}).ok());
    REQUIRE(connection.send(1, 100));
    const auto wakes = [&] {
        (void)connection.push();
        for (int attempt = 0; attempt < 100; ++attempt) (void)must(back_sender->acquire());
        Wakeups wakeups;
        connection.receiver->add_wakeups(wakeups);
        return wakeups.ready || poll(wakeups.descriptors.data(), nfds_t(wakeups.descriptors.size()), 0) > 0;
    };
    // Until the message is received, no wait sleeps.
    REQUIRE(eventually(wakes));
    for (int again = 0; again < 10; ++again) CHECK(wakes());
    CHECK(connection.arrives(1, 100));
}

TEST_CASE("puts and gets reach a peer's registered memory without its help", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name << ", seed " << seed());
    std::mt19937 random(seed());
    Connection connection(transport, 2, 1000);
    REQUIRE(connection.send(0, 10));
    REQUIRE(connection.arrives(0, 10));  // connected
    Registered theirs(transport, 50'000), ours(transport, 50'000);
    auto attached = connection.sender->attach(theirs.get()->key());
    if (!transport.can(Capability::one_sided)) {
        CHECK_ERROR(attached, "internal.state");
        RemoteMemory none;
        CHECK_ERROR(connection.sender->put(ours.data(), ours.get(), none, 0, 8), "internal.state");
        CHECK_ERROR(connection.sender->get(ours.data(), ours.get(), none, 0, 8), "internal.state");
        return;
    }
    const auto peer = must(std::move(attached));
    uint64_t posted = 0;
    const auto done = [&] { return must(connection.sender->progress()) && connection.sender->transferred() >= posted; };
    std::vector<std::byte> expected(theirs.bytes);
    for (uint64_t round = 1; round < 60; ++round) {
        const size_t bytes = random() % 3 == 0 ? 8 : random() % 20'000, at = random() % (expected.size() - bytes);
        fill(ours.data(), bytes, round);
        std::copy_n(ours.data(), bytes, expected.begin() + long(at));
        REQUIRE(eventually([&] { return must(connection.sender->put(ours.data(), ours.get(), *peer, at, bytes)); }));
        ++posted;
        if (round % 2) {  // a later message tells that the bytes are there
            REQUIRE(connection.send(round, 10));
            REQUIRE(connection.arrives(round, 10));
            REQUIRE(theirs.bytes == expected);
        }
        REQUIRE(eventually(done));
        REQUIRE(theirs.bytes == expected);
        std::fill(ours.bytes.begin(), ours.bytes.end(), std::byte{1});
        REQUIRE(eventually([&] { return must(connection.sender->get(ours.data(), ours.get(), *peer, at, bytes)); }));
        ++posted;
        REQUIRE(eventually(done));
        REQUIRE(std::equal(ours.data(), ours.data() + bytes, expected.begin() + long(at)));
    }
    CHECK_FALSE(connection.sender->put(ours.data(), ours.get(), *peer, 49'999, 2).ok());  // past the end
    CHECK_FALSE(connection.sender->attach(std::vector<std::byte>(3)).ok());
}

TEST_CASE("a sleeping receiver is woken by a message, or told to look by time", "[transport]") {
    const Transport& transport = each_transport();
    INFO(transport.name);
    Connection connection(transport, 2, 1000);
    REQUIRE(connection.send(0, 10));
    REQUIRE(connection.arrives(0, 10));  // connected
    Wakeups wakeups;
    connection.receiver->add_wakeups(wakeups);
    CHECK_FALSE(wakeups.ready);
    if (!transport.can(Capability::sleeps)) {
        CHECK(wakeups.descriptors.empty());
        CHECK(wakeups.by_time == transport.can(Capability::remote));
        return;
    }
    REQUIRE_FALSE(wakeups.descriptors.empty());
    CHECK(poll(wakeups.descriptors.data(), wakeups.descriptors.size(), 0) == 0);
    for (uint64_t number = 1; number < 5; ++number) {
        SlotInfo info;
        REQUIRE_FALSE(must(connection.receiver->receive(info)));
        wakeups.clear();
        connection.receiver->add_wakeups(wakeups);
        std::thread peer([&] {
            (void)connection.sender->send(reinterpret_cast<const std::byte*>("0123456789"), {10, number, 1});
            (void)eventually([&] { return connection.push(); });
        });
        const bool woken = wakeups.ready || poll(wakeups.descriptors.data(), wakeups.descriptors.size(), 60'000) > 0;
        peer.join();
        CHECK(woken);
        wakeups.clear();
        connection.receiver->add_wakeups(wakeups);  // it is there: no sleep
        CHECK((wakeups.ready || poll(wakeups.descriptors.data(), wakeups.descriptors.size(), 60'000) > 0));
        REQUIRE(eventually([&] { return bool(must(connection.receiver->receive(info))); }));
        CHECK(info.operation == number);
        REQUIRE(connection.receiver->release().ok());
    }
}

TEST_CASE("two ranks use the first network of the lower one that the other has, too", "[transport]") {
    CHECK(registry::agreed_transport({}, {}) == nullptr);
    const Networks all = registry::own_networks();
    size_t count = 0;
    const NameList allowed(options().transports);
    for (const Transport* transport : registry::transports())
        for (const Reached& reached : transport->networks()) {
            if (!allowed.admits(transport->name) || reached.network == 0 || !transport->available().empty()) continue;
            const NetworkFacts own = all[count++], other{uint16_t(own.mark ^ 1), {}};
            CHECK(registry::transport_of(own.mark) == transport);
            CHECK(registry::agreed_transport({own}, {own}) == transport);
            CHECK(registry::agreed_transport({other, own}, {own}) == transport);
            CHECK(registry::agreed_transport({own}, {other}) == nullptr);
            CHECK(registry::agreed_transport({}, {own}) == nullptr);
            CHECK(own.speed == reached.speed);
        }
    for (; count < all.size(); ++count) CHECK(all[count].mark == 0);
}

}  // namespace weft::internal::test
