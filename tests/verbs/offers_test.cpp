// offers_test.cpp: messages over verbs that go straight into memory that the receiver has offered. Every order of memory,
// lanes that fail, late offers, and the end of all offers after a failure. Over the fake libibverbs.
#include <unistd.h>

#include <algorithm>
#include <random>

#include "tests/amount.hpp"
#include "tests/verbs/connections.hpp"
#include "transports/verbs/offers/offer_posting.hpp"

namespace weft::internal::test {
namespace {

constexpr std::byte untouched{0x5a};

struct Memory {
    std::vector<std::byte> bytes;
    std::unique_ptr<RegisteredMemory> memory;
    explicit Memory(size_t size) : bytes(size, untouched) {
        memory = taken(verbs_transport().register_memory({.data = bytes.data(), .bytes = size}));
    }
    std::byte* data() { return bytes.data(); }
};

verbs::Settings settings_of(int rails, int pairs) {
    verbs::Settings settings = quick_settings(rails > 1 ? "" : "=fake0");
    settings.rails = rails;
    settings.pairs_per_rail = pairs;
    settings.striped_bytes = 8'192;
    settings.no_lane_us = 60'000'000;
    settings.pair.send_requests = 16;
    return settings;
}

// A line whose receiver offers a target to most messages, some of which are too small.
struct Offering {
    std::vector<std::unique_ptr<Memory>> targets;  // by message modulo the depth; they end after the connection
    Line line;
    size_t slot_bytes;
    uint64_t depth;
    std::vector<size_t> capacities;
    uint64_t offered_end = 0, offered = 0, direct = 0;

    Offering(const TwoRanks& ranks, int from, int slots, size_t bytes)
        : line(ranks.line(from, slots, bytes)), slot_bytes(bytes), depth(uint64_t(slots)), capacities(size_t(slots)) {
        REQUIRE(line.failure.ok());
        for (int slot = 0; slot < slots; ++slot) targets.push_back(std::make_unique<Memory>(bytes + 64));
    }
    void offer(std::mt19937& random) {
        offered_end = std::max(offered_end, line.received);
        for (; offered_end < line.received + depth; ++offered_end) {
            if (random() % 8 == 0) continue;
            const size_t bytes = Line::length_of(offered_end, slot_bytes);
            const size_t place = size_t(offered_end % depth);
            capacities[place] = random() % 4 == 0 ? bytes / 2 : std::min(slot_bytes, bytes + random() % 100);
            Memory& target = *targets[place];
            if (!taken(line.receiver->offer(target.data(), capacities[place], target.memory.get(), offered_end)))
                continue;
            ++offered;
        }
    }
    bool receive() {
        SlotInfo info;
        const Slot slot = taken(line.receiver->receive(info));
        if (!slot) return false;
        const uint64_t number = line.received;
        Memory& target = *targets[size_t(number % depth)];
        const bool into_offer = slot.data == target.data();
        if (info.operation != number || info.bytes != Line::length_of(number, slot_bytes))
            throw std::runtime_error(fmt::format("message {} is another", number));
        for (size_t i = 0; i < info.bytes; ++i)
            if (slot.data[i] != Line::byte_of(number, i))
                throw std::runtime_error(fmt::format("byte {} of message {} is wrong", i, number));
        if (into_offer && info.bytes > capacities[size_t(number % depth)])
            throw std::runtime_error(fmt::format("message {} is larger than its offer", number));
        for (size_t i = into_offer ? info.bytes : 0; i < target.bytes.size(); ++i)
            if (target.bytes[i] != untouched)
                throw std::runtime_error(fmt::format("byte {} of the target of message {} was written", i, number));
        direct += into_offer;
        std::fill(target.bytes.begin(), target.bytes.end(), untouched);
        done(line.receiver->release());
        ++line.received;
        return true;
    }
};

// All lines send and receive `more` messages each.
void run(std::vector<Offering>& all, uint64_t more, std::mt19937& random) {
    std::vector<uint64_t> ends;
    for (const Offering& each : all) ends.push_back(each.line.received + more);
    REQUIRE(eventually([&] {
        for (int turn = 0; turn < 2'000; ++turn) {
            const size_t place = random() % all.size();
            Offering& each = all[place];
            each.offer(random);
            if (each.line.sent < ends[place] && random() % 4) (void)each.line.send();
            (void)taken(each.line.sender->progress());
            if (random() % 4) (void)each.receive();
            bool through = true;
            for (size_t i = 0; i < all.size(); ++i) through = through && all[i].line.received == ends[i];
            if (through) return true;
        }
        return false;
    }));
}

std::vector<Offering> offerings(const TwoRanks& ranks) {
    std::vector<Offering> all;
    all.emplace_back(ranks, 0, 4, 60'000);
    all.emplace_back(ranks, 1, 3, 20'000);
    all.emplace_back(ranks, 0, 1, 5'000);
    all.emplace_back(ranks, 1, 8, 300);
    return all;
}

// Gives entries of offers the time to reach the sender, or messages the time to land.
void pass(Line& line, int turns = 300) {
    for (; turns > 0; --turns) (void)line.sender->progress(), usleep(50);
}

}  // namespace

TEST_CASE("messages go to their offers in any order of memory, and to slots without one that they fit", "[offers]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const auto [statements, rails, pairs] =
        GENERATE(table<std::string, int, int>({{"reorder 1; hold 50; late 0", 1, 1},
                                               {"reorder 1; hold 300; late 200", 1, 2},
                                               {"reorder 0", 1, 1},
                                               {"reorder 1; hold 50; late 100", 2, 2},
                                               {"reorder 1; lose 20 3; lose 90 1", 2, 1}}));
    INFO(statements << ", " << rails << " rails, " << pairs << " pairs");
    const WithSettings held(settings_of(rails, pairs));
    fake_verbs().run(statements);
    {
        const TwoRanks ranks;
        std::vector<Offering> all = offerings(ranks);
        run(all, 100, random);
        uint64_t offered = 0, direct = 0;
        for (const Offering& each : all) offered += each.offered, direct += each.direct;
        CHECK(direct > 0);
        CHECK(direct < offered);
    }
    fake_verbs().run("no_faults; reorder 1; hold 50; late 0");
}

TEST_CASE("a lane that fails at any request loses and repeats no message, whether it is offered or not", "[offers]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const int status = GENERATE(12, 2);
    uint64_t direct = 0;
    for (int request = 1 + int(random() % 30); request <= 140; request += small() ? 50 : 30) {
        const int pairs = 1 + int(random() % 2);
        INFO(pairs << " pairs a rail, status " << status << " at request " << request);
        const WithSettings held(settings_of(2, pairs));
        const TwoRanks ranks;
        std::vector<Offering> all = offerings(ranks);
        fake_verbs().run(fmt::format("complete {} {}; after {} port fake1 down", status, request, request + 60));
        run(all, 40, random);
        fake_verbs().run("no_faults; port fake0 up; port fake1 up");
        run(all, 20, random);
        for (const Offering& each : all) direct += each.direct;
    }
    CHECK(direct > 0);
}

TEST_CASE("an offer brings the credit of the message before it, so messages behind the first ones need no slot",
          "[offers]") {
    const WithSettings held(settings_of(1, 1));
    const TwoRanks ranks;
    const int slots = GENERATE(2, 4, 8);
    INFO(slots << " slots");
    Memory source(20'000), target(20'000);
    Line line = ranks.line(0, slots, 20'000);
    const auto depth = uint64_t(slots);
    uint64_t posted = 0, direct = 0, offered_end = 0;
    constexpr uint64_t count = 60;
    REQUIRE(eventually([&] {
        for (int turn = 0; turn < 2'000 && line.received < count; ++turn) {
            const SlotInfo out{20'000, posted, 0};
            if (posted < count) posted += taken(line.sender->post(source.data(), source.memory.get(), out));
            (void)taken(line.sender->progress());
            SlotInfo info;
            const Slot slot = taken(line.receiver->receive(info));
            if (slot) {
                direct += slot.data == target.data();
                done(line.receiver->release());
                ++line.received;
            }
            // After the release: an earlier offer might come before the sender posts its first messages.
            for (offered_end = std::max(offered_end, line.received); slot && offered_end < line.received + depth;)
                (void)taken(line.receiver->offer(target.data(), 20'000, target.memory.get(), offered_end++));
        }
        return line.received == count;
    }));
    // At the first release no offer is open, so up to half of the slots are free at once.
    CHECK(direct >= count - 2 * depth);
}

TEST_CASE("message numbers of offers may pass the range of their immediate data", "[offers]") {
    const WithSettings held(settings_of(1, 1));
    fake_verbs().run("reorder 0");
    const TwoRanks ranks;
    Memory target(64);
    Line line = ranks.line(0, 8, 64);
    const uint64_t count = small() ? 5'000 : 70'000;  // the range is 65,536
    uint64_t posted = 0, offered_end = 0;
    REQUIRE(eventually([&] {
        for (int turn = 0; turn < 100'000 && line.received < count; ++turn) {
            while (posted < std::min(count, line.received + 8)) {
                const auto bytes = std::byte(posted);
                if (!taken(line.sender->send(&bytes, {1, posted, 0}))) break;
                ++posted;
            }
            (void)taken(line.sender->progress());
            SlotInfo info;
            while (const Slot slot = taken(line.receiver->receive(info))) {
                REQUIRE(info.operation == line.received);
                REQUIRE(*slot.data == std::byte(line.received));
                done(line.receiver->release());
                ++line.received;
            }
            // Rarely: entries have very different numbers, and many come late.
            if (line.received >= offered_end + 300) offered_end = line.received + line.received % 8;
            if (offered_end >= line.received)
                (void)taken(line.receiver->offer(target.data(), 64, target.memory.get(), offered_end));
        }
        return line.received == count;
    }));
    // An offer that has reached the sender before its message is used.
    REQUIRE(eventually([&] {
        (void)taken(line.receiver->offer(target.data(), 64, target.memory.get(), line.received));
        pass(line, 50);
        REQUIRE(taken(line.sender->send(&untouched, {1, line.received, 0})));
        SlotInfo info;
        Slot slot;
        REQUIRE(eventually([&] { return bool(slot = taken(line.receiver->receive(info))); }));
        done(line.receiver->release());
        ++line.received;
        return slot.data == target.data();
    }));
    fake_verbs().run("reorder 1");
}

TEST_CASE("an offer that comes before the sender knows its connection, or after its end, is void", "[offers]") {
    const verbs::TakenOffer taken = verbs::take_offer(nullptr, verbs::Immediate::of_offer(7, 3));
    CHECK(taken.wrong == nullptr);
    CHECK(taken.credits == 0);
}

TEST_CASE("when a receiver withdraws, its offered memory stays as it is", "[offers]") {
    // `lands`: without withdrawing, to see that the data would have come.
    const auto when = GENERATE(as<std::string>(), "lands", "on its way", "before");
    const int rails = GENERATE(1, 2);
    INFO(when << ", " << rails << " rails");
    const WithSettings held(settings_of(rails, 1));
    {
        const TwoRanks ranks;
        Memory source(200'000), target(200'000);
        Line line = ranks.line(0, 4, 200'000);
        REQUIRE(eventually([&] { return line.send(); }));
        REQUIRE(eventually([&] { return line.arrives(); }));
        std::fill(source.bytes.begin(), source.bytes.end(), std::byte{0x77});
        for (uint64_t number = 1; number < 4; ++number)
            REQUIRE(taken(line.receiver->offer(target.data(), 200'000, target.memory.get(), number)));
        pass(line);
        fake_verbs().run("hold 30000");
        if (when != "before") REQUIRE(taken(line.sender->post(source.data(), source.memory.get(), {200'000, 1, 0})));
        if (when != "lands") line.receiver->withdraw();
        if (when == "lands") {
            SlotInfo info;
            REQUIRE(eventually([&] {
                (void)taken(line.sender->progress());
                return taken(line.receiver->receive(info)).data == target.data();
            }));
            CHECK(std::count(target.bytes.begin(), target.bytes.end(), std::byte{0x77}) == 200'000);
        } else {
            const std::vector<std::byte> before = target.bytes;
            for (uint64_t number = when == "before" ? 1 : 2; number < 4; ++number)
                (void)line.sender->post(source.data(), source.memory.get(), {200'000, number, 0});
            pass(line, 1'200);
            CHECK(target.bytes == before);
            // With several lanes the sender tries all of them first.
            const auto id = [&] { return seen(line.sender->progress().take_status()).id; };
            if (rails == 1) CHECK(eventually([&] { return id() == "verbs.completion"; }));
            CHECK(!taken(line.receiver->offer(target.data(), 100, target.memory.get(), 3)));
        }
        fake_verbs().run("hold 50");
    }
}

TEST_CASE("offers are declined for memory or messages that cannot have one", "[offers]") {
    const WithSettings held(settings_of(1, 1));
    const TwoRanks ranks;
    Memory target(2'000);
    Line line = ranks.line(0, 2, 1'000);
    RegisteredMemory* const memory = target.memory.get();
    const auto offers = [&](uint64_t number) {
        return taken(line.receiver->offer(target.data(), 1'000, memory, number));
    };
    CHECK(!offers(0));  // there is no link yet
    REQUIRE(eventually([&] { return line.send(); }));
    REQUIRE(eventually([&] { return line.arrives(); }));
    CHECK(line.receiver->next() == 1);
    CHECK(!offers(0));  // released
    CHECK(!offers(3));  // more ahead than there are slots
    CHECK(offers(2));
    CHECK(!offers(2));  // offered already
    CHECK(seen(line.receiver->offer(target.data() + 1'001, 1'000, memory, 1).status()).id == "internal.state");
    CHECK(seen(line.receiver->offer(target.data(), 1'000, nullptr, 1).status()).id == "internal.state");
    REQUIRE(eventually([&] { return line.send(); }));
    SlotInfo info;
    REQUIRE(
        eventually([&] { return (void)taken(line.sender->progress()), bool(taken(line.receiver->receive(info))); }));
    CHECK(!offers(1));  // arrived
    // Requests of the receiver have no room for the entry: it is no inline data.
    verbs::Settings settings = settings_of(1, 1);
    settings.pair.inline_bytes = 0;
    fake_verbs().run("max_inline 0");
    const WithSettings other(settings);
    const TwoRanks others;
    Line bare = others.line(0, 2, 1'000);
    REQUIRE(eventually([&] { return bare.send(); }));
    REQUIRE(eventually([&] { return bare.arrives(); }));
    CHECK(!taken(bare.receiver->offer(target.data(), 1'000, memory, 1)));
    fake_verbs().run("max_inline 512");
}

}  // namespace weft::internal::test
