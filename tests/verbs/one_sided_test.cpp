// one_sided_test.cpp: puts, gets and given slots on links of several queue pairs. Over the fake libibverbs, which
// acknowledges writes before their bytes are in memory, and lets them land in any order.
#include <algorithm>
#include <random>

#include "tests/amount.hpp"
#include "tests/verbs/connections.hpp"
#include "transports/user_memory.hpp"
#include "transports/verbs/registered.hpp"

namespace weft::internal::test {
namespace {

struct Registered {
    std::vector<std::byte> bytes;
    std::unique_ptr<RegisteredMemory> memory;
    explicit Registered(size_t size, RangeKind kind = RangeKind::user) : bytes(size) {
        memory = taken(verbs_transport().register_memory({.data = bytes.data(), .bytes = size, .kind = kind}));
    }
    std::byte* data() { return bytes.data(); }
};

verbs::Settings several_lanes(int rails, int pairs) {
    verbs::Settings settings = quick_settings("");
    settings.rails = rails;
    settings.pairs_per_rail = pairs;
    settings.striped_bytes = 4'096;
    settings.part_bytes = 10'000;
    settings.pair.send_requests = 16;  // queues run full
    settings.path.retries = 7;
    return settings;
}

void fill(std::byte* data, size_t bytes, uint64_t round) {
    for (size_t i = 0; i < bytes; ++i) data[i] = Line::byte_of(round, i);
}

// As eventually(), with many attempts before each sleep.
bool soon(auto&& condition) {
    return eventually([&] {
        for (int attempt = 0; attempt < 10'000; ++attempt)
            if (condition()) return true;
        return false;
    });
}

}  // namespace

TEST_CASE("a message that was sent after puts arrives after their bytes, on any number of lanes", "[one-sided]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const auto [rails, pairs] = GENERATE(table<int, int>({{1, 1}, {1, 3}, {2, 2}}));
    INFO(rails << " rails, " << pairs << " pairs");
    const WithSettings held(several_lanes(rails, pairs));
    fake_verbs().run("reorder 1; hold 300; late 0");
    const TwoRanks ranks;
    Line line = ranks.line(0, 3, 6'000);
    Registered ours(60'000), theirs(60'000);
    const auto peer = taken(line.sender->attach(theirs.memory->key()));
    std::vector<std::byte> expected(theirs.bytes);
    for (uint64_t round = 0; round < (small() ? 20u : 60u); ++round) {
        // Each put has a source of its own until the message has arrived.
        size_t begin = 0;
        for (int puts = 0; puts < 3; ++puts) {
            const size_t most = random() % 2 ? 100 : 20'000, bytes = random() % most;
            const size_t at = random() % (expected.size() - bytes);
            fill(ours.data() + begin, bytes, round * 3 + uint64_t(puts));
            const auto put = [&] {
                return taken(line.sender->put(ours.data() + begin, ours.memory.get(), *peer, at, bytes));
            };
            REQUIRE(soon(put));
            std::copy_n(ours.data() + begin, bytes, expected.begin() + long(at));
            begin += bytes;
            // Two lanes may write to one place in any order.
            REQUIRE(soon([&] { return line.send(); }));
            REQUIRE(soon([&] { return line.arrives(); }));
            if (theirs.bytes != expected) FAIL("round " << round << ": a put of " << bytes << " bytes is late");
        }
    }
    fake_verbs().run("reorder 1; hold 50; late 0");
}

TEST_CASE("puts and gets that are counted are complete, and many are under way at once", "[one-sided]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const auto [rails, pairs] = GENERATE(table<int, int>({{1, 1}, {2, 2}}));
    const WithSettings held(several_lanes(rails, pairs));
    fake_verbs().run("reorder 1; hold 300; late 0");
    const TwoRanks ranks;
    Line line = ranks.line(1, 2, 1'000);
    constexpr size_t piece = 7'000, count = 100;
    Registered ours(piece * count), theirs(piece * count), back(piece * count);
    const auto peer = taken(line.sender->attach(theirs.memory->key()));
    fill(ours.data(), ours.bytes.size(), random());
    const auto complete = [&](uint64_t transfers) {
        return taken(line.sender->progress()) && line.sender->transferred() >= transfers;
    };
    for (size_t i = 0; i < count; ++i)
        REQUIRE(soon([&] {
            (void)taken(line.sender->progress());
            return taken(line.sender->put(ours.data() + i * piece, ours.memory.get(), *peer, i * piece, piece));
        }));
    REQUIRE(soon([&] { return complete(count); }));
    CHECK(line.sender->transferred() == count);
    CHECK(theirs.bytes == ours.bytes);
    for (size_t i = 0; i < count; ++i)
        REQUIRE(soon([&] {
            (void)taken(line.sender->progress());
            return taken(line.sender->get(back.data() + i * piece, back.memory.get(), *peer, i * piece, piece));
        }));
    REQUIRE(soon([&] { return complete(2 * count); }));
    CHECK(back.bytes == ours.bytes);
    fake_verbs().run("reorder 1; hold 50; late 0");
}

TEST_CASE("a put into memory that is no longer registered is an error on both ranks and is never counted",
          "[one-sided]") {
    const TwoRanks ranks;
    Line line = ranks.line(0, 2, 500);
    REQUIRE(line.send());
    REQUIRE(eventually([&] { return line.arrives(); }));
    Registered ours(1'000), theirs(1'000);
    const auto peer = taken(line.sender->attach(theirs.memory->key()));
    theirs.memory.reset();
    // A new registration of the same bytes has another key.
    if (GENERATE(false, true))
        theirs.memory =
            taken(verbs_transport().register_memory({.data = theirs.data(), .bytes = 1'000, .kind = RangeKind::user}));
    REQUIRE(taken(line.sender->put(ours.data(), ours.memory.get(), *peer, 0, 1'000)));
    Status sender, receiver;
    REQUIRE(eventually([&] {
        if (auto through = line.sender->progress(); !through) sender = through.take_status();
        SlotInfo info;
        if (auto slot = line.receiver->receive(info); !slot) receiver = slot.take_status();
        return !sender.ok() && !receiver.ok();
    }));
    CHECK_ERROR(sender, "verbs.completion");
    CHECK_ERROR(receiver, "verbs.completion");
    CHECK(line.sender->transferred() == 0);
    CHECK(theirs.bytes == std::vector<std::byte>(1'000));
    CHECK_FALSE(line.sender->put(ours.data(), ours.memory.get(), *peer, 0, 1'000).ok());
}

TEST_CASE("a key of another process, a short one, and ranges outside registered memory are refused", "[one-sided]") {
    const TwoRanks ranks;
    Line line = ranks.line(0, 2, 500);
    Registered ours(1'000), theirs(1'000);
    auto key = theirs.memory->key();
    const auto peer = taken(line.sender->attach(key));
    RegisteredMemory* const memory = ours.memory.get();
    CHECK_ERROR(line.sender->put(ours.data(), memory, *peer, 1, 1'000), "internal.state");
    CHECK_ERROR(line.sender->put(ours.data(), memory, *peer, SIZE_MAX, 2), "internal.state");
    CHECK_ERROR(line.sender->get(ours.data() + 1, memory, *peer, 0, 1'000), "internal.state");
    CHECK_ERROR(line.sender->get(ours.data(), nullptr, *peer, 0, 1), "internal.state");
    for (size_t bytes = 0; bytes < key.size(); ++bytes)
        CHECK_ERROR(line.sender->attach(std::span(key).first(bytes)), "internal.state");
    key[4] ^= std::byte{1};  // the process
    CHECK_ERROR(line.sender->attach(key), "internal.state");
}

TEST_CASE("registered memory of the user is found by ranges that it holds, until it ends", "[one-sided]") {
    UserMemory memory(&verbs_transport(), 0);
    std::vector<std::byte> bytes(10'000);
    CHECK(memory.find(bytes.data(), 1) == nullptr);
    const RegisteredMemory* const all = memory.add(bytes.data() + 1'000, 8'000);
    REQUIRE(all != nullptr);
    CHECK(memory.find(bytes.data() + 1'000, 8'000) == all);
    CHECK(memory.find(bytes.data() + 5'000, 4'000) == all);
    CHECK(memory.find(bytes.data() + 5'000, 4'001) == nullptr);
    CHECK(memory.find(bytes.data() + 999, 2) == nullptr);
    CHECK(memory.find(bytes.data() + 9'000, 1) == nullptr);
    const RegisteredMemory* const part = memory.add(bytes.data() + 4'000, 1'000);
    CHECK(memory.find(bytes.data() + 4'500, 100) == part);
    CHECK(memory.find(bytes.data() + 1'500, 100) == all);
    memory.remove(part, UserMemory::Users::none);
    CHECK(memory.find(bytes.data() + 4'500, 100) == all);
    // Senders of a dead communicator may still look at the object, and no device uses the memory.
    memory.remove(all, UserMemory::Users::senders);
    CHECK(memory.find(bytes.data() + 4'500, 100) == nullptr);
    CHECK(all->holds(bytes.data() + 1'000, 8'000));
    CHECK(static_cast<const verbs::Registered*>(all)->lkey(0) == 0);
    CHECK(memory.add(bytes.data(), 0) == nullptr);
    CHECK(UserMemory(nullptr, 0).add(bytes.data(), 100) == nullptr);
}

TEST_CASE("slots given at either end carry messages, also in stripes", "[one-sided]") {
    const bool at_sender = GENERATE(true, false), at_receiver = GENERATE(true, false);
    INFO((at_sender ? "given at the sender " : "") << (at_receiver ? "given at the receiver" : ""));
    const WithSettings held(several_lanes(2, 2));
    const TwoRanks ranks;
    constexpr int depth = 3;
    constexpr size_t slot_bytes = 30'000;
    Registered of_sender(depth * slot_bytes, RangeKind::slots), of_receiver(depth * slot_bytes, RangeKind::slots);
    Line line{.from = 0, .depth = depth, .slot_bytes = slot_bytes, .receiver = {}, .sender = {}, .failure = {}};
    ConnectionOptions receiving = ranks.options(1, line), sending = ranks.options(0, line);
    if (at_receiver) receiving.slots = of_receiver.data(), receiving.slot_memory = of_receiver.memory.get();
    if (at_sender) sending.slots = of_sender.data(), sending.slot_memory = of_sender.memory.get();
    Blob blob;
    line.receiver = taken(verbs_transport().listen(receiving, blob));
    line.sender = taken(verbs_transport().connect(sending, blob));
    while (line.received < 100) {
        if (line.sent < 100) (void)line.send();
        (void)taken(line.sender->progress());
        (void)line.receive();
    }
    // A given slot is free when sent() has counted its message.
    REQUIRE(eventually([&] { return taken(line.sender->progress()); }));
    CHECK(line.sender->sent() == 100);
    CHECK(std::any_of(of_sender.bytes.begin(), of_sender.bytes.end(), [](std::byte b) { return b != std::byte{}; }) ==
          at_sender);
    CHECK(std::any_of(of_receiver.bytes.begin(), of_receiver.bytes.end(),
                      [](std::byte b) { return b != std::byte{}; }) == at_receiver);
}

}  // namespace weft::internal::test
