// rendezvous_test.cpp: ranks of several hosts that cannot meet: missing, misnumbered, with a wrong id, where the root is
// gone or cannot be reached.
#include <sodium.h>
#include <sys/socket.h>

#include <atomic>
#include <list>

#include "src/net/outgoing_connection.hpp"
#include "tests/hosts/network.hpp"
#include "tests/net/ends.hpp"

using namespace weft::internal::test;
using weft::internal::Fd;
using weft::internal::UniqueId;

namespace {

UniqueId content_of(const std::string& id) { return *UniqueId::read(weft::unique_id_from_text(id)); }
weft::internal::net::Address root_of(const std::string& id) { return content_of(id).root_addresses().front(); }

// The id's bytes at the offset are the given ones, and its checksum fits.
std::string altered(const std::string& id, size_t offset, const std::string& bytes) {
    weftUniqueId content = weft::unique_id_from_text(id);
    memcpy(content.internal + offset, bytes.data(), bytes.size());
    unsigned char hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, reinterpret_cast<const unsigned char*>(&content),
                       sizeof content - sizeof(uint64_t), nullptr, 0);
    memcpy(content.internal + sizeof content - sizeof(uint64_t), hash, sizeof(uint64_t));
    return weft::to_text(content);
}
constexpr size_t secret_offset = 24;

const Steps fresh(const std::string& id, int rank, int ranks) {
    return {"id=" + id, "as=" + std::to_string(rank) + "," + std::to_string(ranks), "init", "reduce=1000", "destroy"};
}
// The variables of a launcher whose ranks derive their id, each on a host of its own.
std::vector<std::string> derived_at(const std::string& host, int port, int rank, int64_t limit_ms) {
    return {quiet,
            "WEFT_INIT_TIMEOUT_MS=" + std::to_string(limit_ms),
            "WEFT_HOSTID=node" + std::to_string(rank),
            "WEFT_SECRET=of test " + std::to_string(getpid()),
            "WEFT_RANK=" + std::to_string(rank),
            "WEFT_SIZE=2",
            "WEFT_ROOT_HOST=" + host,
            "WEFT_ROOT_PORT=" + std::to_string(port)};
}
Steps joined(Steps first, const Steps& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
}

}  // namespace

TEST_CASE("a host that never comes: at the deadline its ranks are named on the others", "[rendezvous]") {
    CHECK(with_growing_limit(3000, [](int64_t limit_ms) {
              SpreadJob job(3, 2);
              const std::string later = job.another_id();
              for (int rank = 0; rank < 4; ++rank)
                  job.start(rank, joined({"init=" + std::to_string(limit_ms)}, fresh(later, rank, 4)), {quiet});
              job.finish();
              std::string objection;
              for (int rank = 0; rank < 4; ++rank) {
                  const std::string told = job.first_answer(rank, "init");
                  if (told.rfind("8 rank ", 0) != 0 ||
                      !(contains(told, "for ranks 4 to 5:") || contains(told, "for ranks 4, 5:")) ||
                      !contains(told, "are all 6 ranks started, with this unique id?"))
                      objection = job.everything();
                  CHECK(job.answer(rank, "reduce") == "0");
              }
              return objection;
          }) == "");
}

TEST_CASE("a root that ends during init is named, and a later rank reports that it is gone", "[rendezvous]") {
    SpreadJob job(3, 1);
    const std::string later = job.another_id();
    job.use_id("make");
    job.start(0, {"await"}, telling);
    REQUIRE(eventually([&] { return job.answer(0, "id").size() == 256; }));
    job.use_id(job.answer(0, "id"));
    job.start(1, joined({"init"}, fresh(later, 0, 2)), {quiet});
    REQUIRE(eventually([&] { return contains(job[0].error(), "checked in with 1 of 3 ranks"); }));
    job.kill(0);
    CHECK(job[1].says("init 6 "));
    CHECK(
        contains(job.first_answer(1, "init"), "the process where the ranks check in, the one that made the unique id"));
    CHECK(with_growing_limit(1500, [&](int64_t limit_ms) {
              const int process = job.processes();
              job.start(2, {"init=" + std::to_string(limit_ms)}, {quiet});
              job.finish(process);
              const std::string told = job.answer(process, "init");
              CHECK(told.rfind("8 ", 0) == 0);
              const bool named =
                  contains(told, "the root of the rendezvous was not reached") && contains(told, "Connection refused");
              return named ? "" : told;
          }) == "");
    const int last = job.processes();
    job.start(2, fresh(later, 1, 2), {quiet});
    job.finish();
    for (const int process : {1, last}) CHECK(job.answer(process, "reduce") == "0");
}

TEST_CASE("a wrong file of rank 0 is an error of all ranks, at any delay", "[rendezvous]") {
    for (const std::string variable : {"WEFT_TOPO_FILE", "WEFT_TUNE_FILE"})
        for (const int hosts : {1, 2})
            for (const bool late : {false, true}) {
                INFO(variable << ", " << hosts << " hosts" << (late ? ", late" : ""));
                SpreadJob job(hosts, 4 / hosts);
                job.start(0, {"init"}, {"WEFT_DEBUG=WARN", variable + "=/nonexistent"});
                if (late) REQUIRE(eventually([&] { return contains(job[0].error(), "all ranks fail with this"); }));
                for (int rank = 1; rank < 4; ++rank) job.start(rank, {"init"}, {quiet, variable + "="});
                job.finish();
                for (int rank = 0; rank < 4; ++rank) {
                    const std::string told = job.answer(rank, "init");
                    CHECK_THAT(told, Catch::Contains("rank 0 (pid") && Catch::Contains(variable) &&
                                         Catch::Contains("/nonexistent"));
                    CHECK(told.rfind("8 ", 0) != 0);  // that is the deadline
                }
            }
}

TEST_CASE("a wrong topology file of a host's leader is an error of all ranks", "[rendezvous]") {
    SpreadJob job(2, 2);
    for (int rank = 0; rank < 4; ++rank)
        job.start(rank, {"init"}, {quiet, std::string("WEFT_TOPO_FILE=") + (rank < 2 ? "" : "/nonexistent")});
    job.finish();
    for (int rank = 0; rank < 4; ++rank) {
        const std::string told = job.answer(rank, "init");
        CHECK_THAT(told, Catch::Contains("on node1: ") && Catch::Contains("WEFT_TOPO_FILE"));
        CHECK(told.rfind("8 ", 0) != 0);
    }
}

// Rank 1's output about its root, process 0, which was stopped and now goes on and ends.
static std::string told_of_stopped_root(SpreadJob& job, int64_t limit_ms) {
    const std::string told = job.answer(1, "init");
    job[0].kill(SIGUSR1);
    job[0].kill(SIGCONT);
    job.finish();
    CHECK(told.rfind("8 rank 1 waited " + std::to_string(limit_ms) + " ms for rank 0", 0) == 0);
    return told;
}

TEST_CASE("a root that accepts connections and is silent is named, with its address and since when", "[rendezvous]") {
    SECTION("stopped before it answers") {
        CHECK(with_growing_limit(4500, [](int64_t limit_ms) {
                  SpreadJob job(2, 1);
                  job.use_id("make");
                  job.start(0, {"await"}, {quiet});
                  REQUIRE(eventually([&] { return job.answer(0, "id").size() == 256; }));
                  job.use_id(job.answer(0, "id"));
                  job[0].kill(SIGSTOP);
                  CHECK(eventually([&] { return process_state(job[0].pid()) == 'T'; }));
                  job.start(1, {"init=" + std::to_string(limit_ms)}, {quiet});
                  job.finish(1);
                  const std::string told = told_of_stopped_root(job, limit_ms);
                  const bool named = contains(told, "the root at " + root_of(job.id()).text()) &&
                                     contains(told, " accepted the connection ") &&
                                     contains(told, " ms ago and has not answered");
                  return named ? "" : told;
              }) == "");
    }
    SECTION("stopped after the check-in") {
        CHECK(with_growing_limit(4500, [](int64_t limit_ms) {
                  SpreadJob job(2, 1);
                  job.use_id("make");
                  job.start(0, {"await"}, telling);
                  REQUIRE(eventually([&] { return job.answer(0, "id").size() == 256; }));
                  job.use_id(job.answer(0, "id"));
                  job.start(1, {"init=" + std::to_string(limit_ms)}, {quiet});
                  CHECK(eventually([&] {
                      return contains(job[0].error(), "checked in with 1 of 2 ranks") || is_gone(job[1].pid());
                  }));
                  job[0].kill(SIGSTOP);
                  job.finish(1);
                  const std::string told = told_of_stopped_root(job, limit_ms);
                  const bool named = contains(told, "the root at ") && contains(told, " has said nothing for ");
                  return named ? "" : told;
              }) == "");
    }
    SECTION("a stranger's server at its port") {
        const Fd stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(listen(stranger.number(), 16) == 0);
        const int port = weft::internal::net::local_address(stranger.number()).port();
        CHECK(with_growing_limit(3000, [&](int64_t limit_ms) {
                  Job job(2);
                  job.start(1, {"environment"}, derived_at("127.0.0.1", port, 1, limit_ms));
                  job.finish();
                  const std::string told = job.answer(0, "environment");
                  const bool named = contains(told, "for rank 0; the root at 127.0.0.1:" + std::to_string(port) +
                                                        " accepted the connection ") &&
                                     contains(told, " ms ago and has not answered");
                  return named ? "" : told;
              }) == "");
    }
}

TEST_CASE("two processes of two hosts with one rank learn each other's host", "[rendezvous]") {
    SpreadJob job(2, 1);
    job.start(0, {"init", "destroy"}, {quiet});
    job.Job::start(0, {"init", "destroy"}, {quiet, "WEFT_HOSTID=node1"});
    job.finish();
    for (int process = 0; process < 2; ++process) {
        const std::string told = job.answer(process, "init");
        INFO(told);
        CHECK(told.rfind("9 two processes are rank 0 of 2: pid ", 0) == 0);
        for (const char* text : {"node0 (", "node1 ("}) CHECK(contains(told, text));
        for (int other = 0; other < 2; ++other) CHECK(contains(told, "pid " + std::to_string(job[other].pid())));
    }
}

TEST_CASE("hosts with different sizes get an error with both", "[rendezvous]") {
    SpreadJob job(2, 1);
    job.start_as(0, 2, {"init"}, {quiet, "WEFT_HOSTID=node0"});
    job.start_as(1, 3, {"init"}, {quiet, "WEFT_HOSTID=node1"});
    job.finish();
    for (int process = 0; process < 2; ++process) {
        const std::string told = job.answer(process, "init");
        INFO(told);
        CHECK(told.rfind("9 ", 0) == 0);
        for (const char* text : {"node0 (", "node1 (", "[mismatch.ranks]"}) CHECK(contains(told, text));
        CHECK((contains(told, "nranks 2,") && contains(told, "given 3:")) !=
              (contains(told, "nranks 3,") && contains(told, "given 2:")));
    }
}

TEST_CASE("a wrong secret and an old id admit no process and disturb no rank", "[rendezvous]") {
    SpreadJob job(2, 1);
    // The root knows neither: ids whose root is here, but with a secret that it never had.
    const std::string wrong = altered(job.id(), secret_offset, std::string(32, 'x'));
    job.start(0, {"init", "reduce=1000", "destroy"}, {quiet});
    {
        Job others(2, wrong);
        // There is no point in waiting for the deadline, and none is set.
        others.start(0, {"init=0"}, {quiet, "WEFT_HOSTID=node2"});
        others.start(1, {"init=0"}, {quiet, "WEFT_HOSTID=node3"});
        others.finish();
        for (int process = 0; process < 2; ++process) {
            INFO(others.answer(process, "init"));
            CHECK(others.answer(process, "init").rfind("5 ", 0) == 0);
            CHECK(contains(others.answer(process, "init"), "[init.id-unknown]"));
        }
    }
    job.start(1, {"init", "reduce=1000", "destroy"}, {quiet});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
    // All have met by that one: now it is of yesterday.
    (void)job.another_id();
    job.start(0, {"init=0"}, {quiet});
    job.start(1, {"init=0"}, {quiet});
    job.finish();
    for (const int process : {2, 3}) {
        INFO(job.answer(process, "init"));
        CHECK(contains(job.answer(process, "init"), "[init.id-unknown]"));
    }
}

TEST_CASE("too few descriptors on one host are an error on every host", "[rendezvous]") {
#if !WEFT_TEST_ASAN && !WEFT_TEST_TSAN  // which need descriptors themselves
    CHECK(with_growing_limit(5000, [](int64_t limit_ms) {
              std::vector<std::unique_ptr<SpreadJob>> jobs;
              const int limits[] = {5, 8, 10, 12, 14, 16, 18, 20, 22, 25, 30, 60};
              for (const int files : limits) {
                  jobs.push_back(std::make_unique<SpreadJob>(2, 1));
                  for (int rank = 0; rank < 2; ++rank) {
                      Steps steps{"init=" + std::to_string(limit_ms), "reduce=1000", "async", "destroy"};
                      if (rank == 1) steps.insert(steps.begin(), "limit=nofile," + std::to_string(files));
                      jobs.back()->start(rank, steps, {quiet});
                  }
              }
              const auto exhausted = [](const std::string& told) {
                  return contains(told, "ulimit -n") || contains(told, "Too many open files");
              };
              std::string objection;
              for (size_t index = 0; index < jobs.size(); ++index) {
                  SpreadJob& job = *jobs[index];
                  INFO(limits[index] << " files");
                  job.finish();
                  const std::string init = job.answer(1, "init"), call = job.answer(1, "reduce"),
                                    other = job.answer(0, "reduce");
                  INFO(job[0].output() << job[1].output());
                  if (limits[index] <= 5) CHECK(init != "0");
                  bool as_expected = limits[index] < 60 || other == "0";
                  if (init != "0") {
                      as_expected &= exhausted(init);  // unless all are so slow that they do not meet
                      CHECK((job.answer(0, "init") != "0" || other != "0"));
                  } else if (call != "0") {
                      // The other may have had what it needed of this call before; then the next one says so.
                      as_expected &= exhausted(call) && (exhausted(other) || other == "0");
                      as_expected &= job.answer(0, "async") == "2";
                  }
                  if (!as_expected) objection = std::to_string(limits[index]) + " files: " + job.everything();
              }
              return objection;
          }) == "");
#endif
}

TEST_CASE("another version of the library at the root is an error of both, with both versions", "[rendezvous]") {
    SpreadJob job(2, 1);
    job.start(0, {"init"}, {quiet});
    const weft::internal::net::Identity identity = content_of(job.id()).identity();
    // A caller of another version, up to where it is refused.
    const Fd caller = stranger_at(root_of(job.id()));
    weft::internal::net::HelloMessage hello;
    hello.head.version = WEFT_VERSION_CODE + 1;
    hello.name = identity.name;
    weft::internal::net::random_bytes(hello.nonce.data(), hello.nonce.size());
    REQUIRE(send(caller.number(), &hello, sizeof hello, 0) == ssize_t(sizeof hello));
    weft::internal::net::ChallengeMessage challenge;
    REQUIRE(recv(caller.number(), &challenge, sizeof challenge, MSG_WAITALL) == ssize_t(sizeof challenge));
    weft::internal::net::ProofMessage proof;
    proof.head.version = hello.head.version;
    proof.purpose = {weft::internal::net::checkin, 0, 0};
    proof.mac = client_proof(identity.secret, hello, challenge, proof.purpose);
    REQUIRE(send(caller.number(), &proof, sizeof proof, 0) == ssize_t(sizeof proof));
    weft::internal::net::RefusalMessage refusal;
    REQUIRE(recv(caller.number(), &refusal, sizeof refusal, MSG_WAITALL) == ssize_t(sizeof refusal));
    CHECK(std::string(refusal.error) == "mismatch.version");
    job.finish();
    for (const std::string& sentence : {std::string(refusal.sentence), job.answer(0, "init")}) {
        INFO(sentence);
        CHECK(contains(sentence, "version " + std::to_string(WEFT_VERSION_CODE)));
        CHECK(contains(sentence, "version " + std::to_string(WEFT_VERSION_CODE + 1)));
    }
    CHECK(job.answer(0, "init").rfind("9 ", 0) == 0);
}

TEST_CASE("an unreachable root and hosts without a common address family are errors", "[rendezvous]") {
    NEEDS_A_NETWORK();
    Network network(2);
    SECTION("cut off") {
        NetworkJob job(network, 1);
        job.start(0, {"init=3000"}, {quiet});
        network.swallow(1);
        job.start(1, {"init=2500"}, {quiet});
        job.finish();
        INFO(job[0].output() << job[1].output());
        CHECK(job.answer(0, "init").rfind("8 rank 0 waited 3000 ms for rank 1", 0) == 0);
        CHECK(job.answer(1, "init").rfind("8 rank 1 waited 2500 ms for rank 0", 0) == 0);
    }
    SECTION("families") {
        network.on(1, {"ip", "address", "del", Network::address(1) + "/24", "dev", "eth0"});
        network.on(1, {"ip", "address", "add", "fd99::2/64", "dev", "eth0", "nodad"});
        CHECK(with_growing_limit(2500, [&](int64_t limit_ms) {
                  NetworkJob job(network, 1);
                  for (int rank = 0; rank < 2; ++rank) job.start(rank, {"init=" + std::to_string(limit_ms)}, {quiet});
                  job.finish();
                  INFO(job.everything());
                  for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "init").rfind("8 ", 0) == 0);
                  const std::string told = job.answer(1, "init");
                  return contains(told, Network::address(0)) && contains(told, "unreachable") ? "" : told;
              }) == "");
    }
    SECTION("IPv6 alone works") {
        for (int host = 0; host < 2; ++host)
            network.on(host,
                       {"ip", "address", "add", "fd99::" + std::to_string(host + 1) + "/64", "dev", "eth0", "nodad"});
        NetworkJob job(network, 2);
        for (int rank = 0; rank < 4; ++rank)
            job.start(rank, {"init", "reduce=100000", "destroy"}, {quiet, "WEFT_SOCKET_FAMILY=AF_INET6"});
        job.finish();
        for (int rank = 0; rank < 4; ++rank) CHECK(job.answer(rank, "reduce") == "0");
    }
}

// With WEFT_PORT_RANGE processes of two hosts listen at the same port of it: each reaches itself, and is let in.
TEST_CASE("hosts with a common address use another one, or report at once that they have none", "[rendezvous]") {
    NEEDS_A_NETWORK();
    const std::string twin = "192.168.201.210";
    Network network(2, twin);
    const std::vector<std::string> ports{quiet, "WEFT_PORT_RANGE=40000-40010"};
    for (const int ranks_per_host : {1, 2}) {
        NetworkJob job(network, ranks_per_host);
        for (int rank = 0; rank < job.ranks(); ++rank)
            job.start(rank, {"init", "reduce=1000", "reduce=100000", "destroy"}, ports);
        job.finish();
        INFO(job.everything());
        for (int rank = 0; rank < job.ranks(); ++rank) {
            CHECK(job.answer(rank, "init") == "0");
            CHECK(job.answer(rank, "reduce") == "0");
        }
    }
    // Only the interface that is the same on both: rank 1 reaches itself, which no waiting changes.
    NetworkJob job(network, 1);
    const std::vector<std::string> twins = with(ports, {"WEFT_SOCKET_IFNAME=usb0"});
    job.start(0, {"init=1000"}, twins);
    job.start(1, {"init=0"}, twins);  // no deadline
    job.finish();
    const std::string told = job.answer(1, "init");
    INFO(told);
    CHECK(told.rfind("6 ", 0) == 0);
    CHECK(contains(told, twin + ":40000"));
    CHECK(contains(told, "usb0"));
    CHECK(job.answer(0, "init").rfind("8 ", 0) == 0);
    // The same of a root that a variable names, at a port of the range.
    NetworkJob derived(network, 1);
    derived.start(1, {"environment"}, with(derived_at(twin, 40000, 1, 0), {"WEFT_PORT_RANGE=40000-40000"}));
    derived.finish();
    INFO(derived.everything());
    CHECK(derived.answer(0, "environment").rfind("6 ", 0) == 0);
    CHECK(contains(derived.answer(0, "environment"), twin + ":40000"));
}

TEST_CASE("another process of the root's host leaves the root's port free", "[rendezvous]") {
    NEEDS_A_NETWORK();
    Network network(2);
    const auto variables = [](int rank) {
        return std::vector<std::string>{quiet,
                                        "WEFT_SECRET=of test " + std::to_string(getpid()),
                                        "WEFT_RANK=" + std::to_string(rank),
                                        "WEFT_SIZE=4",
                                        "WEFT_ROOT_HOST=" + Network::address(0),
                                        "WEFT_ROOT_PORT=40000",
                                        "WEFT_PORT_RANGE=40000-40010",
                                        "WEFT_INIT_TIMEOUT_MS=60000"};
    };
    NetworkJob job(network, 2);
    job.use_id(std::string(256, '0'));  // the environment has another one
    for (const int rank : {1, 2, 3}) job.start(rank, {"environment", "reduce=1000", "destroy"}, variables(rank));
    usleep(500'000);  // rank 1 has found a port for its host
    job.start(0, {"environment", "reduce=1000", "destroy"}, variables(0));
    job.finish();
    INFO(job.everything());
    for (int process = 0; process < 4; ++process) CHECK(job.answer(process, "reduce") == "0");
}

TEST_CASE("a root's name without an address and a root's port in use are errors", "[rendezvous]") {
    SECTION("name") {
        CHECK(with_growing_limit(3000, [](int64_t limit_ms) {
                  Job job(2);
                  for (int rank = 0; rank < 2; ++rank)
                      job.start(rank, {"environment"}, derived_at("nowhere.invalid", 29999, rank, limit_ms));
                  job.finish();
                  const std::string told = job.answer(1, "environment");
                  return contains(told, "nowhere.invalid") ? "" : told;
              }) == "");
    }
#if !WEFT_TEST_ASAN && !WEFT_TEST_TSAN  // which want to be loaded first
    SECTION("a resolver that never answers") {
        CHECK(with_growing_limit(3000, [](int64_t limit_ms) {
                  Job job(2);
                  for (int rank = 0; rank < 2; ++rank) {
                      auto all = derived_at("a.slow-resolver.test", 29999, rank, limit_ms);
                      all.push_back(std::string("LD_PRELOAD=") + SLOW_RESOLVER);
                      job.start(rank, {"environment"}, all);
                  }
                  job.finish();
                  INFO(job.everything());
                  for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "environment").rfind("8 ", 0) == 0);
                  const std::string told = job.answer(1, "environment");
                  return contains(told, "the name a.slow-resolver.test is still being looked up") ? "" : told;
              }) == "");
    }
    SECTION("a resolver that never answers, asked for a launcher's store") {
        const std::string name = "a.slow-resolver.test";
        const std::vector<std::string> always{quiet, "WEFT_INIT_TIMEOUT_MS=1500",
                                              std::string("LD_PRELOAD=") + SLOW_RESOLVER};
        for (const bool torch : {true, false}) {
            Job job(2);
            for (int rank = 0; rank < 2; ++rank) {
                const std::string number = std::to_string(rank);
                job.start(rank, {"environment"},
                          with(always, torch ? std::vector<std::string>{"RANK=" + number, "WORLD_SIZE=2",
                                                                        "MASTER_ADDR=" + name, "MASTER_PORT=29999"}
                                             : std::vector<std::string>{"HOROVOD_RANK=" + number, "HOROVOD_SIZE=2",
                                                                        "HOROVOD_GLOO_RENDEZVOUS_ADDR=" + name,
                                                                        "HOROVOD_GLOO_RENDEZVOUS_PORT=29999"}));
            }
            job.finish();
            for (int rank = 0; rank < 2; ++rank) {
                const std::string told = job.answer(rank, "environment");
                INFO(told);
                CHECK(told.rfind("8 ", 0) == 0);
                CHECK(contains(told, "the name " + name + " had no address within 1500 ms: it is still being"));
            }
        }
    }
#endif
    // 127.0.1.1 of /etc/hosts, where MASTER_ADDR is each host's own name.
    SECTION("a name by which every host means itself") {
        struct Lost {
            std::string variable, name, address;
            Job job{2};
        };
        std::list<Lost> all;  // each alone, so that nobody is met
        for (const int rank : {0, 1})
            for (const bool master : {true, false}) {
                Lost& lost = all.emplace_back();
                lost.variable = master ? "MASTER_ADDR" : "WEFT_ROOT_HOST";
                lost.name = master ? "127.0.1.1" : "localhost";
                lost.address = master ? "127.0.1.1" : "127.0.0.1";
                const std::string number = std::to_string(rank);
                std::vector<std::string> variables = derived_at(lost.name, 29998 - rank, rank, 1500);
                if (master)
                    variables = {
                        quiet,          "WEFT_INIT_TIMEOUT_MS=1500", "RANK=" + number,           "WORLD_SIZE=2",
                        "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",        "MASTER_ADDR=" + lost.name, "MASTER_PORT=29997"};
                variables.push_back("WEFT_SECRET=of test " + std::to_string(getpid()) + number + lost.name);
                lost.job.start(rank, {"environment"}, variables);
            }
        for (Lost& lost : all) {
            lost.job.finish();
            const std::string told = lost.job.answer(0, "environment");
            INFO(told);
            CHECK(told.rfind("8 ", 0) == 0);
            CHECK(contains(told, lost.variable + " is " + lost.name));
            CHECK(contains(told, lost.address));
        }
    }
    SECTION("port") {
        const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(listen(listener.number(), 1) == 0);
        const int port = weft::internal::net::local_address(listener.number()).port();
        Job job(2);
        for (int rank = 0; rank < 2; ++rank)
            job.start(rank, {"environment"}, derived_at("127.0.0.1", port, rank, rank == 0 ? 4000 : 1000));
        job.finish();
        INFO(job[0].output() << job[1].output());
        CHECK(contains(job.answer(0, "environment"), "port " + std::to_string(port) + " is taken by another process"));
        CHECK(job.answer(1, "environment") != "0");
    }
}

TEST_CASE("all communicators of a job with a launcher's id on this machine complete their rendezvous", "[rendezvous]") {
    for (const std::string secret : {"", "of this test"}) {
        if (small() && secret.empty()) continue;
        INFO("WEFT_SECRET " << secret);
        constexpr int times = 150;  // more than are expected ahead, twice
        Job job(2);
        // As weft run does, which is no rank itself.
        REQUIRE(content_of(job.id()).meet_descendants(secret).ok());
        for (int rank = 0; rank < 2; ++rank) {
            Steps steps;
            for (int time = 0; time < times; ++time)
                steps.insert(steps.end(), {"environment", "reduce=100", "destroy"});
            job.start(
                rank, steps,
                {quiet, "WEFT_HOSTID=node" + std::to_string(rank), "WEFT_RANK=" + std::to_string(rank), "WEFT_SIZE=2",
                 "WEFT_UNIQUE_ID=" + job.id(), "WEFT_SECRET=" + secret, "WEFT_INIT_TIMEOUT_MS=60000"});
        }
        job.finish();
        for (int rank = 0; rank < 2; ++rank) {
            INFO(job[rank].output());
            int met = 0;
            for (const std::string& line : lines_of(job[rank].output())) met += line == "environment 0";
            CHECK(met == times);
            CHECK(job.answer(rank, "reduce") == "0");
        }
    }
}
