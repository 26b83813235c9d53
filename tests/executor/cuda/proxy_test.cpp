// proxy_test.cpp: the proxy between the kernels' flags and transports, over a transport that is a queue in memory.
// Order, credits, broken connections, and ranks that leave.
#include "src/gpu/proxy/proxy.hpp"

#include <deque>

#include "src/base/clock.hpp"
#include "src/base/process_token.hpp"
#include "src/gpu/kernels/device.hpp"
#include "src/segment/failure_record.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"

namespace weft::internal::test {

using namespace cuda;

namespace {

constexpr uint32_t depth = 2;
constexpr size_t slot_bytes = 64;
constexpr int64_t patience_us = 60'000'000;  // nothing here takes that long

// The network. Thread-safe.
struct Wire {
    struct Message {
        std::vector<std::byte> data;
        SlotInfo info;
    };
    std::mutex mutex;
    std::deque<Message> messages;
    size_t room = 1000;  // messages that it takes
    bool broken = false;

    template <class Body>
    auto locked(Body&& body) {
        std::lock_guard lock(mutex);
        return body();
    }
};

class WireSender final : public Sender {
  public:
    explicit WireSender(Wire& wire) : wire_(&wire) {}
    Result<Slot> acquire() override { return fail(error::internal_state, "nobody fills slots of it"); }
    Status publish(const SlotInfo&) override { return fail(error::internal_state, "nobody fills slots of it"); }
    Result<bool> send(const std::byte* data, const SlotInfo& info) override {
        return wire_->locked([&]() -> Result<bool> {
            if (wire_->broken) return fail(error::tcp_broken, "the wire is cut");
            if (wire_->messages.size() >= wire_->room) return false;
            wire_->messages.push_back({{data, data + info.bytes}, info});
            return true;
        });
    }

  private:
    Wire* wire_;
};

class WireReceiver final : public Receiver {
  public:
    explicit WireReceiver(Wire& wire) : wire_(&wire) {}
    Result<Slot> receive(SlotInfo&) override { return fail(error::internal_state, "nobody looks into slots of it"); }
    Status release() override { return fail(error::internal_state, "nobody looks into slots of it"); }
    Result<bool> receive_into(std::byte* target, size_t, SlotInfo& info) override {
        return wire_->locked([&]() -> Result<bool> {
            if (wire_->messages.empty()) {
                if (wire_->broken) return fail(error::tcp_broken, "the wire is cut");
                return false;
            }
            info = wire_->messages.front().info;
            const std::vector<std::byte>& data = wire_->messages.front().data;
            std::copy(data.begin(), data.end(), target);
            wire_->messages.pop_front();
            return true;
        });
    }

  private:
    Wire* wire_;
};

// Both ends in one process, with what kernels would do done by hand.
struct Ends {
    Ends() {
        group = *Segment::create(2);
        for (int rank = 0; rank < 2; ++rank) {
            REQUIRE(group->back_rows(rank, 1));
            group->row(rank).process = process_token();
        }
        traffic = std::make_shared<ProxyConnections>(group, 0, ended);
        traffic->add({0,
                      false,
                      {out.slots, out.filled, &out.consumed, nullptr, slot_bytes, depth, 1, lengths, nullptr},
                      wholes_sent},
                     &sender, nullptr);
        traffic->add({0,
                      true,
                      {in.slots, in.filled, &in.consumed, nullptr, slot_bytes, depth, 1, nullptr, &wanted},
                      wholes_received},
                     nullptr, &receiver);
    }
    void hand_over(uint32_t number) {
        const uint32_t slot = (number - 1) % depth;
        memset(out.slots + slot * slot_bytes, int(number), slot_bytes);
        lengths[slot] = number % slot_bytes;
        wholes_sent[slot] = 5000 + number;
        store_release(&out.filled[slot], barrier_word(number, 1000 + number));
    }
    // Until the message is there; then what it should be.
    void take(uint32_t number) {
        const uint32_t slot = (number - 1) % depth;
        REQUIRE(eventually([&] { return epoch_of(load_acquire(&in.filled[slot])) == number; }));
        CHECK(uint32_t(load_acquire(&in.filled[slot])) == 1000 + number);
        CHECK(wholes_received[slot] == 5000 + number);
        for (size_t i = 0; i < number % slot_bytes; ++i)
            CHECK(in.slots[slot * slot_bytes + i] == std::byte(uint8_t(number)));
    }
    bool sent(uint32_t number) {
        return eventually([&] { return load_acquire(&out.consumed) == number; });
    }

    struct Memory {
        alignas(64) std::byte slots[depth * slot_bytes] = {};
        uint64_t filled[depth] = {};
        uint32_t consumed = 0;
    } out, in;
    uint64_t lengths[depth] = {}, wholes_sent[depth] = {}, wholes_received[depth] = {};
    uint32_t wanted = 0, ended[1] = {};
    Wire wire;
    WireSender sender{wire};
    WireReceiver receiver{wire};
    std::shared_ptr<Segment> group;
    std::shared_ptr<ProxyConnections> traffic;
    std::shared_ptr<Proxy> proxy = *Proxy::of_process();
};

// A transport that uses the slots of its ends. The test says how far it got. Thread-safe.
struct GivenWire final : Sender, Receiver {
    std::mutex mutex;
    std::vector<SlotInfo> published;
    uint64_t sent_count = 0, arrived = 0, released = 0;
    std::byte *out = nullptr, *in = nullptr;

    Result<Slot> acquire() override {
        std::lock_guard lock(mutex);
        if (published.size() - sent_count == depth) return Slot{};
        return Slot{out + published.size() % depth * slot_bytes, slot_bytes};
    }
    Status publish(const SlotInfo& info) override {
        std::lock_guard lock(mutex);
        published.push_back(info);
        return ok();
    }
    Result<bool> progress() override {
        std::lock_guard lock(mutex);
        return published.size() == sent_count;
    }
    uint64_t sent() override {
        std::lock_guard lock(mutex);
        return sent_count;
    }
    void add_wakeups(Wakeups& wakeups) override { wakeups.by_time = true; }

    Result<Slot> receive(SlotInfo& info) override { return look_ahead(0, info); }
    Result<Slot> look_ahead(uint64_t ahead, SlotInfo& info) override {
        std::lock_guard lock(mutex);
        const uint64_t number = released + ahead;
        if (number >= arrived) return Slot{};
        info = {.bytes = slot_bytes, .operation = 5000 + number, .fingerprint = uint32_t(1000 + number)};
        return Slot{in + number % depth * slot_bytes, slot_bytes};
    }
    Status release() override {
        std::lock_guard lock(mutex);
        ++released;
        return ok();
    }
    template <class Body>
    auto locked(Body&& body) {
        std::lock_guard lock(mutex);
        return body();
    }
};

// The proxy waits until the wire has room for the message that was handed over.
void check_sends_once_there_is_room(Ends& ends) {
    std::thread making_room([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ends.wire.locked([&] { ends.wire.room = 1; });
    });
    CHECK(ends.proxy->detach(*ends.traffic, 0, patience_us));
    making_room.join();
    CHECK(load_acquire(&ends.out.consumed) == 1);
}

}  // namespace

TEST_CASE("messages go from slot to slot in order, with length and fingerprint, while there are credits", "[proxy]") {
    Ends ends;
    ends.proxy->attach(ends.traffic);
    ends.traffic->launching(1, 1);
    ends.proxy->wake();
    for (uint32_t number = 1; number <= 200; ++number) {
        ends.hand_over(number);
        CHECK(ends.sent(number));
        ends.take(number);
        store_release(&ends.in.consumed, number);
    }
    // No kernel consumes these: as many as slots arrive, the others wait.
    for (uint32_t number = 201; number <= 200 + depth + 1; ++number) {
        ends.hand_over(number);
        CHECK(ends.sent(number));
    }
    ends.take(201);
    ends.take(202);
    CHECK(ends.wire.locked([&] { return ends.wire.messages.size(); }) == 1);
    store_release(&ends.in.consumed, 201u);
    ends.take(203);
    CHECK(ends.proxy->detach(*ends.traffic, 0, patience_us));
    CHECK(ends.traffic->moved() > 0);
}

TEST_CASE("given slots are free again when their messages are sent, and return when they are consumed", "[proxy]") {
    Ends ends;
    GivenWire wire;
    wire.out = ends.out.slots;
    wire.in = ends.in.slots;
    auto traffic = std::make_shared<ProxyConnections>(ends.group, 0, ends.ended);
    const ConnectionEnd out{ends.out.slots, ends.out.filled, &ends.out.consumed, nullptr, slot_bytes, depth, 1,
                            ends.lengths,   nullptr},
        in{ends.in.slots, ends.in.filled, &ends.in.consumed, nullptr, slot_bytes, depth, 1, nullptr, &ends.wanted};
    traffic->add({0, false, out, ends.wholes_sent}, &wire, nullptr, true);
    traffic->add({0, true, in, ends.wholes_received}, nullptr, &wire, true);
    // The proxy's thread has no part in it, so every step is the test's.
    uint32_t handed = 0;
    for (uint32_t round = 0; round < 20; ++round) {
        while (handed - load_acquire(&ends.out.consumed) < depth) ends.hand_over(++handed);
        CHECK(traffic->progress());
        CHECK(wire.published.size() == handed);
        CHECK(wire.published.back().fingerprint == 1000 + handed);
        CHECK(load_acquire(&ends.out.consumed) == wire.sent_count);
        CHECK_FALSE(traffic->drained());
        wire.sent_count += round % 2 + 1;
        (void)traffic->progress();
        CHECK(load_acquire(&ends.out.consumed) == wire.sent_count);
    }
    wire.sent_count = handed;
    (void)traffic->progress();
    CHECK(traffic->drained());

    // Kernels see all that has arrived, in order, before they have consumed the first.
    wire.arrived = 5;
    CHECK(traffic->progress());
    for (const uint32_t number : {1u, 2u}) CHECK(ends.in.filled[number - 1] == barrier_word(number, 999 + number));
    CHECK(wire.released == 0);
    store_release(&ends.in.consumed, 1u);
    CHECK(traffic->progress());
    CHECK(wire.released == 1);
    CHECK(ends.in.filled[0] == barrier_word(3, 1002));
    CHECK(ends.wholes_received[0] == 5002);
    store_release(&ends.in.consumed, 3u);
    CHECK(traffic->progress());
    CHECK(wire.released == 3);
    CHECK(ends.in.filled[1] == barrier_word(4, 1003));
    CHECK(ends.in.filled[0] == barrier_word(5, 1004));
    CHECK_FALSE(traffic->progress());
}

TEST_CASE("a launch or a captured call wakes the proxy from its sleep", "[proxy]") {
    Ends ends;
    ends.proxy->attach(ends.traffic);
    uint32_t number = 0;
    for (uint32_t launch = 1; launch <= 3; ++launch) {
        // Longer than it polls by itself after the last event.
        std::this_thread::sleep_for(std::chrono::milliseconds(launch == 1 ? 400 : 10));
        ends.traffic->launching(launch, 1);
        ends.proxy->wake();
        ends.hand_over(++number);
        ends.take(number);
        store_release(&ends.in.consumed, number);
        store_relaxed(&ends.ended[0], launch);
    }
    ends.traffic->captured();
    ends.proxy->wake();
    ends.hand_over(++number);  // without a launch that anybody saw
    ends.take(number);
    CHECK(ends.proxy->detach(*ends.traffic, 0, patience_us));
}

TEST_CASE("a leaving rank waits until handed-over data is on its way, or gives up at the deadline", "[proxy]") {
    Ends ends;
    ends.wire.room = 0;
    ends.proxy->attach(ends.traffic);
    ends.hand_over(1);
    CHECK_FALSE(ends.proxy->detach(*ends.traffic, 1, patience_us));
    ends.proxy->attach(ends.traffic);
    check_sends_once_there_is_room(ends);
    // No rank waits for a communicator that has failed.
    ends.wire.locked([&] { ends.wire.room = 0; });
    ends.hand_over(2);
    ends.proxy->attach(ends.traffic);
    FailureRecord(*ends.group).raise(error::rank_failed, 1, "over");
    CHECK(ends.proxy->detach(*ends.traffic, 0, patience_us));
    CHECK(load_acquire(&ends.out.consumed) == 1);
}

TEST_CASE("data for a rank that has left delays no other rank for long", "[proxy]") {
    Ends ends;
    ends.wire.room = 0;
    ends.proxy->attach(ends.traffic);
    ends.hand_over(1);
    CHECK_FALSE(ends.proxy->detach(*ends.traffic, now_us() + 50'000, 0));  // it may still take it
    ends.group->row(1).state = RankState::left;
    ends.proxy->attach(ends.traffic);
    CHECK_FALSE(ends.proxy->detach(*ends.traffic, 0, 20'000));
    // Its kernels may still run: the proxy goes on with all other traffic.
    ends.proxy->attach(ends.traffic);
    check_sends_once_there_is_room(ends);
}

TEST_CASE("a broken connection is trouble when something should go over it, not before", "[proxy]") {
    const bool sending = GENERATE(false, true);
    Ends ends;
    ends.proxy->attach(ends.traffic);
    ends.traffic->captured();
    ends.proxy->wake();
    ends.hand_over(1);
    ends.take(1);
    store_release(&ends.in.consumed, 1u);
    ends.wire.locked([&] { ends.wire.broken = true; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // if it is wrong it is likely to show by then
    CHECK_FALSE(ends.traffic->trouble());
    CHECK_FALSE(ends.traffic->waiting());
    if (sending)
        ends.hand_over(2);
    else
        store_release(&ends.wanted, 2u);
    CHECK(eventually([&] { return ends.traffic->trouble().has_value(); }));
    CHECK(ends.traffic->waiting());
    CHECK(ends.traffic->trouble()->failure.code == weftRemoteError);
    CHECK(ends.traffic->trouble()->failure.sentence == "the wire is cut");
    CHECK(ends.proxy->detach(*ends.traffic, 0, patience_us));  // it cannot go, ever
}

}  // namespace weft::internal::test
