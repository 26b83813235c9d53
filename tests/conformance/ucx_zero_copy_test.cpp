// ucx_zero_copy_test.cpp: messages over UCX between buffers of the caller, without slots, and the end of all use of these
// buffers after a failure. Needs WEFT_TRANSPORTS=ucx.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/conformance/connection.hpp"
#include "tests/error.hpp"

// A worker that stopped with requests is never destroyed, so neither is what UCX allocated for these.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libucs.so"; }

namespace weft::internal::test {
namespace {

constexpr size_t large = 8 << 20;  // more than sockets hold

// Null: not in this run.
const Transport* ucx() {
    for (const Transport* row : usable_transports())
        if (std::string(row->name) == "ucx") return row;
    return nullptr;
}
bool by_tcp() {
    const char* transports = getenv("UCX_TLS");
    return transports && std::string(transports) == "tcp";
}

// A connection whose ends have met, and which has passed one message.
struct Met : Connection {
    Met(const Transport& transport, int depth, size_t bytes) : Connection(transport, depth, bytes) {
        REQUIRE(soon([&] { return send(0, 8); }));
        REQUIRE(arrives(0, 8));
    }
    bool offer(std::byte* target, size_t capacity, uint64_t message) {
        auto offered = receiver->offer(target, capacity, nullptr, message);
        if (!offered) FAIL(offered.status().sentence());
        return *offered;
    }
    bool post(const std::byte* data, size_t bytes, uint64_t number) {
        auto posted = sender->post(data, nullptr, {bytes, number, 0});
        if (!posted) FAIL(posted.status().sentence());
        return *posted;
    }
    // While the sender goes on.
    Slot arrived(SlotInfo& info) {
        Slot found;
        REQUIRE(soon([&] {
            auto slot = receiver->receive(info);
            if (!slot) FAIL(slot.status().sentence());
            found = *slot;
            return bool(found);
        }));
        return found;
    }
};

// Pages that can be unmapped: UCX would crash or fail if it read or wrote there afterwards.
struct Pages {
    std::byte* data =
        static_cast<std::byte*>(mmap(nullptr, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Pages() { REQUIRE(data != MAP_FAILED); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() { munmap(data, large); }
    void forbid() const { REQUIRE(mprotect(data, large, PROT_NONE) == 0); }
};

// Until the message has written a part of the target.
void begin_to_receive(Met& connection, const std::byte* target) {
    REQUIRE(eventually([&] {
        (void)connection.push();
        SlotInfo info;
        const auto slot = connection.receiver->receive(info);
        REQUIRE(slot.ok());
        REQUIRE(!*slot);
        return target[0] != std::byte{};
    }));
}

}  // namespace

TEST_CASE("messages over UCX go from the sender's buffer to the offered one without slots", "[ucx]") {
    const Transport* const transport = ucx();
    if (!transport) return;
    const size_t bytes = GENERATE(size_t(1), 1'000, 40'000, 256 << 10, large);
    INFO(bytes << " bytes");
    Met connection(*transport, 2, large);
    std::vector<std::byte> source(large, std::byte{1}), target(large + 1);
    const bool direct = connection.offer(target.data(), bytes, 1);
    CHECK(direct == by_tcp());
    REQUIRE(connection.post(source.data(), bytes, 1));
    // The end of a large message does not fit the sockets yet, and a slot would keep its old value.
    const std::byte last{bytes == large && direct ? uint8_t(2) : uint8_t(1)};
    if (bytes == large) source.back() = std::byte{2};
    SlotInfo info;
    const Slot slot = connection.arrived(info);
    CHECK((slot.data == target.data()) == direct);
    REQUIRE(info.bytes == bytes);
    const auto whole = [&](const std::byte* data) {
        return size_t(std::count(data, data + bytes - 1, std::byte{1})) == bytes - 1 && data[bytes - 1] == last;
    };
    CHECK(whole(slot.data));
    CHECK(target[bytes] == std::byte{});
    CHECK(!connection.offer(target.data(), bytes, 1));  // it has arrived
    REQUIRE(connection.receiver->receive_into(target.data(), bytes, info).ok());
    CHECK(whole(target.data()));
    CHECK(connection.soon([&] { return connection.push() && connection.sender->sent() == 2; }));
}

TEST_CASE("a message over UCX that is larger than its offer, or has none, takes a slot", "[ucx]") {
    const Transport* const transport = ucx();
    if (!transport) return;
    const size_t bytes = GENERATE(size_t(1'000), 1 << 20);
    INFO(bytes << " bytes");
    Met connection(*transport, 2, 1 << 20);
    std::vector<std::byte> source(bytes, std::byte{1}), target(bytes);
    CHECK(!connection.offer(target.data(), bytes, 0));  // released
    CHECK(!connection.offer(target.data(), bytes, 3));  // more ahead than there are slots
    CHECK(connection.offer(target.data(), bytes - 1, 1) == by_tcp());
    CHECK(!connection.offer(target.data(), bytes, 1));  // offered already
    for (uint64_t number = 1; number < 3; ++number) {
        REQUIRE(connection.soon([&] { return connection.post(source.data(), bytes, number); }));
        SlotInfo info;
        const Slot slot = connection.arrived(info);
        CHECK(slot.data != target.data());
        CHECK(info.operation == number);
        CHECK(size_t(std::count(slot.data, slot.data + bytes, std::byte{1})) == bytes);
        REQUIRE(connection.receiver->release().ok());
        CHECK(connection.receiver->next() == number + 1);
    }
    CHECK(std::count(target.begin(), target.end(), std::byte{}) == std::ptrdiff_t(bytes));
}

TEST_CASE("a sender over UCX needs no call of a receiver that has taken its messages", "[ucx]") {
    const Transport* const transport = ucx();
    if (!transport) return;
    constexpr size_t bytes = 12'000;  // together more than a sender may leave to the kernel
    Met connection(*transport, 16, bytes);
    for (uint64_t number = 1; number < 6; ++number) {
        REQUIRE(connection.soon([&] { return connection.send(number, bytes); }));
        REQUIRE(connection.arrives(number, bytes));
    }
    CHECK(connection.soon([&] { return connection.push(); }));
}

TEST_CASE("when a receiver over UCX withdraws, its buffer stays as it is, whatever has arrived", "[ucx]") {
    const Transport* const transport = ucx();
    if (!transport || !by_tcp()) return;
    const auto when = GENERATE(as<std::string>(), "under way", "under way, and ends", "posted", "before");
    INFO(when);
    Pages source, target;
    Met connection(*transport, 2, large);
    std::fill(source.data, source.data + large, std::byte{1});
    REQUIRE(connection.offer(target.data, large, 1));
    if (when != "before") REQUIRE(connection.post(source.data, large, 1));
    const bool begun = when == "under way" || when == "under way, and ends";
    if (begun) begin_to_receive(connection, target.data);
    if (begun) REQUIRE(target.data[large - 1] == std::byte{});
    if (when == "under way, and ends")
        connection.receiver.reset();
    else
        connection.receiver->withdraw();
    target.forbid();
    if (connection.receiver) CHECK(!connection.offer(target.data, large, 2));
    if (when == "before") REQUIRE(connection.post(source.data, large, 1));
    // The rest of the message comes, and goes elsewhere.
    REQUIRE(eventually([&] {
        for (int turn = 0; turn < 100; ++turn) {
            SlotInfo info;
            auto slot = connection.receiver ? connection.receiver->receive(info) : Result<Slot>(Slot{});
            REQUIRE(slot.ok());
            if (*slot) REQUIRE(connection.receiver->release().ok());
            auto through = connection.sender->progress();
            if (!through || *through) return true;
        }
        return false;
    }));
}

TEST_CASE("when a sender over UCX withdraws, its buffer is not read any more", "[ucx]") {
    const Transport* const transport = ucx();
    if (!transport || !by_tcp()) return;
    const auto when = GENERATE(as<std::string>(), "under way", "under way, and ends", "posted", "no credit");
    INFO(when);
    Pages source;
    std::vector<std::byte> target(large);
    Met connection(*transport, 1, large);
    std::fill(source.data, source.data + large, std::byte{1});
    REQUIRE(connection.offer(target.data(), large, 1));
    // A message without a credit is kept for later.
    if (when == "no credit") {
        SlotInfo info;
        REQUIRE(connection.soon([&] { return connection.send(1, 8); }));
        REQUIRE(connection.arrived(info).data == target.data());
        REQUIRE(connection.soon([&] { return connection.post(source.data, large, 2); }));
    } else {
        REQUIRE(connection.soon([&] { return connection.post(source.data, large, 1); }));
    }
    if (when.starts_with("under way")) begin_to_receive(connection, target.data());
    if (when == "under way, and ends")
        connection.sender.reset();
    else
        connection.sender->withdraw();
    source.forbid();
    if (connection.sender) CHECK_ERROR(connection.sender->progress(), "ucx.broken", 0, 1);
    // The messages that UCX had sent before are there, and nothing else comes. The control plane tells the receiver.
    if (when == "no credit") REQUIRE(connection.receiver->release().ok());
    for (int turn = 0; turn < 200; ++turn) {
        SlotInfo info;
        const auto slot = connection.receiver->receive(info);
        REQUIRE(slot.ok());
        REQUIRE(!*slot);
    }
}

}  // namespace weft::internal::test
