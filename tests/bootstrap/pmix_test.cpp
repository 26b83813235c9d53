// pmix_test.cpp: the exchange by a PMIx library that works, is missing, is another library, hangs or fails.
// The launcher tests of tools/test run the real one of Open MPI.
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

TEST_CASE("PMIx passes rank 0's id and the number of ranks to all ranks, and its session ends", "[pmix]") {
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

TEST_CASE("a failure in PMIx has PMIx's own error, and the session ends", "[pmix]") {
    for (const char* call : {"PMIx_Init", "PMIx_Put", "PMIx_Commit", "PMIx_Fence", "PMIx_Get"}) {
        const Status status = failure_of(std::string(call) + " fail");
        CHECK_ERROR(status, "launcher.lost");
        CHECK(contains(status.sentence(), "UNREACHABLE (-25)"));
    }
    CHECK_ERROR(failure_of("type fail"), "launcher.lost");
    CHECK(open_sessions() == 0);
}

TEST_CASE("a fence with missing ranks fails at the deadline", "[pmix]") {
    CHECK(with_growing_limit(100, [](int64_t limit_ms) {
              const Status status = failure_of("PMIx_Fence hang", limit_ms);
              CHECK_ERROR(status, "launcher.timeout");
              const bool named = contains(status.sentence(), std::to_string(limit_ms) + " ms for all ranks at a fence");
              return named ? "" : status.sentence();
          }) == "");
    const Status start = failure_of("PMIx_Init hang", 100);
    CHECK_ERROR(start, "launcher.timeout");
    CHECK(contains(start.sentence(), "100 ms for its start"));
}

TEST_CASE("a missing or wrong library is reported by its name", "[pmix]") {
    FakeEnvironment environment(Variables{});
    const auto missing = exchange_by_pmix("/nowhere/libpmix.so.2", exchange_of(0, 2));
    CHECK_ERROR(missing, "option.unloadable");
    CHECK(contains(missing.status().sentence(), "WEFT_PMIX_LIBRARY is `/nowhere/libpmix.so.2`"));
    CHECK_ERROR(exchange_by_pmix(FAKE_MPI, exchange_of(0, 2)), "launcher.pmix");
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
