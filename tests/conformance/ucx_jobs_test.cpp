// ucx_jobs_test.cpp: jobs between simulated hosts over UCX, and UCX where it cannot work: each rank returns an error with an
// id, and none hangs.
#include <unistd.h>

#include <string>

#include "tests/catch.hpp"
#include "tests/conformance/job.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {
namespace {

Job ucx_job(int ranks, std::vector<std::string> variables) {
    variables.insert(variables.end(), {"WEFT_TRANSPORTS=ucx,tcp", "WEFT_DEBUG=INFO"});
    return job(ranks, std::move(variables));
}

}  // namespace

TEST_CASE("collectives and messages between hosts go over UCX", "[ucx]") {
    const auto [ranks, transports] = GENERATE(table<int, std::string>({{2, "tcp"}, {3, "sm"}}));
    const Job done = ucx_job(ranks, {"UCX_TLS=" + transports});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == ranks);
    CHECK_THAT(done.log, Catch::Contains("over ucx, channel") && !Catch::Contains("over tcp, channel"));
}

TEST_CASE("UCX serves only if it is named", "[ucx]") {
    const Job done = job(2, {"WEFT_TRANSPORTS=^shm", "WEFT_DEBUG=INFO"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("over tcp, channel") && !Catch::Contains("UCX"));
}

TEST_CASE("UCX without a usable transport is an error with the reason on every rank", "[ucx]") {
    const auto [variable, id] = GENERATE(
        table<std::string, std::string>({{"UCX_TLS=nonsense", "ucx.unusable"}, {"UCX_TLS=self", "ucx.broken"}}));
    const Job done = ucx_job(2, {variable, "UCX_LOG_LEVEL=fatal"});
    INFO(variable << "\n" << done.said << done.log);
    CHECK(done.count(": " + id + ": ") == 2);
    CHECK(done.count("UCX_TLS") >= 2);
}

TEST_CASE("a library that is not UCX is an error that names the missing function", "[ucx]") {
    Folder folder;
    REQUIRE(symlink(WEFT_LIBRARY, (folder.path / "libucp.so.0").c_str()) == 0);
    const LibraryFolder there(folder.path.string());
    const Job done = ucx_job(2, {});
    INFO(done.said << done.log);
    CHECK(done.count(": ucx.unusable: ") == 2);
    CHECK(done.count("it lacks uc") == 2);
}

TEST_CASE("if only one rank names UCX, both use tcp, and a warning says why", "[ucx]") {
    const Job done = ucx_job(2, {"ONLY_RANK=1"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("over tcp, because"));
}

}  // namespace weft::internal::test
