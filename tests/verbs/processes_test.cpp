// Two processes over the fake libibverbs: messages, losses, and a peer that is killed.
#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"
#include "tests/verbs/side.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

std::unique_ptr<Subprocess> side(int number, const std::string& folder, const std::string& messages,
                                 const std::string& bytes, const std::string& statements) {
    return std::make_unique<Subprocess>(
        std::vector<std::string>{VERBS_PING_PONG, FAKE_IBVERBS_LIBRARY, number == 0 ? "fake0" : "fake1",
                                 std::to_string(number), folder, messages, bytes},
        std::vector<std::string>{"FAKE_IBVERBS=" + statements});
}

}  // namespace

TEST_CASE("two processes exchange messages", "[verbs]") {
    for (const char* statements : {"reorder 0", "hold 200", "lose 3 2; lose 40 1"}) {
        INFO(statements);
        const Folder folder;
        const auto one = side(0, folder.path.string(), "60", "70001", statements);
        const auto other = side(1, folder.path.string(), "60", "70001", statements);
        const int first = one->wait(), second = other->wait();
        INFO(one->error());
        INFO(other->error());
        CHECK(first == 0);
        CHECK(second == 0);
        CHECK(one->output().find("side0 fake0:1 GID 3 10.77.0.1") == 0);
    }
}

TEST_CASE("a killed peer ends the retries of the other process", "[verbs]") {
    const Folder folder;
    const auto one = side(0, folder.path.string(), "1000000", "64", "");
    const auto other = side(1, folder.path.string(), "1000000", "64", "");
    CHECK(eventually([&] {
        return access((folder.path / "ready1").c_str(), R_OK) == 0 &&
               access((folder.path / "ready0").c_str(), R_OK) == 0;
    }));
    other->kill(SIGKILL);
    CHECK(one->ends());
    CHECK(one->wait() == 1);
    CHECK(one->error().find("retries exceeded (status 12") != std::string::npos);
}
