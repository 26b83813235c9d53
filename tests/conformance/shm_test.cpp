// shm_test.cpp: promises of shared memory beyond transport_test.cpp: exact credits, detected damage, an error for a
// full heap.
#include "transports/shm/shm.hpp"

#include <deque>
#include <random>
#include <set>

#include "src/segment/shm_layout.hpp"
#include "tests/conformance/connection.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {
namespace {

const Transport& shm() { return shm_transport(); }

}  // namespace

TEST_CASE("a sender has as many credits as the connection has slots, and each release gives one back", "[shm]") {
    for (const int depth : {1, 2, 5}) {
        Connection connection(shm(), depth, 256);
        for (int i = 0; i < depth; ++i) REQUIRE(connection.send(uint64_t(i), 256));
        REQUIRE(!connection.send(100, 1));
        REQUIRE(!connection.send(100, 1));
        for (int i = 0; i < 20; ++i) {
            REQUIRE(connection.receive(uint64_t(i), 256));
            REQUIRE(connection.send(uint64_t(i + depth), 256));
            REQUIRE(!connection.send(100, 1));
        }
    }
}

TEST_CASE("on connections with many slots, messages that fit a header take no slot, and headers outnumber slots",
          "[shm]") {
    constexpr int depth = 16, headers = 4 * depth;
    const size_t ring_bytes = GENERATE(0, 64 << 10);
    Connection connection(shm(), depth, 256, ring_bytes);
    const auto sends = [&](uint64_t number, size_t bytes) {
        const std::vector<std::byte> data(bytes, std::byte(number & 0xff));
        const auto sent = connection.sender->send(data.data(), {bytes, number, uint32_t(number * 7)});
        if (!sent) FAIL(sent.status().sentence());
        return *sent;
    };
    for (int i = 0; i < headers; ++i) REQUIRE(sends(uint64_t(i), size_t(i % 17)));
    REQUIRE(!sends(100, 0));
    REQUIRE(!sends(100, 256));
    for (int i = 0; i < headers; ++i) REQUIRE(connection.receive(uint64_t(i), size_t(i % 17)));
    // A message that fits no header takes a slot; smaller messages still go behind it.
    for (int i = 0; i < depth; ++i) REQUIRE(sends(uint64_t(i), 256));
    REQUIRE(!sends(100, 17));
    for (int i = depth; i < headers; ++i) REQUIRE(sends(uint64_t(i), 8));
    REQUIRE(!sends(100, 8));
    REQUIRE(connection.receive(0, 256));
    REQUIRE(sends(uint64_t(headers), 17));
    REQUIRE(!sends(100, 8));
    for (int i = 1; i <= headers; ++i) REQUIRE(connection.receive(uint64_t(i), i < depth ? 256 : i < headers ? 8 : 17));

    // In any order, far ahead and caught up.
    std::minstd_rand random(7);
    std::deque<size_t> under_way;
    uint64_t sent = 0, received = 0;
    bool ahead = true;
    while (received < 20'000) {
        const size_t bytes = random() % 2 == 0 ? random() % 17 : random() % 257;
        if (random() % 100 == 0) ahead = !ahead;
        if ((ahead || random() % 4 == 0) && sends(sent, bytes)) {
            under_way.push_back(bytes);
            ++sent;
        }
        if ((!ahead || random() % 4 == 0) && !under_way.empty()) {
            REQUIRE(connection.receive(received++, under_way.front()));
            under_way.pop_front();
        }
    }
}

TEST_CASE("more slots given back than were taken are damage", "[shm]") {
    Connection connection(shm(), 2, 128);
    const Slot slot = *connection.sender->acquire();
    for (int i = 0; i < 2; ++i) REQUIRE(connection.send(uint64_t(i), 100));
    // The count of released slots lies in a line of its own in front of the headers.
    auto* const released = reinterpret_cast<std::atomic<uint64_t>*>(slot.data - 2 * sizeof(SlotHeader) - line_bytes);
    REQUIRE(released->load() == 0);
    released->store(GENERATE(as<uint64_t>(), 3, ~uint64_t(0)));
    const auto acquired = connection.sender->acquire();
    REQUIRE(!acquired.ok());
    CHECK_ERROR(acquired, "internal.damaged", 0, 1);
}

TEST_CASE("a slot with a wrong number is an error, not a message", "[shm]") {
    const Transport& transport = shm();
    const uint64_t lie = GENERATE(as<uint64_t>(), 2, 5, 1u << 31);
    Connection connection(transport, 2, 128);
    const Slot slot = *connection.sender->acquire();
    REQUIRE(connection.send(1, 10));
    // The headers of both slots lie in front of the first one's data: damage its.
    reinterpret_cast<SlotHeader*>(slot.data - 2 * sizeof(SlotHeader))->published.store(lie << 32);
    SlotInfo info;
    const auto got = connection.receiver->receive(info);
    REQUIRE(!got.ok());
    CHECK_ERROR(got, "internal.damaged", 1, 0);
}

TEST_CASE("data go round through the whole ring, past slots that hold addresses or next to nothing", "[shm]") {
    constexpr size_t slot_bytes = 1000, ring_bytes = 20'032, inline_most = sizeof SlotHeader::inline_data;
    Connection connection(shm(), 3, slot_bytes, ring_bytes);
    std::set<const std::byte*> begins;
    std::minstd_rand random(5);
    uint64_t sent = 0, received = 0;
    std::deque<size_t> expected;
    while (received < 3000) {
        const size_t bytes = random() % 4 == 0 ? random() % (inline_most + 1) : slot_bytes - random() % 60;
        if (auto slot = *connection.sender->acquire(); slot && random() % 3 != 0) {
            REQUIRE(slot.capacity == slot_bytes);
            if (random() % 5 == 0) {
                REQUIRE(connection.sender->publish({slot_bytes * 50, sent++, 0, 0x1000}).ok());
                expected.push_back(SIZE_MAX);
                continue;
            }
            if (bytes > inline_most) begins.insert(slot.data);
            REQUIRE(connection.send(sent++, bytes));
            expected.push_back(bytes);
        } else if (!expected.empty()) {
            if (expected.front() == SIZE_MAX) {
                SlotInfo info;
                REQUIRE(*connection.receiver->receive(info));
                REQUIRE(info.address == 0x1000);
                REQUIRE(connection.receiver->release().ok());
            } else {
                REQUIRE(connection.receive(received, expected.front()));
            }
            ++received;
            expected.pop_front();
        }
    }
    // All lie within the ring, and reach to where one more would not fit.
    CHECK(*begins.rbegin() - *begins.begin() <= ptrdiff_t(ring_bytes - 1024));
    CHECK(*begins.rbegin() - *begins.begin() > ptrdiff_t(ring_bytes - 2 * 1024));
}

const size_t heap_end = SegmentLayout::heap_bytes_most - SegmentLayout{2, 2}.oob_bytes();

TEST_CASE("a ring is given up where the heap is short, and one that cannot be is refused", "[shm]") {
    Connection connection(shm(), 2, 1024, 64 << 10);
    Blob blob;
    REQUIRE(shm().listen(connection.options(0, 2, 1024), blob).ok());
    for (const uint64_t ring : {uint64_t(1), uint64_t(3 * 1024 - 1), uint64_t(heap_end), ~uint64_t(0)}) {
        Blob wrong = blob;
        wrong.words[3] = ring;
        CAPTURE(ring);
        CHECK(!shm().connect(connection.options(1, 2, 1024), wrong).ok());
    }
    const size_t before = connection.heap_used[0] = heap_end / 4 - (32 << 10);
    REQUIRE(shm().listen(connection.options(0, 2, 1024), blob).ok());
    CHECK(connection.heap_used[0] - before < 4096);
    CHECK(shm().connect(connection.options(1, 2, 1024), blob).ok());
}

TEST_CASE("an address outside the peer's heap is refused", "[shm]") {
    Connection connection(shm(), 2, 128);
    Blob right;
    REQUIRE(shm().listen(connection.options(0, 2, 128), right).ok());
    for (const uint64_t place :
         {uint64_t(heap_end) - 64, uint64_t(heap_end), right.words[0] + 1, ~uint64_t(63), ~uint64_t(0)}) {
        Blob wrong = right;
        wrong.words[0] = place;
        CAPTURE(place);
        const auto sender = shm().connect(connection.options(1, 2, 128), wrong);
        CHECK_ERROR(sender, "internal.damaged", 0, 1);
    }
}

TEST_CASE("a rank whose heap is full gets an error with the remedy, and takes nothing", "[shm]") {
    const Transport& transport = shm();
    Connection connection(transport, 2, 128);
    size_t used = heap_end - (size_t(1) << 20);
    ConnectionOptions options = connection.options(0, 2, 100 << 10);
    options.heap_used = &used;
    int fitted = 0;
    for (;;) {
        const size_t before = used;
        Blob blob;
        auto receiver = transport.listen(options, blob);
        if (receiver.ok()) {
            REQUIRE(++fitted < 100);
            continue;
        }
        CHECK_ERROR(receiver, "shm.full", 0, 1);
        CHECK(used == before);
        break;
    }
    CHECK(fitted == 5);
    CHECK(used <= heap_end);
}

}  // namespace weft::internal::test
