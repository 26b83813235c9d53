// host_group_test.cpp: the ranks of a host in their segment: the first error, entries, who lives, what another process
// may map.
#include "src/segment/host_group.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/segment/first_cause.hpp"
#include "tests/catch.hpp"

namespace weft::internal::test {
namespace {

std::shared_ptr<HostGroup> group_of(int ranks) {
    auto group = HostGroup::create(ranks);
    REQUIRE(group.ok());
    return *group;
}

Fd descriptor(const HostGroup& group) { return Fd(fcntl(group.memory().fd(), F_DUPFD_CLOEXEC, 0)); }

}  // namespace

TEST_CASE("rows, lines and heaps of all ranks lie apart and inside the segment", "[host_group]") {
    for (const int ranks : {1, 2, 7, 300}) {
        const auto group = group_of(ranks);
        const HostGeometry geometry{ranks, ranks};
        CHECK(geometry.host_infos() >= sizeof(HostHeader) + sizeof(RankInfo) * size_t(ranks));
        CHECK(geometry.rows() >= geometry.host_infos() + sizeof(HostInfo) * size_t(ranks));
        CHECK(geometry.lines() >= geometry.rows() + sizeof(RankRow) * size_t(ranks));
        CHECK(geometry.heap(0) >= geometry.lines() + geometry.lines_bytes());
        CHECK(group->memory().segment_bytes() >= geometry.heap(ranks - 1) + geometry.heap_bytes);
        for (int rank = 0; rank < ranks; ++rank) {
            CHECK(reinterpret_cast<uintptr_t>(group->heap(rank)) % 64 == 0);
            CHECK(group->row(rank).state.load() == RankState::absent);
        }
    }
}

TEST_CASE("where address space is limited heaps are smaller, down to a least size", "[host_group]") {
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    const auto under = [&](rlim_t bytes) {
        const rlimit limit{bytes, before.rlim_max};
        const bool set = setrlimit(RLIMIT_AS, &limit) == 0;
        const size_t heap = HostGeometry::affordable_heap_bytes(7);
        return setrlimit(RLIMIT_AS, &before) == 0 && set ? heap : 0;
    };
    CHECK(under(rlim_t(1) << 40) == HostGeometry::heap_bytes_most);
    CHECK(under(rlim_t(1) << 30) == size_t(32) << 20);
    CHECK(under(rlim_t(256) << 20) == HostGeometry::heap_bytes_least);
}

TEST_CASE("ranks count the processors that they may use, and no more than their control group's time", "[host_group]") {
    const auto group = group_of(8);
    for (int rank = 0; rank < 8; ++rank) {
        group->row(rank).cpus.words[0] = 0xff;
        group->row(rank).quota = {1, 2.9};
    }
    CHECK(group->cores() == 2);
    group->row(7).quota = {2, 3};
    CHECK(group->cores() == 5);
    group->row(6).quota = {};
    CHECK(group->cores() == 8);
}

TEST_CASE("a second mapping of the group is the same group; what is none is refused", "[host_group]") {
    const auto group = group_of(3);
    {
        auto other = HostGroup::map(descriptor(*group));
        REQUIRE(other.ok());
        CHECK((*other)->ranks() == 3);
        group->row(2).cpu.store(17);
        CHECK((*other)->row(2).cpu.load() == 17);
        (*other)->raise(weftTimeout, 1, "late");
        CHECK(group->abort_status().code() == weftTimeout);
    }
    HostHeader& header = group->header();
    const struct {
        uint64_t magic;
        uint32_t version;
        int32_t ranks;
    } before{header.magic, header.version, header.ranks};
    const auto refused = [&] { return !HostGroup::map(descriptor(*group)).ok(); };
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
    CHECK(!HostGroup::map(Fd(fcntl(tiny->fd(), F_DUPFD_CLOEXEC, 0))).ok());
}

TEST_CASE("the first error wins, whole, and all ranks read the same", "[host_group]") {
    for (int round = 0; round < 200; ++round) {
        const auto group = group_of(4);
        CHECK(!group->aborted());
        CHECK(group->abort_status().ok());
        std::atomic<int> winners{0}, winner{-1};
        std::vector<std::string> read(4);
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 4; ++rank)
            threads.emplace_back([&, rank] {
                if (group->raise(weftRemoteError, rank,
                                 "rank " + std::to_string(rank) + std::string(200, char('a' + rank)))) {
                    ++winners;
                    winner = rank;
                }
                read[size_t(rank)] = group->abort_status().sentence();
            });
        for (std::thread& thread : threads) thread.join();
        REQUIRE(winners == 1);
        REQUIRE(group->aborted());
        const std::string expected = "rank " + std::to_string(winner) + std::string(200, char('a' + winner));
        for (const std::string& sentence : read) REQUIRE(sentence == expected);
        CHECK(group->header().abort.rank == winner);
    }
}

TEST_CASE("an error whose reporter does not come to an end of it is one all the same", "[host_group]") {
    const auto group = group_of(2);
    group->header().abort.state = 1;
    CHECK(group->aborted());
    CHECK(group->abort_status().code() == weftRemoteError);
    CHECK(group->abort_status().sentence() == "a rank died, or was stopped, while it was reporting an error");
}

TEST_CASE("a rank that ended after it was told of a failure is not the cause, unless it has called again",
          "[host_group]") {
    const auto group = group_of(3);
    REQUIRE(group->back_rows(0, 3));
    group->row(0).process = process_token();
    // Ranks 1 and 2 hold no lock: they are dead.
    const auto reported = [&] { return first_cause(*group, fail(weftRemoteError, "rank 1 died")).sentence(); };
    CHECK(reported() == "rank 1 died");
    group->row(1).position.enter(4, Operation{});
    CHECK(group->row(1).told.write(4, "rank 2 died"));
    CHECK_FALSE(group->row(1).told.write(4, "something later"));
    CHECK(group->told(1) == "rank 2 died");
    CHECK(reported().rfind("rank 2 ", 0) == 0);
    CHECK(known_cause(*group).code() == weftRemoteError);
    // Rank 2 lives: what rank 1 was told is the cause.
    group->row(2).process = process_token();
    CHECK(known_cause(*group));
    CHECK(reported().find("rank 2 died") != std::string::npos);
    // A rank that left and was told nothing is the cause of what others were told.
    group->row(2).state = RankState::left;
    CHECK(first_cause(*group, fail(weftRemoteError, "rank 2 left"), 2).sentence() == "rank 2 left");
    CHECK(first_cause(*group, fail(weftRemoteError, "rank 1 left"), 1).sentence() != "rank 1 left");
    group->row(2).state = RankState::joined;
    group->row(1).position.enter(5, Operation{});
    CHECK(group->told(1).empty());
    CHECK(reported() == "rank 1 died");
    CHECK(group->row(1).told.write(5, std::string(1000, 'x')));
    CHECK(group->told(1) == std::string(Told::bytes_max - 1, 'x'));
}

TEST_CASE("a sentence too long for the record is cut, not spilt", "[host_group]") {
    const auto group = group_of(1);
    group->raise(weftSystemError, 0, std::string(5000, 'x'));
    CHECK(group->abort_status().sentence() == std::string(sizeof(AbortRecord::sentence) - 1, 'x'));
    CHECK(group->row(0).state.load() == RankState::absent);
}

TEST_CASE("an entry is found by its key once it is posted, among those of its writer only", "[host_group]") {
    const auto group = group_of(2);
    CHECK(group->oob_get(0, 5) == nullptr);
    const char text[] = "where I listen";
    REQUIRE(group->oob_put(0, 0, 5, text, sizeof text).ok());
    const std::byte* found = group->oob_get(0, 5);
    REQUIRE(found);
    CHECK(memcmp(found, text, sizeof text) == 0);
    CHECK(group->oob_get(1, 5) == nullptr);
    CHECK(group->oob_get(0, 6) == nullptr);
}

TEST_CASE("a reader of entries sees them whole while they are posted", "[host_group]") {
    const auto group = group_of(2);
    constexpr uint64_t count = 2000;
    std::atomic<bool> posted{true};
    std::thread writer([&] {
        for (uint64_t key = 1; key <= count; ++key) {
            std::vector<uint64_t> words(HostGroup::oob_value_bytes / 8, key);
            if (!group->oob_put(0, 0, key, words.data(), words.size() * 8).ok()) posted = false;
        }
    });
    for (uint64_t key = 1; key <= count; ++key) {
        const std::byte* entry = nullptr;
        while (!(entry = group->oob_get(0, key)) && posted) std::this_thread::yield();
        const std::vector<uint64_t> words(HostGroup::oob_value_bytes / 8, key);
        if (!entry || memcmp(entry, words.data(), words.size() * 8) != 0) {
            writer.join();
            FAIL("entry " << key << " is not whole");
        }
    }
    writer.join();
    CHECK(posted);
}

TEST_CASE("an OOB store that is full and an entry that is too long are sentences", "[host_group]") {
    const auto group = group_of(1);
    const std::vector<std::byte> most(HostGroup::oob_value_bytes + 1);
    CHECK(!group->oob_put(0, 0, 1, most.data(), most.size()).ok());
    for (uint64_t key = 0; key < HostGroup::oob_entries_max; ++key)
        REQUIRE(group->oob_put(0, 0, key, most.data(), HostGroup::oob_value_bytes).ok());
    const Status full = group->oob_put(0, 0, 99999, most.data(), 1);
    CHECK(!full.ok());
    CHECK_THAT(full.sentence(), Catch::Contains("no room"));
    CHECK(group->oob_get(0, 0) != nullptr);
    CHECK(group->oob_get(0, HostGroup::oob_entries_max - 1) != nullptr);
    CHECK(group->oob_get(0, 99999) == nullptr);
}

TEST_CASE("entries of other hosts are found among many thousands, and too many are a sentence", "[host_group]") {
    constexpr int ranks = 12;  // 0 and 1 are here
    auto made = HostGroup::create(ranks, false);
    REQUIRE(made.ok());
    HostGroup& group = **made;
    for (int rank = 0; rank < ranks; ++rank) group.rank_info(rank).host = rank / 2;
    group.header().spread = 1;
    REQUIRE(group.settle().ok());
    HostGroup::OobEntry entry{};
    const auto oob_deliver = [&](int from, uint64_t key) {
        entry.from = from;
        entry.to = int(key % 2);
        entry.key = key;
        memcpy(entry.data, &key, sizeof key);
        return group.oob_deliver(entry);
    };
    CHECK(group.oob_get(5, 1) == nullptr);
    constexpr uint64_t each = 3000;
    for (uint64_t key = 0; key < each; ++key)
        for (int from = 2; from < ranks; ++from) REQUIRE(oob_deliver(from, key).ok());
    for (uint64_t key = 0; key < each; ++key)
        for (int from = 2; from < ranks; ++from) {
            const std::byte* found = group.oob_get(from, key);
            REQUIRE(found);
            REQUIRE(memcmp(found, &key, sizeof key) == 0);
        }
    CHECK(group.oob_get(5, each) == nullptr);
    Status full;
    for (uint64_t key = each; full && key < 2 * group.oob_received_max(); ++key) full = oob_deliver(2, key);
    CHECK(group.header().oob_received == group.oob_received_max());
    CHECK_THAT(full.sentence(), Catch::Contains("no room"));
    CHECK_THAT(full.sentence(), Catch::Contains("rank 2"));
}

TEST_CASE("ranks of other hosts are known, and cost little memory as long as there is nothing to say of them",
          "[host_group]") {
    constexpr int ranks = 1024;
    auto made = HostGroup::create(ranks, false);
    REQUIRE(made.ok());
    HostGroup& group = **made;
    std::vector<HostInfo> hosts(ranks);
    for (int host = 0; host < ranks; ++host) {
        ("node" + std::to_string(host)).copy(hosts[size_t(host)].name, sizeof hosts[0].name - 1);
        group.rank_info(host).host = host;
        group.rank_info(host).pid = 1000 + host;
    }
    REQUIRE(group.set_host_infos(hosts).ok());
    group.header().own_host = 7;
    group.header().spread = 1;
    REQUIRE(group.settle().ok());
    CHECK(group.locals() == std::vector{7});
    CHECK(group.name_of(1000) == "rank 1000 (pid 2000 on node1000)");
    CHECK(group.raise(weftTimeout, 7, "late"));
    struct stat status;
    REQUIRE(fstat(group.memory().fd(), &status) == 0);
    CHECK(size_t(status.st_blocks) * 512 < 160 * ranks);
    // Until one dies.
    CHECK(group.alive(500));
    group.mark_dead(500);
    CHECK(!group.alive(500));
    CHECK(group.alive(501));
}

TEST_CASE("a rank of this process lives; one whose process holds no lock does not", "[host_group]") {
    const auto group = group_of(2);
    group->row(0).process = process_token();
    group->row(1).process = process_token() + 1;
    CHECK(group->alive(0));
    CHECK(!group->alive(1));  // of a living process with its lock: tests/conformance
}

TEST_CASE("the cores of a group are those that any of its ranks may run on", "[host_group]") {
    const auto group = group_of(3);
    group->row(0).cpus = {};
    group->row(0).cpus.words[0] = 0b0001;
    group->row(1).cpus.words[0] = 0b0011;
    group->row(2).cpus.words[15] = 1;
    CHECK(group->cores() == 3);
}

}  // namespace weft::internal::test
