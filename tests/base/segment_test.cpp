// segment_test.cpp: the ranks of a host in their segment: the first error, entries, liveness, and access of other
// processes.
#include "src/segment/segment.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/base/process_token.hpp"
#include "src/base/rank_set.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/first_cause.hpp"
#include "src/segment/host_cpus.hpp"
#include "src/segment/liveness.hpp"
#include "src/segment/oob_store.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {
namespace {

std::shared_ptr<Segment> group_of(int ranks) {
    auto segment = Segment::create(ranks);
    REQUIRE(segment.ok());
    return *segment;
}

Fd descriptor(const Segment& segment) { return Fd(fcntl(segment.memory().fd(), F_DUPFD_CLOEXEC, 0)); }

}  // namespace

TEST_CASE("rows, lines and heaps of all ranks lie apart and inside the segment", "[segment]") {
    for (const int ranks : {1, 2, 7, 300}) {
        const auto segment = group_of(ranks);
        const SegmentLayout geometry{ranks, ranks};
        CHECK(geometry.host_infos() >= sizeof(SegmentHeader) + sizeof(RankInfo) * size_t(ranks));
        CHECK(geometry.rows() >= geometry.host_infos() + sizeof(HostInfo) * size_t(ranks));
        CHECK(geometry.lines() >= geometry.rows() + sizeof(RankRow) * size_t(ranks));
        CHECK(geometry.heap(0) >= geometry.lines() + geometry.lines_bytes());
        CHECK(segment->memory().segment_bytes() >= geometry.heap(ranks - 1) + geometry.heap_bytes);
        for (int rank = 0; rank < ranks; ++rank) {
            CHECK(reinterpret_cast<uintptr_t>(segment->heaps().at(rank)) % 64 == 0);
            CHECK(segment->row(rank).state.load() == RankState::absent);
        }
    }
}

TEST_CASE("where address space is limited heaps are smaller, down to a least size", "[segment]") {
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    const auto under = [&](rlim_t bytes) {
        const rlimit limit{bytes, before.rlim_max};
        const bool set = setrlimit(RLIMIT_AS, &limit) == 0;
        const size_t heap = SegmentLayout::affordable_heap_bytes(7);
        return setrlimit(RLIMIT_AS, &before) == 0 && set ? heap : 0;
    };
    CHECK(under(rlim_t(1) << 40) == SegmentLayout::heap_bytes_most);
    CHECK(under(rlim_t(1) << 30) == size_t(32) << 20);
    CHECK(under(rlim_t(256) << 20) == SegmentLayout::heap_bytes_least);
}

TEST_CASE("ranks count the processors that they may use, and no more than their control group's time", "[segment]") {
    const auto segment = group_of(8);
    for (int rank = 0; rank < 8; ++rank) {
        segment->row(rank).cpus.words[0] = 0xff;
        segment->row(rank).quota = {1, 2.9};
    }
    CHECK(cores_of(*segment) == 2);
    segment->row(7).quota = {2, 3};
    CHECK(cores_of(*segment) == 5);
    segment->row(6).quota = {};
    CHECK(cores_of(*segment) == 8);
}

TEST_CASE("a second mapping of the segment is the same segment; any other memory is refused", "[segment]") {
    const auto segment = group_of(3);
    {
        auto other = Segment::map(descriptor(*segment));
        REQUIRE(other.ok());
        CHECK((*other)->ranks() == 3);
        segment->row(2).cpu.store(17);
        CHECK((*other)->row(2).cpu.load() == 17);
        FailureRecord(**other).raise(error::timeout_collective, 1, "late", {.rank = 2, .peer = 1, .sequence = 7});
        CHECK_ERROR(FailureRecord(*segment).status(), "timeout.collective", 2, 1);
        CHECK(FailureRecord(*segment).status().facts().sequence == 7);
        CHECK(FailureRecord(*segment).status().code() == weftTimeout);
    }
    SegmentHeader& header = segment->header();
    const struct {
        uint64_t magic;
        uint32_t version;
        int32_t ranks;
    } before{header.magic, header.version, header.ranks};
    const auto refused = [&] { return !Segment::map(descriptor(*segment)).ok(); };
    header.magic ^= 1;
    CHECK(refused());
    header.magic = before.magic;
    header.version += 1;  // another release
    CHECK(refused());
    header.version = before.version;
    for (const int ranks : {0, -1, 2, 4, max_ranks + 1, INT32_MAX}) {
        header.ranks = ranks;
        CHECK(refused());
    }
    header.ranks = before.ranks;
    CHECK(!refused());
    auto tiny = SharedMemory::create("weft-test", 64);
    REQUIRE(tiny.ok());
    CHECK(!Segment::map(Fd(fcntl(tiny->fd(), F_DUPFD_CLOEXEC, 0))).ok());
}

TEST_CASE("the first error wins, whole, and all ranks read the same", "[segment]") {
    for (int round = 0; round < 200; ++round) {
        const auto segment = group_of(4);
        CHECK(!segment->aborted());
        CHECK(FailureRecord(*segment).status().ok());
        std::atomic<int> winners{0}, winner{-1};
        std::vector<std::string> read(4);
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 4; ++rank)
            threads.emplace_back([&, rank] {
                if (FailureRecord(*segment).raise(error::rank_died, rank,
                                                  "rank " + std::to_string(rank) + std::string(200, char('a' + rank)),
                                                  {.rank = rank})) {
                    ++winners;
                    winner = rank;
                }
                read[size_t(rank)] = FailureRecord(*segment).status().sentence();
            });
        for (std::thread& thread : threads) thread.join();
        REQUIRE(winners == 1);
        REQUIRE(segment->aborted());
        const std::string expected = "rank " + std::to_string(winner) + std::string(200, char('a' + winner));
        for (const std::string& sentence : read) REQUIRE(sentence == expected);
        CHECK_ERROR(FailureRecord(*segment).status(), "rank.died", winner);
        CHECK(segment->header().abort.rank == winner);
    }
}

TEST_CASE("an error counts although its reporter never finishes it", "[segment]") {
    const auto segment = group_of(2);
    segment->header().abort.state = 1;
    CHECK(segment->aborted());
    CHECK_ERROR(FailureRecord(*segment).status(), "rank.failed");
}

TEST_CASE("a rank that ended after it returned an error is not the cause, unless it has called again", "[segment]") {
    const auto segment = group_of(3);
    REQUIRE(segment->back_rows(0, 3));
    segment->row(0).process = process_token();
    // Ranks 1 and 2 hold no lock: they are dead.
    const auto reported = [&] {
        return first_cause(*segment, fail(error::rank_died, "rank 1 died").about({.rank = 1, .peer = 0}));
    };
    CHECK_ERROR(reported(), "rank.died", 1);
    segment->row(1).position.enter(4, Operation{});
    CHECK(segment->row(1).returned_error.write(4, {error::rank_died, "rank 2 died", {.rank = 2, .peer = 1}}));
    CHECK_FALSE(segment->row(1).returned_error.write(4, {error::timeout_collective, "something later"}));
    CHECK_ERROR(Liveness(*segment).returned_error(1), "rank.died", 2, 1);
    CHECK(Liveness(*segment).returned_error(1).sentence() == "rank 2 died");
    CHECK_ERROR(reported(), "rank.died", 2);
    CHECK_ERROR(known_cause(*segment), "rank.died", 2);
    // Rank 2 lives: the error that rank 1 returned is the cause.
    segment->row(2).process = process_token();
    CHECK(known_cause(*segment));
    CHECK_ERROR(reported(), "rank.failed", 1, 0);
    CHECK(reported().sentence().find("rank 2 died") != std::string::npos);
    // A rank that left without an error is the cause of the others' errors.
    segment->row(2).state = RankState::left;
    CHECK_ERROR(first_cause(*segment, fail(error::rank_left, "rank 2 left"), 2), "rank.left");
    CHECK_ERROR(first_cause(*segment, fail(error::rank_left, "rank 1 left"), 1), "rank.failed");
    segment->row(2).state = RankState::joined;
    segment->row(1).position.enter(5, Operation{});
    CHECK(Liveness(*segment).returned_error(1).ok());
    CHECK_ERROR(reported(), "rank.died", 1);
    CHECK(segment->row(1).returned_error.write(5, {error::rank_died, std::string(1000, 'x')}));
    CHECK(Liveness(*segment).returned_error(1).sentence() == std::string(ReturnedError::sentence_bytes - 1, 'x'));
}

TEST_CASE("a sentence too long for the record is cut, not spilt", "[segment]") {
    const auto segment = group_of(1);
    FailureRecord(*segment).raise(error::shm_memory, 0, std::string(5000, 'x'));
    CHECK(FailureRecord(*segment).status().sentence() == std::string(sizeof(AbortRecord::sentence) - 1, 'x'));
    CHECK(segment->row(0).state.load() == RankState::absent);
}

TEST_CASE("an entry is found by its key once it is posted, among those of its writer only", "[segment]") {
    const auto segment = group_of(2);
    CHECK(OobStore(*segment).get(0, 5) == nullptr);
    const char text[] = "where I listen";
    REQUIRE(OobStore(*segment).put(0, 0, 5, text, sizeof text).ok());
    const std::byte* found = OobStore(*segment).get(0, 5);
    REQUIRE(found);
    CHECK(memcmp(found, text, sizeof text) == 0);
    CHECK(OobStore(*segment).get(1, 5) == nullptr);
    CHECK(OobStore(*segment).get(0, 6) == nullptr);
}

TEST_CASE("a reader of entries sees them whole while they are posted", "[segment]") {
    const auto segment = group_of(2);
    constexpr uint64_t count = 2000;
    std::atomic<bool> posted{true};
    std::thread writer([&] {
        for (uint64_t key = 1; key <= count; ++key) {
            std::vector<uint64_t> words(OobEntry::value_bytes / 8, key);
            if (!OobStore(*segment).put(0, 0, key, words.data(), words.size() * 8).ok()) posted = false;
        }
    });
    for (uint64_t key = 1; key <= count; ++key) {
        const std::byte* entry = nullptr;
        while (!(entry = OobStore(*segment).get(0, key)) && posted) std::this_thread::yield();
        const std::vector<uint64_t> words(OobEntry::value_bytes / 8, key);
        if (!entry || memcmp(entry, words.data(), words.size() * 8) != 0) {
            writer.join();
            FAIL("entry " << key << " is not whole");
        }
    }
    writer.join();
    CHECK(posted);
}

TEST_CASE("an OOB store that is full and an entry that is too long are sentences", "[segment]") {
    const auto segment = group_of(1);
    const size_t entries_max = SegmentLayout{1, 1}.oob_entries();
    const std::vector<std::byte> most(OobEntry::value_bytes + 1);
    CHECK(!OobStore(*segment).put(0, 0, 1, most.data(), most.size()).ok());
    for (uint64_t key = 0; key < entries_max; ++key)
        REQUIRE(OobStore(*segment).put(0, 0, key, most.data(), OobEntry::value_bytes).ok());
    const Status full = OobStore(*segment).put(0, 0, 99999, most.data(), 1);
    CHECK(!full.ok());
    CHECK_THAT(full.sentence(), Catch::Contains("no room"));
    CHECK(OobStore(*segment).get(0, 0) != nullptr);
    CHECK(OobStore(*segment).get(0, entries_max - 1) != nullptr);
    CHECK(OobStore(*segment).get(0, 99999) == nullptr);
}

TEST_CASE("an OOB store has room for four connections with each of the most ranks", "[segment]") {
    auto made = Segment::create(max_ranks, false);
    REQUIRE(made.ok());
    Segment& segment = **made;
    constexpr int here = 64;
    for (int rank = 0; rank < max_ranks; ++rank) segment.rank_info(rank).host = rank / here;
    segment.header().spread = 1;
    REQUIRE(segment.settle().ok());
    const std::byte data{1};
    uint64_t key = 0;
    for (int purpose = 0; purpose < 4; ++purpose)
        for (int peer = 0; peer < max_ranks; ++peer) REQUIRE(OobStore(segment).put(0, peer, ++key, &data, 1).ok());
    CHECK(OobStore(segment).get(0, key) != nullptr);
    CHECK(RemoteOobStore(segment.heaps(), segment.header().oob_received).entries_max() >= 4 * here * max_ranks);
}

TEST_CASE("entries of other hosts are found among many thousands, and too many are a sentence", "[segment]") {
    constexpr int ranks = 12;  // 0 and 1 are here
    auto made = Segment::create(ranks, false);
    REQUIRE(made.ok());
    Segment& segment = **made;
    for (int rank = 0; rank < ranks; ++rank) segment.rank_info(rank).host = rank / 2;
    segment.header().spread = 1;
    REQUIRE(segment.settle().ok());
    OobEntry entry{};
    const auto oob_deliver = [&](int from, uint64_t key) {
        entry.from = from;
        entry.to = int(key % 2);
        entry.key = key;
        memcpy(entry.data, &key, sizeof key);
        return OobStore(segment).deliver(entry);
    };
    CHECK(OobStore(segment).get(5, 1) == nullptr);
    constexpr uint64_t each = 3000;
    for (uint64_t key = 0; key < each; ++key)
        for (int from = 2; from < ranks; ++from) REQUIRE(oob_deliver(from, key).ok());
    for (uint64_t key = 0; key < each; ++key)
        for (int from = 2; from < ranks; ++from) {
            const std::byte* found = OobStore(segment).get(from, key);
            REQUIRE(found);
            REQUIRE(memcmp(found, &key, sizeof key) == 0);
        }
    CHECK(OobStore(segment).get(5, each) == nullptr);
    Status full;
    const size_t entries_max = RemoteOobStore(segment.heaps(), segment.header().oob_received).entries_max();
    CHECK(entries_max >= 2 * SegmentLayout{ranks, 2}.oob_entries());
    for (uint64_t key = each; full && key < 2 * entries_max; ++key) full = oob_deliver(2, key);
    CHECK(segment.header().oob_received == entries_max);
    CHECK_THAT(full.sentence(), Catch::Contains("no room"));
    CHECK_THAT(full.sentence(), Catch::Contains("rank 2"));
}

TEST_CASE("ranks of other hosts are known, and cost little memory as long as there is nothing to say of them",
          "[segment]") {
    constexpr int ranks = 1024;
    auto made = Segment::create(ranks, false);
    REQUIRE(made.ok());
    Segment& segment = **made;
    std::vector<HostInfo> hosts(ranks);
    for (int host = 0; host < ranks; ++host) {
        ("node" + std::to_string(host)).copy(hosts[size_t(host)].name, sizeof hosts[0].name - 1);
        segment.rank_info(host).host = host;
        segment.rank_info(host).pid = 1000 + host;
    }
    REQUIRE(segment.write(SegmentLayout{ranks, 0}.host_infos(), hosts.data(), hosts.size() * sizeof(HostInfo)).ok());
    segment.header().own_host = 7;
    segment.header().spread = 1;
    REQUIRE(segment.settle().ok());
    CHECK(segment.locals() == std::vector{7});
    CHECK(segment.name_of(1000) == "rank 1000 (pid 2000 on node1000)");
    CHECK(FailureRecord(segment).raise(error::timeout_collective, 7, "late"));
    struct stat status;
    REQUIRE(fstat(segment.memory().fd(), &status) == 0);
    CHECK(size_t(status.st_blocks) * 512 < 320 * ranks);  // half of it for ten networks
    // Until one dies.
    CHECK(Liveness(segment).alive(500));
    mark_dead(segment, 500);
    CHECK(!Liveness(segment).alive(500));
    CHECK(Liveness(segment).alive(501));
}

TEST_CASE("a rank of this process lives; one whose process holds no lock does not", "[segment]") {
    const auto segment = group_of(2);
    segment->row(0).process = process_token();
    segment->row(1).process = process_token() + 1;
    CHECK(Liveness(*segment).alive(0));
    CHECK(!Liveness(*segment).alive(1));  // of a living process with its lock: tests/conformance
}

TEST_CASE("the cores of a segment are those that any of its ranks may run on", "[segment]") {
    const auto segment = group_of(3);
    segment->row(0).cpus = {};
    segment->row(0).cpus.words[0] = 0b0001;
    segment->row(1).cpus.words[0] = 0b0011;
    segment->row(2).cpus.words[15] = 1;
    CHECK(cores_of(*segment) == 3);
}

}  // namespace weft::internal::test
