// Messages between two queue pairs over the fake libibverbs, its order of memory, and its faults.
#include <random>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/verbs/side.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::verbs;

namespace {

const FakeVerbs fake(FAKE_IBVERBS_LIBRARY);

struct Two {
    explicit Two(const PathOptions& options = quick, const QueuePairOptions& pairs = {}, bool sleeps = false)
        : one(FAKE_IBVERBS_LIBRARY, "fake0", 1 << 20, pairs, sleeps),
          other(FAKE_IBVERBS_LIBRARY, "fake1", 1 << 20, pairs, sleeps) {
        connect(one, other, options);
        to = other.address();
        std::mt19937 numbers(7);
        for (std::byte& byte : one.buffer) byte = std::byte(numbers());
    }
    bool same(size_t bytes, size_t at = 0) const {
        return memcmp(one.buffer.data() + at, other.buffer.data() + at, bytes) == 0;
    }
    Side one, other;
    SideAddress to;
};

// Waits for so many completions of each status.
void expect(Side& side, int status, int count) {
    for (int i = 0; i < count; ++i) CHECK(side.next().status == status);
}

}  // namespace

TEST_CASE("sends, writes, reads and inline data arrive", "[verbs]") {
    {
        Two two;
        for (const size_t bytes : {size_t(1), size_t(77), size_t(4'096), size_t(300'001)}) {
            CHECK(two.other.receive(bytes, 5) == 0);
            CHECK(two.one.send(opcode::send, bytes, 9) == 0);
            const abi::Completion received = two.other.next();
            CHECK(received.status == wc::success);
            CHECK(received.wr_id == 5);
            CHECK(received.opcode == completed::receive);
            CHECK(received.byte_len == bytes);
            CHECK(two.same(bytes));
            const abi::Completion sent = two.one.next();
            CHECK((sent.status == wc::success && sent.wr_id == 9 && sent.opcode == completed::send));
        }
        // A write with imm; the receive has no memory.
        CHECK(two.other.receive(0, 1) == 0);
        CHECK(two.one.send(opcode::write_with_imm, 100'000, 2, 500'000, &two.to, 500'000, 0x12345678) == 0);
        const abi::Completion imm = two.other.next();
        CHECK(imm.opcode == completed::receive_write_with_imm);
        CHECK(imm.imm_data == __builtin_bswap32(0x12345678));
        CHECK((imm.wc_flags & completed::with_imm) != 0);
        CHECK(two.same(100'000, 500'000));
        expect(two.one, wc::success, 1);
        // Inline data may change after the call.
        CHECK(two.other.receive(200, 1) == 0);
        const std::byte first = two.one.buffer[0];
        CHECK(two.one.send(opcode::send, 200, 3, 0, nullptr, 0, 0, send_flag::signaled | send_flag::inline_data) == 0);
        two.one.buffer[0] = ~first;
        expect(two.other, wc::success, 1);
        CHECK(two.other.buffer[0] == first);
        expect(two.one, wc::success, 1);
        CHECK(two.one.send(opcode::send, 221, 3, 0, nullptr, 0, 0, send_flag::inline_data) == EINVAL);
        // A read sees earlier writes of the same queue pair.
        for (int i = 0; i < 20; ++i) {
            two.one.buffer[1'000] = std::byte(i);
            CHECK(two.one.send(opcode::write, 1, 1, 1'000, &two.to, 1'000, 0, 0) == 0);
            CHECK(two.one.send(opcode::read, 1, 2, 2'000, &two.to, 1'000) == 0);
            const abi::Completion read = two.one.next();
            CHECK((read.status == wc::success && read.opcode == completed::read));
            CHECK(two.one.buffer[2'000] == std::byte(i));
        }
    }
    CHECK(fake.objects() == 0);
}

TEST_CASE("data is complete at its receive completion, and only there", "[verbs]") {
    // Each message is two plain writes and one with imm. A reader that looks at the memory before the completion, as a
    // polling protocol does, must see a state that no order of sending could give.
    fake.run("seed 3; hold 2000");
    Two two;
    const unsigned long before = fake.count("reordered");
    constexpr size_t part = 4'096;
    int surprises = 0;
    for (int round = 1; round <= 300; ++round) {
        std::fill(two.one.buffer.begin(), two.one.buffer.begin() + 3 * part, std::byte(round));
        CHECK(two.other.receive(0, 0) == 0);
        CHECK(two.one.send(opcode::write, part, 1, 0, &two.to, 0, 0, 0) == 0);
        CHECK(two.one.send(opcode::write, part, 1, part, &two.to, part, 0, 0) == 0);
        CHECK(two.one.send(opcode::write_with_imm, part, 1, 2 * part, &two.to, 2 * part) == 0);
        abi::Completion completion{};
        for (int count = 0; count == 0;) {
#if !WEFT_TEST_TSAN
            // The last byte is new although an earlier one is old.
            volatile std::byte* bytes = two.other.buffer.data();
            const std::byte last = bytes[3 * part - 1];
            if (last == std::byte(round) && (bytes[0] != std::byte(round) || bytes[part] != std::byte(round)))
                ++surprises;
#endif
            count = two.other.queue->poll(&completion, 1);
        }
        CHECK(completion.status == wc::success);
        CHECK(two.same(3 * part));
        expect(two.one, wc::success, 1);
    }
    CHECK(fake.count("reordered") > before);
#if !WEFT_TEST_TSAN
    CHECK(surprises > 0);
#endif
    fake.run("hold 50");
}

TEST_CASE("a send's completion does not say that the data is in the peer's memory", "[verbs]") {
    fake.run("seed 5; hold 20000");
    Two two;
    int early = 0;
    for (int round = 1; round <= 100; ++round) {
        two.one.buffer[0] = std::byte(round);
        CHECK(two.one.send(opcode::write, 1, 1, 0, &two.to) == 0);
        expect(two.one, wc::success, 1);
#if !WEFT_TEST_TSAN
        early += *const_cast<volatile std::byte*>(two.other.buffer.data()) != std::byte(round);
#endif
    }
#if !WEFT_TEST_TSAN
    CHECK(early > 0);
#endif
    fake.run("hold 50");
}

TEST_CASE("a queue has places until a later completion is taken", "[verbs]") {
    Two two(quick, {.send_requests = 4, .receive_requests = 2});
    for (int i = 0; i < 3; ++i) CHECK(two.one.send(opcode::write, 8, 1, 0, &two.to, 0, 0, 0) == 0);
    CHECK(two.one.send(opcode::write, 8, 4, 0, &two.to) == 0);
    CHECK(two.one.send(opcode::write, 8, 5, 0, &two.to) == ENOMEM);
    CHECK(two.one.next().wr_id == 4);
    for (int i = 0; i < 4; ++i) CHECK(two.one.send(opcode::write, 8, 1, 0, &two.to, 0, 0, 0) == 0);
    CHECK(two.other.receive(0, 1) == 0);
    CHECK(two.other.receive(0, 2) == 0);
    CHECK(two.other.receive(0, 3) == ENOMEM);
    // A list ends at the first request that does not fit.
    abi::ReceiveRequest list[2]{};
    list[0].next = &list[1];
    abi::ReceiveRequest* failed = nullptr;
    CHECK(two.one.pair->post(&list[0], &failed) == 0);
    CHECK(two.one.pair->post(&list[0], &failed) == ENOMEM);
    CHECK(failed == &list[0]);
}

TEST_CASE("a completion wakes the sleeper who armed the queue", "[verbs]") {
    Two two(quick, {}, true);
    for (int round = 0; round < 100; ++round) {
        CHECK(two.other.receive(8, 1) == 0);
        done(two.other.queue->arm());
        CHECK(two.one.send(opcode::send, 8, 1) == 0);
        pollfd wait{two.other.queue->fd(), POLLIN, 0};
        REQUIRE(poll(&wait, 1, 60'000) == 1);
        two.other.queue->take_signals();
        expect(two.other, wc::success, 1);
        CHECK(poll(&wait, 1, 0) == 0);
        expect(two.one, wc::success, 1);
    }
}

TEST_CASE("lost messages are sent again, and arrive once", "[verbs]") {
    Two two;
    for (int i = 0; i < 200; ++i) CHECK(two.other.receive(8, uint64_t(i), size_t(i) * 8) == 0);
    fake.run("lose 3 1; lose 20 5; lose 120 1");
    for (int i = 0; i < 200; ++i) CHECK(two.one.send(opcode::send, 8, uint64_t(i), size_t(i) * 8) == 0);
    for (int i = 0; i < 200; ++i) {
        const abi::Completion received = two.other.next();
        CHECK((received.status == wc::success && received.wr_id == uint64_t(i)));
        CHECK(two.one.next().status == wc::success);
    }
    CHECK(two.same(1'600));
    CHECK(fake.count("resent") > 0);
    CHECK(fake.count("lost") >= 7);
}

TEST_CASE("a receiver that is not ready delays the sender, or fails it", "[verbs]") {
    Two two;
    const unsigned long before = fake.count("rnr");
    CHECK(two.one.send(opcode::send, 8, 1) == 0);
    CHECK(eventually([&] { return fake.count("rnr") > before; }));
    CHECK(two.other.receive(8, 1) == 0);
    expect(two.other, wc::success, 1);
    expect(two.one, wc::success, 1);
}

TEST_CASE("each status of a completion fails the queue pair and flushes the rest", "[verbs]") {
    for (const int status : {1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 16, 19, 20, 21}) {
        INFO(status);
        {
            Two two;
            fake.run(fmt::format("complete {} 3", status));
            for (int i = 0; i < 5; ++i) CHECK(two.one.send(opcode::write, 8, uint64_t(i), 0, &two.to) == 0);
            CHECK(two.one.receive(8, 77) == 0);
            expect(two.one, wc::success, 2);
            const abi::Completion failed = two.one.next();
            CHECK(failed.status == status);
            CHECK(failed.wr_id == 2);
            const std::string text = completion_error(failed, two.one.address().end, two.to.end, quick).sentence();
            CHECK(text.find(fmt::format("(status {},", status)) != std::string::npos);
            CHECK(text.find("look up the status") == std::string::npos);
            expect(two.one, wc::flushed, 3);  // two sends, one receive
            CHECK(taken(two.one.pair->state()) == state::error);
        }
        CHECK(fake.objects() == 0);
    }
}

TEST_CASE("a wrong key, a place outside, or a missing right is a remote access error", "[verbs]") {
    const auto failure = [](auto change, int operation = opcode::write) {
        Two two;
        SideAddress to = two.to;
        change(to);
        CHECK(two.one.send(operation, 8, 1, 0, &to) == 0);
        const int status = two.one.next().status;
        CHECK(eventually([&] { return two.other.context->next_event().has_value(); }));
        CHECK(taken(two.other.pair->state()) == state::error);
        return status;
    };
    CHECK(failure([](SideAddress& to) { to.rkey += 1'000; }) == wc::remote_access);
    CHECK(failure([](SideAddress& to) { to.memory += (1 << 20) - 7; }) == wc::remote_access);
    CHECK(failure([](SideAddress& to) { to.memory -= 1; }, opcode::read) == wc::remote_access);
    Two two;
    two.other.region.reset();
    // The key of an earlier registration of the same memory.
    two.other.region.emplace(
        taken(MemoryRegion::host(*two.other.domain, two.other.buffer.data(), two.other.buffer.size(), all_access)));
    CHECK(two.other.region->rkey() != two.to.rkey);
    CHECK(two.one.send(opcode::write, 8, 1, 0, &two.to) == 0);
    CHECK(two.one.next().status == wc::remote_access);
}

TEST_CASE("a message that is too long, or local memory that is not registered, is an error", "[verbs]") {
    {
        Two two;
        CHECK(two.other.receive(8, 1) == 0);
        CHECK(two.one.send(opcode::send, 9, 1) == 0);
        CHECK(two.one.next().status == wc::remote_invalid_request);
        CHECK(two.other.next().status == wc::local_length);
        CHECK(eventually([&] { return two.other.context->next_event().has_value(); }));
    }
    Two two;
    two.one.region.reset();
    two.one.region.emplace(taken(MemoryRegion::host(*two.one.domain, two.one.buffer.data(), 64, all_access)));
    CHECK(two.one.send(opcode::send, 65, 1) == 0);
    CHECK(two.one.next().status == wc::local_protection);
}

TEST_CASE("a port that is down ends requests after the retries, or at once as Soft-RoCE does", "[verbs]") {
    for (const int at_once : {0, wc::local_operation}) {
        Two two;
        fake.run(fmt::format("down_status {}; port fake0 down", at_once));
        CHECK(two.one.send(opcode::write, 8, 1, 0, &two.to) == 0);
        CHECK(two.one.next().status == (at_once ? at_once : wc::retry_exceeded));
        CHECK(two.one.context->next_event()->type == event::port_error);
        fake.run("down_status 0; port fake0 up");
        // The way back: both ends reset, with new numbers.
        done(two.other.pair->fail_requests());
        done(two.one.pair->reset());
        done(two.other.pair->reset());
        connect(two.one, two.other);
        CHECK(two.other.receive(0, 1) == 0);
        CHECK(two.one.send(opcode::write_with_imm, 8, 2, 0, &two.to) == 0);
        expect(two.other, wc::success, 1);
        CHECK(two.one.next().wr_id == 2);
        CHECK(two.same(8));
    }
}

TEST_CASE("a peer without a queue pair, or of another GID, ends the retries", "[verbs]") {
    {
        Two two;
        two.other.pair.reset();
        CHECK(two.one.send(opcode::write, 8, 1, 0, &two.to) == 0);
        CHECK(two.one.next().status == wc::retry_exceeded);
    }
    Two two;
    for (const int index : {2, 3})
        fake.run(fmt::format("gid fake1 {} 0000:0000:0000:0000:0000:ffff:0a4d:0909 {} 1", index, index - 1));
    fake.run("event fake1 18");
    CHECK(two.one.send(opcode::write, 8, 1, 0, &two.to) == 0);
    CHECK(two.one.next().status == wc::retry_exceeded);
    CHECK(two.other.context->next_event()->type == event::gid_change);
    for (const int index : {2, 3})
        fake.run(fmt::format("gid fake1 {} 0000:0000:0000:0000:0000:ffff:0a4d:0101 {} 1", index, index - 1));
}

TEST_CASE("calls of the data path fail as they are told", "[verbs]") {
    Two two(quick, {}, true);
    fake.run("fail post_send 2 12; fail post_recv 1 22; fail poll_cq 1 5; fail req_notify_cq 1 5");
    CHECK(two.one.send(opcode::write, 8, 1, 0, &two.to) == 0);
    CHECK(two.one.send(opcode::write, 8, 1, 0, &two.to) == ENOMEM);
    CHECK(two.other.receive(8, 1) == EINVAL);
    abi::Completion completion;
    CHECK(two.one.queue->poll(&completion, 1) < 0);
    CHECK(two.one.queue->arm().id() == error::verbs_call);
    expect(two.one, wc::success, 1);
}

TEST_CASE("a completion queue that overruns raises an event", "[verbs]") {
    Two two;
    const auto small = taken(CompletionQueue::make(*two.one.context, 2, false));
    const auto pair = taken(QueuePair::make(*two.one.domain, *small, *small, {}));
    done(pair->init(1, 0, all_access));
    for (uint64_t i = 0; i < 3; ++i) {
        abi::ReceiveRequest request{};
        request.wr_id = i;
        abi::ReceiveRequest* failed = nullptr;
        CHECK(pair->post(&request, &failed) == 0);
    }
    done(pair->fail_requests());
    CHECK(two.one.context->next_event()->type == event::cq_error);
}

TEST_CASE("a device that is removed flushes its requests and refuses calls", "[verbs]") {
    // The last test of the program that uses fake0: it does not come back.
    {
        Two two;
        CHECK(two.one.receive(8, 1) == 0);
        fake.run("after 2 remove fake0");
        CHECK(two.one.send(opcode::write, 8, 1, 0, &two.to) == 0);
        CHECK(two.one.send(opcode::write, 8, 2, 0, &two.to) == 0);
        for (int flushed = 0; flushed == 0;) flushed = two.one.next().status == wc::flushed;
        CHECK(eventually([&] {
            const auto happened = two.one.context->next_event();
            return happened && happened->type == event::device_fatal;
        }));
        CHECK(two.one.send(opcode::write, 8, 3, 0, &two.to) == EIO);
        CHECK(two.one.context->port(1).status().id() == error::verbs_device);
        CHECK(ProtectionDomain::make(*two.one.context).status().id() == error::verbs_call);
    }
    CHECK(fake.objects() == 0);
    CHECK(taken(DeviceList::read(taken(load_transport_functions(FAKE_IBVERBS_LIBRARY)))).open("fake0").status().id() ==
          error::verbs_device);
}
