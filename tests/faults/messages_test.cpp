// messages_test.cpp: messages whose other end differs, does not come, dies or leaves. Every rank gets an error with
// both ranks and both calls, and lives. On one host, and between hosts.
#include "tests/faults/job.hpp"

using namespace weft::internal::test;

namespace {

// Where the ranks believe to be.
struct Where {
    const char* name;
    bool apart;
};
constexpr Where everywhere[] = {{"on one host", false}, {"on two hosts", true}};

std::vector<std::string> variables_of(const Where& where, int rank, std::vector<std::string> more = {}) {
    if (where.apart) more.push_back("WEFT_HOSTID=node" + std::to_string(rank));
    more.push_back(quiet);
    return more;
}

struct MessageDifference {
    const char* what;
    const char *sends, *receives;  // steps of ranks 0 and 1
    const char* told;
    const char* or_told = "";  // by whoever is first
};

}  // namespace

TEST_CASE("both ends of a mismatched message get an error", "[messages]") {
    const MessageDifference differences[] = {
        {"a larger send", "send=100,1", "receive=50,0",
         "rank 0 called weftSend with 100 int32 for rank 1, which called weftRecv with 50 int32 from rank 0"},
        {"a smaller send", "send=3,1", "receive=50,0",
         "rank 0 called weftSend with 3 int32 for rank 1, which called weftRecv with 50 int32 from rank 0"},
        {"a send of nothing", "send=0,1", "receive=1,0",
         "rank 0 called weftSend with 0 int32 for rank 1, which called weftRecv with 1 int32 from rank 0"},
        {"a receive of nothing", "send=7,1", "receive=0,0",
         "rank 0 called weftSend with 7 int32 for rank 1, which called weftRecv with 0 int32 from rank 0"},
        {"another type", "send=100,1,2", "receive=100,0,7",
         "rank 0 called weftSend with 100 int32 for rank 1, which called weftRecv with 100 float from rank 0"},
        {"a large send", "send=3000000,1", "receive=50,0",
         "rank 0 called weftSend with 3000000 int32 for rank 1, which called weftRecv with 50 int32 from rank 0"},
        {"a large receive", "send=50,1", "receive=3000000,0",
         "rank 0 called weftSend with 50 int32 for rank 1, which called weftRecv with 3000000 int32 from rank 0"},
        {"both large", "send=2000000,1", "receive=3000000,0",
         "rank 0 called weftSend with 2000000 int32 for rank 1, which called weftRecv with 3000000 int32 from rank 0"},
        {"a table", "all_to_all_v=10,11", "all_to_all_v=12,10",
         "rank 0 called weftAlltoAllv with 11 int32 for rank 1, which called weftAlltoAllv with 12 int32 from rank 0",
         "rank 1 called weftAlltoAllv with 12 int32 for rank 0, which called weftAlltoAllv with 11 int32 from rank 1"},
    };
    for (const Where& where : everywhere)
        for (const MessageDifference& difference : differences) {
            if (small() && where.apart && difference.sends[5] != '3') continue;
            INFO(difference.what << ' ' << where.name);
            Job job(2);
            const std::string later = job.another_id();
            for (int rank = 0; rank < 2; ++rank)
                job.start(rank,
                          {"init", rank == 0 ? difference.sends : difference.receives, "reduce=1", "async", "destroy",
                           "id=" + later, "init", "reduce=1000", "destroy"},
                          variables_of(where, rank));
            job.finish();
            for (int rank = 0; rank < 2; ++rank) {
                INFO("rank " << rank << " said\n" << job[rank].output());
                CHECK((contains(job[rank].output(), difference.told) ||
                       (*difference.or_told && contains(job[rank].output(), difference.or_told))));
                CHECK(job.answer(rank, "async") == "9");
                CHECK(job.answer(rank, "init") == "0");
                CHECK(job.answer(rank, "reduce") == "0");
            }
        }
}

TEST_CASE("a message whose other end is missing is named at the deadline", "[messages]") {
    struct Late {
        const char *step, *told;
    };
    const Late late[] = {
        {"receive=10,1", "has not called weftSend to rank 0 of the 10 int32 that rank 0 called weftRecv for"},
        {"send=3000000,1", "has not called weftRecv from rank 0 for the 3000000 int32 that rank 0 sends by weftSend"}};
    for (const Where& where : everywhere)
        for (const Late& each : late)
            CHECK(with_growing_limit(500, [&](int64_t limit_ms) {
                      const char *const step = each.step, *const told = each.told;
                      INFO(step << ' ' << where.name);
                      Job job(2);
                      const std::vector<std::string> limit{"WEFT_TIMEOUT_MS=" + std::to_string(limit_ms)};
                      job.start(0, {"init", "reduce=1", step, "async", "destroy"}, variables_of(where, 0, limit));
                      job.start(1, {"init", "reduce=1", "await", "async=failed", "destroy"},
                                variables_of(where, 1, limit));
                      const std::string call = std::string(step).substr(0, std::string(step).find('='));
                      CHECK(job[0].says(call + " "));
                      job[1].kill(SIGUSR1);
                      job.finish();
                      const std::string answer = job.answer(0, call);
                      const bool right = answer.rfind("8 ", 0) == 0 && contains(answer, told) &&
                                         contains(answer, "rank 1 (pid " + std::to_string(job[1].pid())) &&
                                         contains(answer, "outside Weft, last operation 1") &&
                                         job.answer(1, "async") == "8";
                      return right ? "" : job.everything();
                  }) == "");
}

TEST_CASE("a partner that dies or leaves is an error, at once", "[messages]") {
    for (const Where& where : everywhere)
        for (const char* step : {"receive=10,1", "send=3000000,1"})
            for (const bool dies : {true, false}) {
                INFO(step << ' ' << where.name << (dies ? ", dies" : ", leaves"));
                Job job(2);
                const std::string call = std::string(step).substr(0, std::string(step).find('='));
                // It has talked to rank 0 before.
                job.start(0, {"init", "send=5,1", "say=ready", "await", step, "async", "destroy"},
                          variables_of(where, 0));
                job.start(1, {"init", "receive=5,0", "say=ready", "await", "destroy"}, variables_of(where, 1));
                for (int rank = 0; rank < 2; ++rank) CHECK(job[rank].says("ready"));
                job[0].kill(SIGUSR1);
                if (dies)
                    job.kill(1);
                else
                    job[1].kill(SIGUSR1);
                job.finish();
                const std::string answer = job.answer(0, call);
                INFO(job.everything());
                CHECK(answer.rfind("6 ", 0) == 0);
                CHECK(contains(answer, "rank 1"));
            }
}

TEST_CASE("an abort ends messages on every rank", "[messages]") {
    for (const Where& where : everywhere) {
        INFO(where.name);
        Job job(3);
        job.start(0, {"init", "receive=10,1", "destroy"}, variables_of(where, 0));
        job.start(1, {"init", "send=3000000,2", "destroy"}, variables_of(where, 1));
        job.start(2, {"init", "say=ready", "await", "abort"}, variables_of(where, 2));
        CHECK(job[2].says("ready"));
        for (const int rank : {0, 1}) CHECK(job[rank].says("init 0"));
        job[2].kill(SIGUSR1);
        job.finish();
        // A rank that had not begun when the error came gets it all the same.
        for (const std::string& answer : {job.answer(0, "receive"), job.answer(1, "send")}) {
            CHECK(answer.rfind("6 ", 0) == 0);
            CHECK(contains(answer, "rank 2 aborted the communicator"));
        }
    }
}

TEST_CASE("a rank that called something else is named in collectives of uneven parts", "[messages]") {
    for (const Where& where : everywhere) {
        INFO(where.name);
        Job job(2);
        job.start(0, {"init", "all_to_all_v=10,11", "reduce=1", "destroy"}, variables_of(where, 0));
        job.start(1, {"init", "reduce=100", "reduce=1", "destroy"}, variables_of(where, 1));
        job.finish();
        for (int rank = 0; rank < 2; ++rank) {
            INFO("rank " << rank << " said\n" << job[rank].output());
            CHECK(contains(job[rank].output(), "rank 0 called all_to_all_v of int32, rank 1 called all_reduce of 100"));
        }
    }
}

TEST_CASE("counts that differ in collectives of uneven parts are an error of all ranks, with both counts",
          "[messages]") {
    struct Wrong {
        const char *step, *function;
        bool of_root = false;   // what another rank than the root says of others' parts matters to nobody
        bool of_pairs = false;  // each rank's table is of its own
    };
    const Wrong wrongs[] = {{.step = "all_to_all_v", .function = "weftAlltoAllv", .of_pairs = true},
                            {.step = "all_gather_v", .function = "weftAllGatherv"},
                            {.step = "gather_v", .function = "weftGatherv", .of_root = true},
                            {.step = "scatter_v", .function = "weftScatterv", .of_root = true},
                            {.step = "reduce_scatter_v", .function = "weftReduceScatterv"}};
    for (const Where& where : everywhere)
        for (const Wrong& wrong : wrongs)
            for (const int ranks : {2, 4})
                for (const int odd : {0, ranks - 1})
                    for (const bool empty : {false, true}) {
                        if (small() && (ranks == 4) == empty) continue;
                        // Of another rank's part, which it does not refuse itself; or of its own with the root.
                        const int part = odd == 0 ? ranks - 1 : wrong.of_root ? odd : 0;
                        INFO(wrong.step << ' ' << where.name << ": rank " << odd << " of " << ranks << " says "
                                        << (empty ? "nothing" : "more") << " of part " << part);
                        Job job(ranks);
                        const std::string later = job.another_id();
                        const int right = 1000 + part + (wrong.of_pairs ? odd : 0), other = empty ? 0 : 70000;
                        for (int rank = 0; rank < ranks; ++rank) {
                            std::string call = std::string(wrong.step) + "=";
                            for (int of = 0; of < ranks; ++of) {
                                const bool differs = rank == odd && of == part;
                                call += std::to_string(differs ? other : 1000 + of + (wrong.of_pairs ? rank : 0)) + ",";
                            }
                            job.start(rank,
                                      {"init", call, "reduce=1", "async", "destroy", "id=" + later, "init",
                                       "reduce=1000", "destroy"},
                                      variables_of(where, rank));
                        }
                        job.finish();
                        for (int rank = 0; rank < ranks; ++rank) {
                            const std::string& said = job[rank].output();
                            INFO("rank " << rank << " said\n" << said);
                            const auto call = [&](int count) {
                                return "called " + std::string(wrong.function) + " with " + std::to_string(count) +
                                       " int32 ";
                            };
                            CHECK(contains(said, call(other)));
                            CHECK(contains(said, call(right)));
                            CHECK(contains(said, "rank " + std::to_string(odd)));
                            CHECK(job.answer(rank, "async") == "9");
                            CHECK(job.answer(rank, "init") == "0");
                            CHECK(job.answer(rank, "reduce") == "0");
                        }
                    }
}

TEST_CASE("reductions that differ in a reduce-scatter of uneven parts are an error of all ranks, with both",
          "[messages]") {
    struct Kind {
        const char *name, *told;
    };
    const Kind kinds[] = {{"sum", "sum"},
                          {"prod", "prod"},
                          {"scaled", "premulsum"},
                          {"function", "user's reduction"},
                          {"ordered_function", "user's reduction in rank order"}};
    for (const Where& where : everywhere)
        for (const Kind& usual : kinds)
            for (const Kind& odd : kinds) {
                if (&usual >= &odd || (small() && &usual != kinds && &odd != kinds + 4)) continue;
                INFO(where.name << ": rank 1 of 3 combines by " << odd.name << ", the others by " << usual.name);
                Job job(3);
                for (int rank = 0; rank < 3; ++rank)
                    job.start(rank,
                              {"init", std::string("reduce_scatter_v=10,11,12,") + (rank == 1 ? odd : usual).name,
                               "reduce=1", "async", "destroy"},
                              variables_of(where, rank));
                job.finish();
                for (int rank = 0; rank < 3; ++rank) {
                    const std::string& said = job[rank].output();
                    INFO("rank " << rank << " said\n" << said);
                    for (const Kind& kind : {usual, odd})
                        CHECK(contains(said, " int32 (" + std::string(kind.told) + ") "));
                    CHECK(contains(said, "rank 1"));
                    CHECK(contains(said, "[mismatch.message]"));
                    CHECK(job.answer(rank, "async") == "9");
                }
            }
}

TEST_CASE("a rank that waits for refused uneven parts names their rank at the deadline", "[messages]") {
    for (const char* step : {"all_to_all_v", "all_gather_v", "gather_v", "reduce_scatter_v"})
        CHECK(with_growing_limit(500, [&](int64_t limit_ms) {
                  Job job(2);
                  const std::vector<std::string> limit{"WEFT_TIMEOUT_MS=" + std::to_string(limit_ms), quiet};
                  job.start(0, {"init", "reduce=1", std::string(step) + "=10,11", "async", "destroy"}, limit);
                  job.start(1, {"init", "reduce=1", std::string(step) + "=10,-1", "await", "async", "destroy"}, limit);
                  CHECK(job[0].says(std::string(step) + " "));
                  job[1].kill(SIGUSR1);
                  job.finish();
                  const std::string late = job.answer(0, step), refused = job.answer(1, step);
                  const bool right = late.rfind("8 ", 0) == 0 &&
                                     contains(late, std::string("operation 2, ") + step + " of int32") &&
                                     contains(late, "rank 1 (pid " + std::to_string(job[1].pid())) &&
                                     contains(late, "outside Weft, last operation 1") && refused.rfind("4 ", 0) == 0 &&
                                     job.error(1, step).id == "argument.count" && job.answer(1, "async") == "8";
                  return right ? "" : job.everything();
              }) == "");
}
