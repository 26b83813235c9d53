// check_in_test.cpp: the connections and frames of a rendezvous between processes are those of the model
// (tests/bootstrap/check_in_model.hpp), for more hosts than wait at the root.
#include "tests/amount.hpp"
#include "tests/bootstrap/check_in_model.hpp"
#include "tests/hosts/network.hpp"

using namespace weft::internal::test;
using weft::internal::CheckInTree;
using weft::internal::HostEntry;

namespace {

// One rank a host, and machines that are all equal. The bytes depend on names and are not compared.
CheckInModel model_of(int hosts) {
    std::vector<HostEntry> entries;
    for (int host = 0; host < hosts; ++host) {
        HostEntry& entry = entries.emplace_back();
        entry.ranks = hosts;
        entry.members = {{.rank = host}};
        entry.machine.text = "of all";
    }
    return CheckInModel(entries, {});
}

struct Counts {
    long connections = -1, sent = -1, received = -1, received_bytes = -1;
};
Counts counts_after(const std::string& log, const std::string& begin) {
    Counts counts;
    const size_t at = log.find(begin);
    if (at == std::string::npos) return counts;
    (void)sscanf(log.c_str() + at + begin.size(),
                 "%ld connections; %ld frames and %*d bytes sent; %ld frames and %ld bytes received",
                 &counts.connections, &counts.sent, &counts.received, &counts.received_bytes);
    return counts;
}

void compare(const Counts& counts, const weft::internal::CheckInTraffic& model) {
    CHECK(counts.connections == long(model.connections));
    CHECK(counts.sent == long(model.frames_sent));
    CHECK(counts.received == long(model.frames_received));
}

// Rank 0 has started and made the id. Empty, or why the counts say nothing: a leader gave up its parent.
std::string compare_with_model(SpreadJob& job, int hosts) {
    job.finish();
    const std::string root = job[0].error();
    if (contains(root, "waits at the root")) return job.everything();
    const CheckInModel model = model_of(hosts);
    compare(counts_after(root, "the root had "), model.at(0));
    const size_t table = root.find("the rank table has ");
    REQUIRE(table != std::string::npos);
    const long table_bytes = atol(root.c_str() + table + strlen("the rank table has "));
    std::vector<int> seen(size_t(hosts) + 1);
    for (int rank = 0; rank < hosts; ++rank) {
        INFO(job[rank].error());
        CHECK(job.answer(rank, "init") == "0");
        const std::string log = job[rank].error(), begin = "the leader at place ";
        REQUIRE(log.find(begin) != std::string::npos);
        const int place = atoi(log.c_str() + log.find(begin) + begin.size());
        REQUIRE((place > 0 && place <= hosts));
        ++seen[size_t(place)];
        const Counts counts = counts_after(log, begin + std::to_string(place) + " had ");
        compare(counts, model.at(place));
        CHECK(counts.received_bytes < table_bytes + 600);
    }
    for (int place = 1; place <= hosts; ++place) CHECK(seen[size_t(place)] == 1);
    return "";
}

}  // namespace

TEST_CASE("hosts of a job exchange the connections and frames of the model", "[check_in]") {
    constexpr int hosts = CheckInTree::arity + 3;
    CHECK(with_growing_limit(10'000, [](int64_t) {
              SpreadJob job(hosts, 1);
              job.use_id("make");
              job.start(0, {"init", "destroy"}, telling);
              REQUIRE(eventually([&] { return job.answer(0, "id").size() == 256; }));
              job.use_id(job.answer(0, "id"));
              for (int rank = 1; rank < hosts; ++rank) job.start(rank, {"init", "destroy"}, telling);
              return compare_with_model(job, hosts);
          }) == "");
}

TEST_CASE("64 hosts in network namespaces exchange the connections and frames of the model", "[check_in]") {
    if (small()) return;
    NEEDS_A_NETWORK();
    constexpr int hosts = 64;
    Network network(hosts);
    CHECK(with_growing_limit(10'000, [&](int64_t) {
              NetworkJob job(network, 1);
              for (int rank = 0; rank < hosts; ++rank) job.start(rank, {"init", "reduce=1000", "destroy"}, telling);
              return compare_with_model(job, hosts);
          }) == "");
}

// As with a small `ulimit -n`: the leaders that wait elsewhere need none of the root's descriptors.
TEST_CASE("a root with few descriptors serves more hosts than it has descriptors", "[check_in]") {
#if !WEFT_TEST_ASAN && !WEFT_TEST_TSAN  // which need descriptors themselves
    if (small()) return;
    constexpr int hosts = 80, descriptors = 70;
    SpreadJob job(hosts, 1);
    job.use_id("make");
    job.start(0, {"limit=nofile," + std::to_string(descriptors), "init", "destroy"}, {quiet});
    REQUIRE(eventually([&] { return job.answer(0, "id").size() == 256; }));
    job.use_id(job.answer(0, "id"));
    for (int rank = 1; rank < hosts; ++rank) job.start(rank, {"init", "destroy"}, {quiet});
    job.finish();
    for (int rank = 0; rank < hosts; ++rank) CHECK(job.answer(rank, "init") == "0");
#endif
}
