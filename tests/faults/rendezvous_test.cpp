// rendezvous_test.cpp: ranks that cannot meet: misnumbered, missing, of another size, with a wrong id or option.
#include <sodium.h>

#include <cstring>
#include <fstream>

#include "src/base/build_facts.hpp"
#include "src/registry.hpp"
#include "src/schedule/text.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"
#include "tests/faults/job.hpp"
#include "tests/folder.hpp"

using namespace weft::internal::test;

TEST_CASE("two processes with one rank learn each other's pid", "[rendezvous]") {
    for (const int ranks : {2, 3}) {
        Job job(ranks);
        // The deadline is for a bystander that comes when all others have gone.
        for (int rank = 0; rank < ranks - 1; ++rank)
            job.start(rank, {rank == 1 ? "init=60000" : "init", "reduce=1", "destroy"}, {quiet});
        job.start(0, {"init", "reduce=1", "destroy"}, {quiet});  // and nobody is the last rank
        job.finish();
        for (int process = 0; process < ranks; ++process) {
            INFO(job[process].output());
            // A third process that comes when the two have already given up finds no rank.
            if (process == 1 && ranks == 3 && !contains(job.answer(process, "init"), "two processes")) {
                CHECK((contains(job.answer(process, "init"), "which led the rendezvous of the ranks, ended") ||
                       job.answer(process, "init").rfind("8 ", 0) == 0));
                continue;
            }
            CHECK(job.answer(process, "init").rfind("9 two processes are rank 0 of " + std::to_string(ranks), 0) == 0);
            CHECK(contains(job.answer(process, "init"), "pid " + std::to_string(job[0].pid())));
            CHECK(contains(job.answer(process, "init"), "pid " + std::to_string(job[ranks - 1].pid())));
        }
    }
}

TEST_CASE("processes with different sizes get an error with both", "[rendezvous]") {
    Job job(2);
    job.start_as(0, 2, {"init"}, {quiet});
    job.start_as(1, 3, {"init"}, {quiet});
    job.finish();
    for (int process = 0; process < 2; ++process) {
        INFO(job[process].output());
        CHECK(job.answer(process, "init").rfind("9 ", 0) == 0);
        CHECK(contains(job.answer(process, "init"), "all ranks must be given the same nranks"));
    }
}

TEST_CASE("ranks that never come are named when the deadline passes", "[rendezvous]") {
    CHECK(with_growing_limit(300, [](int64_t limit_ms) {
              Job job(5);
              for (const int rank : {1, 3})
                  job.start(rank,
                            {"init=" + std::to_string(limit_ms), "as=0,1", "id=" + job.another_id(), "init", "reduce=1",
                             "destroy"},
                            {quiet});
              job.finish();
              std::string objection;
              for (int process = 0; process < 2; ++process) {
                  const std::string first = job.first_answer(process, "init");
                  // The other rank that came is not named, unless it came late. A rank that comes while the other gives
                  // up may see it leave.
                  const bool named = contains(first, "for ranks 0, 2, 4: are all 5 ranks started") ||
                                     contains(first, "for ranks 0, 2, 3, 4:") ||
                                     contains(first, "for ranks 0, 1, 2, 4:");
                  if (first.rfind("8 ", 0) != 0 || !named) objection = job.everything();
                  CHECK(job.answer(process, "reduce") == "0");
              }
              return objection;
          }) == "");
}

TEST_CASE("a rank that exits before the others have come counts as missing", "[rendezvous]") {
    CHECK(with_growing_limit(300, [](int64_t limit_ms) {
              Job job(3);
              job.start(0, {"vanish"});
              for (const int rank : {1, 2}) job.start(rank, {"init=" + std::to_string(limit_ms)}, {quiet});
              job.finish();
              std::string objection;
              for (const int process : {1, 2}) {
                  const std::string told = job.answer(process, "init");
                  if (told.rfind("8 ", 0) != 0 || !contains(told, "for rank 0")) objection = job.everything();
              }
              return objection;
          }) == "");
}

TEST_CASE("a rank that waits for failed ranks learns that they may have failed", "[rendezvous]") {
    const std::string told =
        "are all 3 ranks started, with this unique id? If some have failed already, their errors "
        "say why";
    {
        Job job(3);
        job.start(0, {"init"}, {quiet});
        job.start_as(1, 4, {"init"}, {quiet});
        job.finish();
        for (int process = 0; process < 2; ++process)
            CHECK(contains(job.answer(process, "init"), "all ranks must be given the same nranks"));
        job.start(2, {"init=300"}, {quiet});
        job.finish();
        INFO(job.answer(2, "init"));
        // Now and then it still learns the reason itself.
        if (!contains(job.answer(2, "init"), "all ranks must be given the same nranks")) {
            CHECK((misses(job.answer(2, "init"), 0) && misses(job.answer(2, "init"), 1)));
            CHECK(contains(job.answer(2, "init"), told));
        }
    }
    // One that fails before it meets anybody.
    Job job(3);
    job.start(0, {"init"}, {quiet, "WEFT_ISA=mmx"});
    job.finish();
    CHECK(job.answer(0, "init").rfind("4 WEFT_ISA", 0) == 0);
    job.start(1, {"init=300"}, {quiet});
    job.finish();
    INFO(job.answer(1, "init"));
    CHECK((misses(job.answer(1, "init"), 0) && contains(job.answer(1, "init"), told)));
}

TEST_CASE("an id that another host made for its own ranks is refused with a sentence", "[rendezvous]") {
    // As it would be written there: another identity at its place, and a checksum that fits.
    weftUniqueId id = weft::internal::UniqueId::make_local()->bytes();
    id.internal[16] = char(id.internal[16] ^ 1);
    unsigned char hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, reinterpret_cast<const unsigned char*>(&id), sizeof id - sizeof(uint64_t),
                       nullptr, 0);
    memcpy(id.internal + sizeof id - sizeof(uint64_t), hash, sizeof(uint64_t));
    weftComm_t comm = nullptr;
    CHECK(weftCommInitRank(&comm, 1, id, 0) == weftInvalidArgument);
    CHECK(contains(weftGetLastError(nullptr), "was made on another host or in another network namespace"));
    CHECK(comm == nullptr);
}

TEST_CASE("two communicators made in crossing order in one group do not wait for each other", "[rendezvous]") {
    for (int round = 0; round < (small() ? 2 : 5); ++round) {
        Job job(2);
        const std::string one = job.another_id(), other = job.another_id();
        job.start(0, {"cross=" + one + "," + other}, {quiet});
        job.start(1, {"cross=" + other + "," + one}, {quiet});
        job.finish();
        for (int process = 0; process < 2; ++process) {
            CHECK(job.answer(process, "cross") == "0");
            CHECK(job.answer(process, "sums") == "0");
            CHECK(job.answer(process, "right") == "1");
        }
    }
}

TEST_CASE("a misspelt option is answered with the existing ones", "[rendezvous]") {
    Job job(1);
    job.start(0, {"init"}, {"WEFT_ALGO=rign"});
    job.start(0, {"init"}, {"WEFT_TIMOUT_MS=10", "WEFT_DEBUG=WARN"});
    job.start(0, {"init"}, {"WEFT_TIMEOUT_MS=soon"});
    job.start(0, {"init"}, {"WEFT_ISA=mmx"});
    job.start(0, {"init"}, {"WEFT_ALGO=ring,^ring"});
    job.start(0, {"init"}, {"WEFT_TRANSPORTS=shmm"});
    job.finish();
    CHECK(job.error(0, "init").id == "option.names");
    CHECK(contains(job.answer(0, "init"), "WEFT_ALGO names `rign`"));
    CHECK(contains(job.answer(0, "init"), "one_shot, two_shot, ring"));
    CHECK(job.answer(1, "init") == "0");
    CHECK(contains(job[1].error(), "WEFT_TIMOUT_MS is not an option; did you mean WEFT_TIMEOUT_MS?"));
    CHECK(job.error(2, "init").id == "option.value");
    CHECK(contains(job.answer(2, "init"), "WEFT_TIMEOUT_MS: \"soon\""));
    CHECK(job.answer(3, "init").rfind("4 WEFT_ISA is `mmx`; this machine has ", 0) == 0);
    CHECK(job.error(4, "init").id == "option.names");
    CHECK(job.error(5, "init").id == "option.names");
    CHECK(contains(job.answer(5, "init"), "WEFT_TRANSPORTS names `shmm`"));
}

TEST_CASE("a process logs its version once, from WEFT_DEBUG's level VERSION on", "[rendezvous]") {
    Job job(1);
    for (const char* level : {"VERSION", "INFO", "NONE"})
        job.start(0, {"make_later", "id=later", "init", "destroy", "make_later", "id=later", "init", "destroy"},
                  {"WEFT_DEBUG=" + std::string(level)});
    job.start(0, {"init"}, {"WEFT_DEBUG=VERSION", "WEFT_TRANSPORTS=shmm"});
    job.finish();
    const auto lines_of_version = [&](int process) {
        std::vector<std::string> found = lines_of(job[process].error());
        std::erase_if(found, [](const std::string& line) { return !contains(line, " WEFT VERSION "); });
        return found;
    };
    const std::vector<std::string> alone = lines_of(job[0].error());
    REQUIRE(alone.size() == 1);
    CHECK_THAT(alone[0], Catch::Contains(" WEFT VERSION Weft " + weft::internal::library_version() + ", compiled by " +
                                         weft::internal::library_compiler()) &&
                             Catch::Contains("; transports shm, tcp; CPU kernels ") && Catch::Contains("plain; ") &&
                             Catch::Contains("device code"));
    CHECK(lines_of_version(1).size() == 1);
    CHECK(lines_of(job[1].error()).size() > 1);
    CHECK(lines_of_version(2).empty());
    // Some line reports the error in the environment.
    CHECK(lines_of_version(3).size() == 1);
}

TEST_CASE("ranks with different algorithm files get an error", "[rendezvous]") {
    const Folder folder;
    const std::string good = folder.path / "good.txt", other = folder.path / "other.txt";
    std::vector<weft::internal::Schedule> ring;
    for (int rank = 0; rank < 2; ++rank)
        ring.push_back(weft::internal::registry::find_algorithm("ring")->build({.ranks = 2, .rank = rank}, {}));
    for (weft::internal::Schedule& schedule : ring) schedule.algorithm = "mine";
    std::ofstream(good) << weft::internal::write_text(ring);
    std::ofstream(other) << weft::internal::write_text(ring) << "# another file\n";
    {
        Job job(2);
        job.start(0, {"init", "reduce"}, {"WEFT_ALGO_FILES=" + good, quiet});
        job.start(1, {"init", "reduce"}, {"WEFT_ALGO_FILES=" + other, quiet});
        job.finish();
        for (int process = 0; process < 2; ++process)
            CHECK(contains(job.answer(process, "init") + job.answer(process, "reduce"),
                           "WEFT_ALGO_FILES of rank 1 holds other algorithms than rank 0's"));
    }
    // A rank that cannot read rank 0's file, or the other way round: both name that rank.
    for (const int without : {0, 1}) {
        Job job(2);
        for (int rank = 0; rank < 2; ++rank)
            job.start(rank, {"init", "reduce"},
                      {"WEFT_ALGO_FILES=" + (rank == without ? std::string("/nowhere") : good), quiet});
        job.finish();
        for (int process = 0; process < 2; ++process) {
            const std::string answers = job.answer(process, "init") + job.answer(process, "reduce");
            INFO(answers);
            CHECK(contains(answers, "WEFT_ALGO_FILES of rank 1 "));
            CHECK(contains(answers, "/nowhere") == (without == 1));
        }
    }
}

TEST_CASE("a communicator does without algorithm files that cannot be used, unless WEFT_ALGO wants them",
          "[rendezvous]") {
    const Folder folder;
    const std::string good = folder.path / "good.txt", wrong = folder.path / "wrong.txt";
    std::vector<weft::internal::Schedule> ring;
    for (int rank = 0; rank < 2; ++rank)
        ring.push_back(weft::internal::registry::find_algorithm("ring")->build({.ranks = 2, .rank = rank}, {}));
    for (weft::internal::Schedule& schedule : ring) schedule.algorithm = "mine";
    std::ofstream(good) << weft::internal::write_text(ring);
    ring[0].blocks[0].instructions.pop_back();
    for (weft::internal::Schedule& schedule : ring) schedule.algorithm = "wrong";
    std::ofstream(wrong) << weft::internal::write_text(ring);
    const std::string files = "WEFT_ALGO_FILES=" + wrong + ":/nowhere:" + good;
    {
        Job job(2);
        for (int rank = 0; rank < 2; ++rank) job.start(rank, {"init", "reduce", "destroy"}, {files});
        job.finish();
        for (int process = 0; process < 2; ++process) {
            INFO(job[process].error());
            CHECK(job.answer(process, "init") == "0");
            CHECK(job.answer(process, "reduce") == "0");
            CHECK(contains(job[process].error(), wrong));
            CHECK(contains(job[process].error(), "/nowhere"));
            CHECK(!contains(job[process].error(), good));
        }
    }
    Job job(2);
    for (int rank = 0; rank < 2; ++rank) job.start(rank, {"init"}, {files, "WEFT_ALGO=wrong", quiet});
    job.finish();
    for (int process = 0; process < 2; ++process) {
        CHECK(job.answer(process, "init").rfind("4 ", 0) == 0);
        CHECK(contains(job.answer(process, "init"), wrong));
    }
}

TEST_CASE("WEFT_ALGO_FILES_ORDER is the same on all ranks, and not that of a deterministic job", "[rendezvous]") {
    const std::string any = "WEFT_ALGO_FILES_ORDER=any";
    {
        Job job(2);
        job.start(0, {"init", "reduce"}, {quiet});
        job.start(1, {"init", "reduce"}, {quiet, any});
        job.finish();
        for (int process = 0; process < 2; ++process)
            CHECK(contains(job.answer(process, "init") + job.answer(process, "reduce"),
                           "WEFT_ALGO_FILES_ORDER of rank 1 "));
    }
    Job job(2);
    for (int rank = 0; rank < 2; ++rank) job.start(rank, {"init"}, {quiet, any, "WEFT_DETERMINISTIC=1"});
    job.finish();
    for (int process = 0; process < 2; ++process) {
        INFO(job.answer(process, "init"));
        CHECK(job.answer(process, "init").rfind("4 ", 0) == 0);
        CHECK(contains(job.answer(process, "init"), "WEFT_ALGO_FILES_ORDER"));
        CHECK(contains(job.answer(process, "init"), "WEFT_DETERMINISTIC"));
    }
    Job served(2);
    for (int rank = 0; rank < 2; ++rank) served.start(rank, {"init", "reduce", "destroy"}, {quiet, any});
    served.finish();
    for (int process = 0; process < 2; ++process) CHECK(served.answer(process, "reduce") == "0");
}

TEST_CASE("an algorithm that cannot serve a call says why", "[rendezvous]") {
    const weft::internal::Algorithm none[] = {
        {"star", weft::internal::Collective::all_reduce, nullptr,
         [](const weft::internal::Layout&, const weft::internal::LinkCosts&, size_t) { return 1.0; }, "",
         [](const weft::internal::Layout&) { return "needs 5 ranks"; }},
        {"snake", weft::internal::Collective::all_reduce, nullptr,
         [](const weft::internal::Layout&, const weft::internal::LinkCosts&, size_t) { return 1.0; }, ""}};
    weft::internal::Operation operation;
    operation.collective = weft::internal::Collective::all_reduce;
    operation.type = weftFloat32;
    operation.count = 10;
    const auto choice =
        weft::internal::select(operation, {3, 0}, weft::internal::host_link_costs(3, 2), {"^snake", 0}, none);
    REQUIRE(!choice);
    CHECK(choice.status().code() == weftInvalidArgument);
    CHECK(choice.status().sentence() ==
          "no algorithm can serve all_reduce of 10 float, sum on 3 ranks (star: needs 5 ranks; snake: excluded by "
          "WEFT_ALGO)");
}

TEST_CASE("calls that no algorithm can serve are refused on every rank, and the communicator serves others",
          "[rendezvous]") {
    Job job(2);
    for (int rank = 0; rank < 2; ++rank)
        job.start(rank, {"init", "reduce=100", "call=broadcast,100", "async", "destroy"},
                  {quiet, "WEFT_ALGO=two_level_ring"});
    job.finish();
    for (int process = 0; process < 2; ++process) {
        CHECK(contains(job.answer(process, "reduce"), "4 no algorithm can serve all_reduce of 100 int32"));
        CHECK(job.answer(process, "call") == "0");
        CHECK(job.answer(process, "async") == "0");
    }
}

TEST_CASE("a call that finds no room in slots is refused on every rank, and the communicator serves others",
          "[rendezvous]") {
    constexpr int ranks = 17;
    const Folder folder;
    const std::string file = folder.path / "deep.txt";
    std::vector<weft::internal::Schedule> deep;
    for (int rank = 0; rank < ranks; ++rank) {
        deep.push_back(weft::internal::registry::find_algorithm("ring", weft::internal::Collective::all_gather)
                           ->build({.ranks = ranks, .rank = rank}, {}));
        deep.back().algorithm = "deep";
        deep.back().fifo_depth = 4096;  // slots as small as any
        deep.back().span = ranks;
        deep.back().least_bytes = 100 * ranks;
    }
    std::ofstream(file) << weft::internal::write_text(deep);
    Job job(ranks);
    for (int rank = 0; rank < ranks; ++rank)
        job.start(rank, {"init", "call=all_gather,100", "call=all_gather,2", "async", "destroy"},
                  {quiet, "WEFT_ALGO_FILES=" + file});
    job.finish();
    for (int process = 0; process < ranks; ++process) {
        const std::string answer = job.first_answer(process, "call");
        CHECK(contains(answer, "[algorithm.none]"));
        CHECK(contains(answer, "17 of 17"));
        CHECK(job.answer(process, "call") == "0");
        CHECK(job.answer(process, "async") == "0");
    }
}

TEST_CASE("a choice is logged in a line with the predictions of the others, the best first", "[rendezvous]") {
    const auto takes = [](double (*us)(const weft::internal::Layout&, const weft::internal::LinkCosts&, size_t),
                          const char* name) {
        return weft::internal::Algorithm{name, weft::internal::Collective::all_reduce, nullptr, us, ""};
    };
    const weft::internal::Algorithm rows[] = {
        takes([](const weft::internal::Layout&, const weft::internal::LinkCosts&, size_t) { return 30.0; }, "slow"),
        takes([](const weft::internal::Layout&, const weft::internal::LinkCosts&, size_t) { return 1.0; }, "fast"),
        takes([](const weft::internal::Layout&, const weft::internal::LinkCosts&, size_t) { return 2.5; }, "middling"),
        takes([](const weft::internal::Layout&, const weft::internal::LinkCosts&, size_t) { return 0.1; }, "excluded")};
    weft::internal::Operation operation;
    operation.collective = weft::internal::Collective::all_reduce;
    operation.type = weftFloat32;
    operation.count = 10;
    const weft::internal::Preferences preferences{"^excluded", 0};
    const weft::internal::Costs costs(weft::internal::host_link_costs(3, 2));
    const auto choice = weft::internal::select(operation, {3, 0}, costs, preferences, rows);
    REQUIRE(choice);
    CHECK(weft::internal::choice_text(operation, {3, 0}, *choice,
                                      weft::internal::candidates(operation, {3, 0}, costs, preferences, rows)) ==
          "all_reduce of 10 float, sum (40 bytes) on 3 ranks: fast over shm, 1.00 us predicted; middling 2.50 us, slow "
          "30.00 us");
}

TEST_CASE("as many rings as can be asked for find room", "[rendezvous]") {
    Job job(2);
    for (int rank = 0; rank < 2; ++rank)
        job.start(rank, {"init", "reduce=1000000", "destroy"}, {quiet, "WEFT_ALGO=ring", "WEFT_CHANNELS=64"});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

TEST_CASE("a half-set family of launcher variables is named", "[rendezvous]") {
    Job job(1);
    job.start(0, {"environment"}, {quiet, "WEFT_RANK=0"});
    job.start(0, {"environment"}, {quiet, "WEFT_RANK=2", "WEFT_SIZE=2", "WEFT_UNIQUE_ID=" + job.another_id()});
    job.start(0, {"environment"}, {quiet, "WEFT_RANK=0", "WEFT_SIZE=2", "WEFT_UNIQUE_ID=12ab"});
    job.start(0, {"environment"}, {quiet, "RANK=0", "WORLD_SIZE=1"});
    job.finish();
    CHECK(contains(job.answer(0, "environment"), "5 WEFT_RANK is set but WEFT_SIZE, WEFT_UNIQUE_ID is not"));
    CHECK(contains(job.answer(1, "environment"), "WEFT_RANK is 2 and WEFT_SIZE is 2"));
    CHECK(contains(job.answer(2, "environment"), "WEFT_UNIQUE_ID: a unique id in text is 256 hexadecimal digits"));
    CHECK(contains(job.answer(3, "environment"), "MASTER_ADDR, MASTER_PORT is not"));
}
