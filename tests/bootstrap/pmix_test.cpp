// pmix_test.cpp: an id through PMIx's library: one that works, none, a wrong one, and those that hang or fail.
// tools/test --launchers runs the real one of Open MPI.
#include "src/launchers/pmix.hpp"

#include <dlfcn.h>

#include "tests/bootstrap/fake_environment.hpp"
#include "tests/bootstrap/ranks.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

int open_sessions() {
    void* library = dlopen(FAKE_PMIX, RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(library);
    return reinterpret_cast<int (*)()>(dlsym(library, "fake_pmix_sessions"))();
}

Status failure_of(const std::string& request, int64_t deadline_ms = patient_ms) {
    FakeEnvironment environment(Variables{{"PMIX_RANK", "0"}});
    setenv("WEFT_TEST_PMIX", request.c_str(), 1);
    auto result = exchange_by_pmix(FAKE_PMIX, exchange_of(0, 2, deadline_ms));
    unsetenv("WEFT_TEST_PMIX");
    INFO(request);
    REQUIRE(!result);
    CHECK(result.status().sentence().rfind("PMIx", 0) == 0);
    return result.take_status();
}

}  // namespace

TEST_CASE("PMIx hands rank 0's id to all ranks, says how many there are, and its session ends", "[pmix]") {
    for (const int rank : {0, 1}) {
        FakeEnvironment environment(Variables{{"PMIX_RANK", std::to_string(rank)}});
        const auto result = exchange_by_pmix(FAKE_PMIX, exchange_of(rank, 2));
        INFO(result.status().sentence());
        REQUIRE(result);
        CHECK(result->shared.text == hex_text);
        CHECK(result->ranks == 2);
        CHECK(result->local_size == 2);
        CHECK(result->local_rank == rank);
        CHECK(open_sessions() == 0);
    }
}

TEST_CASE("a failure in PMIx is reported with its step and PMIx's own name, and the session ends", "[pmix]") {
    CHECK(failure_of("PMIx_Init fail").sentence() == "PMIx, the beginning of a session: UNREACHABLE (-25)");
    CHECK(failure_of("PMIx_Put fail").sentence() == "PMIx, putting the unique id: UNREACHABLE (-25)");
    CHECK(failure_of("PMIx_Commit fail").sentence() == "PMIx, committing: UNREACHABLE (-25)");
    CHECK(failure_of("PMIx_Fence fail").sentence() == "PMIx, the fence of all ranks: UNREACHABLE (-25)");
    CHECK(failure_of("PMIx_Get fail").sentence() == "PMIx, rank 0's unique id: UNREACHABLE (-25)");
    CHECK(failure_of("type fail").sentence() == "PMIx: rank 0's unique id is no text");
    CHECK(open_sessions() == 0);
}

TEST_CASE("a fence that not all ranks come to meets the deadline", "[pmix]") {
    CHECK(with_growing_limit(100, [](int64_t limit_ms) {
              const Status status = failure_of("PMIx_Fence hang", limit_ms);
              CHECK(status.code() == weftTimeout);
              const bool named = status.sentence() == "PMIx: waited " + std::to_string(limit_ms) +
                                                          " ms for all ranks at a fence: do all run, and call Weft?";
              return named ? "" : status.sentence();
          }) == "");
    CHECK(contains(failure_of("PMIx_Init hang", 100).sentence(), "waited 100 ms for its start"));
}

TEST_CASE("a missing or wrong library is reported by its name", "[pmix]") {
    FakeEnvironment environment(Variables{});
    const auto missing = exchange_by_pmix("/nowhere/libpmix.so.2", exchange_of(0, 2));
    REQUIRE(!missing);
    CHECK(missing.status().code() == weftInvalidUsage);
    CHECK(contains(missing.status().sentence(),
                   "WEFT_PMIX_LIBRARY is `/nowhere/libpmix.so.2`, which cannot be loaded: "));
    const auto other = exchange_by_pmix(FAKE_MPI, exchange_of(0, 2));
    REQUIRE(!other);
    CHECK(contains(other.status().sentence(), "lacks functions of PMIx"));
}

TEST_CASE("after MPI_Finalize PMIx does not carry the id", "[pmix]") {
    void* mpi = dlopen(FAKE_MPI, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(mpi);
    reinterpret_cast<void (*)(int, int)>(dlsym(mpi, "fake_mpi_set"))(1, 1);
    const auto result = exchange_by_pmix(FAKE_PMIX, exchange_of(0, 2));
    dlclose(mpi);
    REQUIRE(result);
    CHECK(!result->shared.text);
    CHECK(result->shared.reason == "MPI was finalized, and PMIx with it");
}
