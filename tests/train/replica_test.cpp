// Copies of states in other ranks' memory: groups, recovery after lost ranks, other numbers of ranks, failed saves.
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <set>

#include "src/train/checkpoint/replica_groups.hpp"
#include "tests/amount.hpp"
#include "tests/error.hpp"
#include "tests/train/checkpoint_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// This thread gets no memory of so many bytes or more.
thread_local size_t refused_bytes = SIZE_MAX;

}  // namespace

#if !WEFT_TEST_ASAN && !WEFT_TEST_TSAN  // they have operators of their own
// Not inlined: compilers would object to free().
__attribute__((noinline)) void* operator new(size_t bytes) {
    void* const memory = bytes < refused_bytes ? malloc(bytes > 0 ? bytes : 1) : nullptr;
    if (!memory) throw std::bad_alloc();
    return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { free(memory); }
#endif

namespace {

// The object of one process, which outlives its communicators.
class Process {
  public:
    Process(int jump, int copies) { REQUIRE(weftTrainReplicaCreate(&replica_, jump, copies) == weftSuccess); }
    Process(const Process&) = delete;
    ~Process() { (void)weftTrainReplicaDestroy(replica_); }

    weftTrainReplica_t get() const { return replica_; }
    weftResult_t save(weftComm_t comm, uint64_t version, std::vector<Part>& parts,
                      const std::vector<weftTrainItem_t>& items = {}) const {
        std::vector<weftTrainBox_t> boxes;
        for (Part& each : parts) boxes.push_back(each.described());
        return weftTrainReplicaSave(replica_, comm, version, boxes.data(), boxes.size(), items.data(), items.size());
    }
    weftResult_t load(weftComm_t comm, std::vector<Part>& parts, uint64_t* version) const {
        std::vector<weftTrainBox_t> boxes;
        for (Part& each : parts) boxes.push_back(each.described());
        return weftTrainReplicaLoad(replica_, comm, boxes.data(), boxes.size(), version);
    }

  private:
    weftTrainReplica_t replica_ = nullptr;
};

using Processes = std::vector<std::unique_ptr<Process>>;

Processes processes(int count, int jump, int copies) {
    Processes made;
    for (int i = 0; i < count; ++i) made.push_back(std::make_unique<Process>(jump, copies));
    return made;
}

void all_succeed(const std::vector<std::string>& wrong) {
    for (const std::string& each : wrong) CHECK(each == "");
}

weftResult_t save_by(const Processes& all, weftComm_t comm, int rank, uint64_t version, Parts& parts) {
    const std::string own = "rank " + std::to_string(rank) + " of " + std::to_string(version);
    return all[size_t(rank)]->save(
        comm, version, parts[size_t(rank)],
        {item("version", &version, sizeof version, false), item("own", own.data(), own.size(), true)});
}

void save(const Processes& all, uint64_t version, Parts& parts) {
    all_succeed(on_threads(int(all.size()), nullptr, [&](weftComm_t comm, int rank) {
        return text_of(save_by(all, comm, rank, version, parts));
    }));
}

// Loads any boxes by as many ranks as there are processes.
void expect_load(const Processes& all, uint64_t version, const std::vector<Whole>& wholes, std::mt19937& random) {
    Parts wanted = any_boxes(wholes, all.size(), random);
    all_succeed(on_threads(int(all.size()), nullptr, [&](weftComm_t comm, int rank) -> std::string {
        uint64_t seen = 0, item = 0;
        size_t bytes = 0;
        const Process& own = *all[size_t(rank)];
        if (own.load(comm, wanted[size_t(rank)], &seen) != weftSuccess) return weftGetLastError(nullptr);
        if (weftTrainReplicaGetItem(own.get(), "version", 0, &item, sizeof item, &bytes) != weftSuccess)
            return weftGetLastError(nullptr);
        return seen == version && item == version ? "" : "version " + std::to_string(seen);
    }));
    for (const std::vector<Part>& own : wanted)
        for (const Part& each : own) CHECK(each.data == each.wanted());
}

}  // namespace

TEST_CASE("the groups of 8 ranks with jump 2 and 2 copies") {
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < 8; ++rank) groups.insert(train::replica_group(8, 2, 2, rank));
    CHECK(groups == std::set<std::vector<int>>{{0, 2}, {4, 6}, {1, 3}, {5, 7}});
    CHECK(train::replica_group(6, 1, 3, 4) == std::vector<int>{3, 4, 5});
    CHECK(train::replica_group(12, 4, 3, 7) == std::vector<int>{3, 7, 11});
}

TEST_CASE("the newest whole version is chosen, at its owners where they live") {
    const auto chosen = train::choose_copies({{5, 0, 2, 0, 0}, {5, 1, 2, 0, 0}, {5, 1, 2, 1, 0}, {6, 0, 2, 0, 0}});
    REQUIRE(chosen);
    REQUIRE(chosen->size() == 2);
    CHECK(((*chosen)[0].version == 5 && (*chosen)[0].holder == 0 && (*chosen)[1].holder == 1));
    // The senders take turns.
    const auto spread = train::choose_copies(
        {{1, 0, 4, 2, 0}, {1, 0, 4, 3, 0}, {1, 1, 4, 2, 0}, {1, 1, 4, 3, 0}, {1, 2, 4, 2, 0}, {1, 3, 4, 3, 0}});
    REQUIRE(spread);
    CHECK((*spread)[0].holder != (*spread)[1].holder);
    CHECK_ERROR(train::choose_copies({{5, 0, 2, 0, 0}}), "train.replica-lost", 1);
    // Copies of two saves of one version do not make a whole one. The newest whole save is chosen, of any ranks.
    CHECK_ERROR(train::choose_copies({{5, 0, 2, 0, 0, 1}, {5, 1, 2, 1, 0, 2}}), "train.replica-lost");
    const std::vector<train::HeldCopy> both = {
        {5, 0, 3, 0, 0, 1}, {5, 1, 3, 1, 0, 1}, {5, 2, 3, 1, 0, 1}, {5, 0, 2, 0, 0, 2}, {5, 1, 2, 1, 0, 2}};
    const auto newest = train::choose_copies(both), older = train::choose_copies({both.begin(), both.end() - 1});
    REQUIRE((newest && older));
    CHECK((newest->size() == 2 && newest->front().save == 2));
    CHECK((older->size() == 3 && older->front().save == 1));
    CHECK_ERROR(train::choose_copies({}), "train.replica-lost");
}

TEST_CASE("lost ranks get their state back from the copies, also with another number of ranks") {
    std::mt19937 random(seed());
    const auto wholes = wholes_of_all_types(random);
    struct Row {
        int ranks, jump, copies;
        std::vector<int> lost;  // processes that are new afterwards
        int later;              // ranks afterwards
    };
    std::vector<Row> rows = {{4, 2, 2, {0, 1}, 4}, {4, 1, 2, {3, 0}, 4}, {3, 1, 3, {0, 2}, 2}, {2, 1, 2, {1}, 3}};
    if (small()) rows.pop_back();
    for (const Row& row : rows) {
        Processes all = processes(row.ranks, row.jump, row.copies);
        Parts old = cover(wholes, size_t(row.ranks), random), parts = cover(wholes, size_t(row.ranks), random);
        for (std::vector<Part>& own : old)
            for (Part& each : own) std::fill(each.data.begin(), each.data.end(), std::byte(1));
        save(all, 7, old);
        save(all, 8, parts);
        for (const int rank : row.lost) all[size_t(rank)] = std::make_unique<Process>(row.jump, row.copies);
        all.resize(size_t(row.ranks));
        if (row.later < row.ranks) std::rotate(all.begin(), all.begin() + 1, all.end());  // others have the low numbers
        Processes later;
        for (int i = 0; i < row.later; ++i)
            later.push_back(i < row.ranks ? std::move(all[size_t(i)])
                                          : std::make_unique<Process>(row.jump, row.copies));
        expect_load(later, 8, wholes, random);
    }
}

TEST_CASE("each rank's own item comes back") {
    Processes all = processes(2, 1, 2);
    Parts none(2);
    save(all, 3, none);
    all[1] = std::make_unique<Process>(1, 2);
    all_succeed(on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        const Process& own = *all[size_t(rank)];
        size_t bytes = 0;
        if (weftTrainReplicaGetItem(own.get(), "own", 1, nullptr, 0, &bytes) == weftSuccess) return "before the load";
        if (own.load(comm, none[0], nullptr) != weftSuccess) return weftGetLastError(nullptr);
        char text[100];
        if (weftTrainReplicaGetItem(own.get(), "own", 1, text, 3, &bytes) != weftInvalidArgument) return "a small one";
        if (weftTrainReplicaGetItem(own.get(), "own", 1, text, sizeof text, &bytes) != weftSuccess)
            return weftGetLastError(nullptr);
        if (std::string(text, bytes) != "rank " + std::to_string(rank) + " of 3") return std::string(text, bytes);
        return weftTrainReplicaGetItem(own.get(), "other", 0, nullptr, 0, &bytes) == weftInvalidUsage ? "" : "other";
    }));
}

TEST_CASE("lost copies and wrong calls are errors on all ranks") {
    Processes all = processes(4, 1, 2);
    Parts none(4);
    const auto errors = [&](auto&& call) {
        const auto ids = on_threads(int(all.size()), nullptr, [&](weftComm_t comm, int rank) -> std::string {
            const std::string id =
                call(comm, rank, *all[size_t(rank)]) == weftSuccess ? std::string("none") : last_error().id;
            (void)weftBarrier(comm, nullptr);
            return id;
        });
        for (const std::string& id : ids) CHECK(id == ids[0]);
        return ids[0];
    };
    uint64_t version = 0;
    CHECK(errors([&](weftComm_t comm, int, const Process& own) { return own.load(comm, none[0], nullptr); }) ==
          "train.replica-lost");
    save(all, 4, none);
    CHECK(errors([&](weftComm_t comm, int rank, const Process& own) {
              return own.save(comm, rank == 2 ? 6 : 5, none[0]);
          }) == "train.model");
    CHECK(errors([&](weftComm_t comm, int rank, const Process& own) {
              weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
              return rank == 2 ? weftTrainReplicaSave(own.get(), comm, 5, &box, 1, nullptr, 0)
                               : own.save(comm, 5, none[0]);
          }) == "argument.null");
    // An overlap and a gap of equal size, an overlap, a gap, and common items of different lengths.
    std::mt19937 of_line(2);
    const Whole line = random_whole("line", weftFloat32, {8}, of_line);
    for (const std::pair<Box, Box>& each :
         {std::pair(Box{{0}, {4}}, Box{{2}, {4}}), std::pair(Box{{0}, {6}}, Box{{3}, {5}}),
          std::pair(Box{{0}, {3}}, Box{{4}, {4}})})
        CHECK(errors([&](weftComm_t comm, int rank, const Process& own) {
                  std::vector<Part> parts;
                  parts.emplace_back(line, rank % 2 == 0 ? each.first : each.second);
                  return own.save(comm, 5, parts);
              }) == "train.checkpoint-boxes");
    CHECK(errors([&](weftComm_t comm, int rank, const Process& own) {
              return own.save(comm, 5, none[0], {item("x", "xy", rank == 3 ? 2 : 1, false)});
          }) == "train.checkpoint-boxes");
    CHECK(errors([&](weftComm_t comm, int rank, const Process& own) {
              std::mt19937 random(3);
              const Whole other = random_whole("other", weftFloat32, {2}, random);
              std::vector<Part> wanted;
              if (rank == 1) wanted.emplace_back(other, Box{{0}, {2}});
              return own.load(comm, wanted, nullptr);
          }) == "train.checkpoint-model");
    CHECK(errors([&](weftComm_t comm, int rank, const Process& own) {
              return own.load(comm, none[0], rank == 0 ? &version : nullptr);
          }) == "none");
    CHECK(version == 4);
    all[0] = std::make_unique<Process>(1, 2);
    all[1] = std::make_unique<Process>(1, 2);
    CHECK(errors([&](weftComm_t comm, int, const Process& own) { return own.load(comm, none[0], nullptr); }) ==
          "train.replica-lost");
    all.pop_back();
    CHECK(errors([&](weftComm_t comm, int, const Process& own) { return own.save(comm, 9, none[0]); }) ==
          "argument.value");
    weftTrainReplica_t replica = nullptr;
    CHECK(weftTrainReplicaCreate(&replica, 0, 2) == weftInvalidArgument);
    CHECK(weftTrainReplicaCreate(nullptr, 1, 2) == weftInvalidArgument);
    CHECK(weftTrainReplicaSave(nullptr, nullptr, 0, nullptr, 0, nullptr, 0) == weftInvalidArgument);
}

TEST_CASE("after a failed save the version before it is loaded") {
    std::mt19937 random(seed());
    const auto wholes = wholes_of_all_types(random);
    Processes all = processes(4, 2, 2);
    Parts parts = cover(wholes, 4, random);
    save(all, 1, parts);
    for (const std::string& wrong : on_threads(4, nullptr, [&](weftComm_t comm, int rank) -> std::string {
             std::vector<Part> changed = parts[size_t(rank)];
             for (Part& each : changed) std::fill(each.data.begin(), each.data.end(), std::byte(9));
             if (rank == 3) return weftCommAbort(comm) == weftSuccess ? "" : "abort";
             return all[size_t(rank)]->save(comm, 2, changed) == weftSuccess ? "no error" : "";
         }))
        CHECK(wrong == "");
    all[3] = std::make_unique<Process>(2, 2);
    expect_load(all, 1, wholes, random);
}

TEST_CASE("a failed save of the version that was loaded leaves the older save whole") {
    if (sanitized) return;  // no allocation fails
    std::mt19937 random(seed());
    // Rank 3 of 4 runs out of memory when it reads the list of rank 2's many boxes, after the exchange in all groups.
    // The list's text has less than 50,000 bytes, and its boxes have more.
    std::vector<Whole> wholes;
    for (int i = 0; i < 303; ++i)
        wholes.push_back(random_whole("tensor " + std::to_string(i), weftFloat32, {1}, random));
    Parts parts(4);
    for (size_t i = 0; i < wholes.size(); ++i) {
        Part& part = parts[std::min<size_t>(i, 2)].emplace_back(wholes[i], Box{{0}, {1}});
        part.data = part.wanted();
    }
    for (const std::vector<int>& lost : {std::vector<int>{}, {3, 1}}) {
        const size_t ranks = 4 + lost.size();
        Processes all = processes(int(ranks), 1, 2);
        Parts first = cover(wholes, ranks, random);
        save(all, 5, first);
        for (const int rank : lost) all.erase(all.begin() + rank);
        expect_load(all, 5, wholes, random);
        save(all, 5, parts);
        Parts changed = parts;
        for (std::vector<Part>& own : changed)
            for (Part& each : own) std::fill(each.data.begin(), each.data.end(), std::byte(9));
        for (const std::string& wrong : on_threads(4, nullptr, [&](weftComm_t comm, int rank) -> std::string {
                 if (rank == 3) refused_bytes = 50'000;
                 const weftResult_t result = save_by(all, comm, rank, 5, changed);
                 refused_bytes = SIZE_MAX;
                 return result == weftSuccess ? "no error" : "";
             }))
            CHECK(wrong == "");
        all[2] = std::make_unique<Process>(1, 2);
        expect_load(all, 5, wholes, random);
        save(all, 5, parts);
        expect_load(all, 5, wholes, random);
    }
}

TEST_CASE("a rank without memory for a load is an error on all ranks, and a later load succeeds") {
    if (sanitized) return;  // no allocation fails
    std::mt19937 random(seed());
    // Each rank needs what another one holds.
    const std::vector<Whole> wholes = {random_whole("large", weftFloat32, {4, 20'000}, random)};
    Processes all = processes(3, 1, 3);
    Parts parts(3);
    for (size_t rank = 0; rank < 3; ++rank) {
        parts[rank].emplace_back(wholes[0], rank < 2 ? Box{{rank, 0}, {1, 20'000}} : Box{{2, 0}, {2, 20'000}});
        parts[rank].back().data = parts[rank].back().wanted();
    }
    save(all, 1, parts);
    for (int poor = 0; poor < 3; ++poor)
        for (const std::string& id : on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
                 std::vector<Part> wanted;
                 wanted.emplace_back(wholes[0], Box{{0, 0}, {4, 20'000}});
                 if (rank == poor) refused_bytes = 50'000;
                 const weftResult_t result = all[size_t(rank)]->load(comm, wanted, nullptr);
                 refused_bytes = SIZE_MAX;
                 return result == weftSuccess ? std::string("none") : last_error().id;
             }))
            CHECK(id == "memory.exhausted");
    expect_load(all, 1, wholes, random);
}
