// link_test.cpp: faults of the network between hosts: a link down for a moment or for good, lost packets, reset
// connections, tiny packets and tiny buffers. In network namespaces.
#include "tests/hosts/network.hpp"

using namespace weft::internal::test;

namespace {

// Calls until one fails; then, when signalled, a new communicator. False: it failed before anything had happened.
bool start_until_failure(NetworkJob& job, const std::string& loop, const std::vector<std::string>& variables) {
    for (int rank = 0; rank < job.ranks(); ++rank)
        job.start(
            rank,
            {"init", "reduce=1000", loop, "async", "destroy", "await", "id=later", "init", "reduce=100000", "destroy"},
            variables);
    for (int rank = 0; rank < job.ranks(); ++rank)
        if (job.await_answer(rank, "reduce") != "0") return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // into the calls
    return true;
}

// Every rank got an error, which has this `mention`.
bool all_failed(NetworkJob& job, const std::vector<std::string>& mention) {
    bool as_expected = true;
    for (int rank = 0; rank < job.ranks(); ++rank) {
        CHECK(job[rank].says("async"));
        const std::string told = job.answer(rank, "loop");
        bool found = false;
        for (const std::string& text : mention) found |= contains(told, text);
        as_expected &= found && told.rfind("6 ", 0) == 0 && job.answer(rank, "async") == "6";
    }
    return as_expected;
}

bool new_communicator_works(NetworkJob& job) {
    for (int rank = 0; rank < job.ranks(); ++rank) job[rank].kill(SIGUSR1);
    job.finish();
    bool as_expected = true;
    for (int rank = 0; rank < job.ranks(); ++rank)
        as_expected &= job.answer(rank, "init") == "0" && job.answer(rank, "reduce") == "0";
    return as_expected;
}

const char* const loops[] = {"loop=2", "loop=3000000"};

}  // namespace

TEST_CASE("a link that is down for a moment costs time and nothing else", "[link]") {
    NEEDS_A_NETWORK();
    for (const char* loop : {"loop=2,2000", "loop=3000000,20"})
        for (const bool silent : {true, false}) {
            if (small() && silent != contains(loop, "2000")) continue;
            INFO(loop << (silent ? ", silent" : ", with a carrier lost"));
            Network network(2);
            NetworkJob job(network, 2);
            for (int rank = 0; rank < 4; ++rank) job.start(rank, {"init", loop, "async", "destroy"}, {quiet});
            for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says("init 0"));
            for (int time = 0; time < 3; ++time) {
                silent ? network.swallow(1) : network.cut(1);
                std::this_thread::sleep_for(std::chrono::milliseconds(150));
                silent ? network.spit_out(1) : network.mend(1);
                std::this_thread::sleep_for(std::chrono::milliseconds(30));
            }
            job.finish();
            for (int rank = 0; rank < 4; ++rank) {
                CHECK(job.answer(rank, "loop") == "0");
                CHECK(job.answer(rank, "async") == "0");
            }
        }
}

TEST_CASE("a host that is cut off for good, in the middle of messages, is missed on every host", "[link]") {
    NEEDS_A_NETWORK();
    for (const char* loop : loops)
        for (const int cut : {0, 2}) {
            if (small() && (cut == 0) != (loop == loops[0])) continue;
            INFO(loop << ", host " << cut << " is cut off");
            // A host that is not given a processor is missed as well.
            CHECK(with_growing_limit(1000, [&](int64_t heartbeat_ms) {
                      const std::string limit = "WEFT_HEARTBEAT_MS=" + std::to_string(heartbeat_ms);
                      Network network(3);
                      NetworkJob job(network, 2);
                      if (!start_until_failure(job, loop, {limit, quiet})) return job.everything();
                      network.swallow(cut);
                      bool as_expected = all_failed(job, {" s: it is down, or the network to it is cut"});
                      for (int rank = 0; rank < job.ranks(); ++rank) {
                          // The remaining ranks name the missing host; a rank that is alone names some other host.
                          const std::string told = job.answer(rank, "loop");
                          if (job.host_of(rank) != cut && cut != 0)
                              as_expected &= contains(told, "host node" + std::to_string(cut));
                          as_expected &= contains(told, "10.99.0.") &&
                                         contains(told, "WEFT_HEARTBEAT_MS is " + std::to_string(heartbeat_ms));
                      }
                      network.spit_out(cut);
                      as_expected &= new_communicator_works(job);
                      return as_expected ? "" : job.everything();
                  }) == "");
        }
}

TEST_CASE("connections that are reset are errors that name both ends, and new ones work", "[link]") {
    NEEDS_A_NETWORK();
    for (const char* loop : loops) {
        INFO(loop);
        Network network(3);
        NetworkJob job(network, 1);
        REQUIRE(start_until_failure(job, loop, {quiet}));
        network.reset(1, 0);
        const bool failed = all_failed(job, {"10.99.0.1", "10.99.0.2"}), works = new_communicator_works(job);
        INFO(job.everything());
        CHECK(failed);
        CHECK(works);
    }
}

TEST_CASE("tiny packets and tiny buffers only make it slower", "[link]") {
    NEEDS_A_NETWORK();
    Network network(3);
    for (int host = 0; host < 3; ++host) {
        network.on(host, {"ip", "link", "set", "eth0", "mtu", host == 1 ? "576" : "600"});
        network.on(host,
                   {"sysctl", "-q", "-w", "net.ipv4.tcp_wmem=4096 4096 4096", "net.ipv4.tcp_rmem=4096 4096 4096"});
    }
    for (const char* bytes :
         {"WEFT_SOCKET_BUFFER_BYTES=0", "WEFT_SOCKET_BUFFER_BYTES=1", "WEFT_SOCKET_BUFFER_BYTES=3000"})
        for (const char* algo : {"", "ring"}) {
            INFO(bytes << " " << algo);
            NetworkJob job(network, 1);
            // Buffers of a packet or two: each message may wait for a timer of TCP's, 0.2 s and more, to look at the
            // window.
            const char* const largest = std::string(bytes).ends_with("=1") ? "reduce=10001" : "reduce=100001";
            for (int rank = 0; rank < 3; ++rank)
                job.start(rank, {"init", "reduce=1", "reduce=100", "reduce=5000", largest, "async", "destroy"},
                          {bytes, std::string("WEFT_ALGO=") + algo, quiet});
            job.finish();
            for (int rank = 0; rank < 3; ++rank) {
                CHECK(job.answer(rank, "reduce") == "0");
                CHECK(job.answer(rank, "async") == "0");
            }
        }
}

TEST_CASE("large packets that vanish between hosts are a late rank, with a hint at the MTU", "[link]") {
    NEEDS_A_NETWORK();
    // The kernel must have sent them again.
    CHECK(with_growing_limit(3000, [](int64_t timeout_ms) {
              Network network(2);
              network.lose_large_packets();
              NetworkJob job(network, 1);
              for (int rank = 0; rank < 2; ++rank)
                  job.start(rank, {"init", "reduce=1", "reduce=100000", "async", "destroy"},
                            {"WEFT_TIMEOUT_MS=" + std::to_string(timeout_ms), "WEFT_HEARTBEAT_MS=60000", quiet});
              job.finish();
              bool as_expected = true;
              for (int rank = 0; rank < 2; ++rank) {
                  const std::string told = job.answer(rank, "reduce");
                  CHECK(told.rfind("8 ", 0) == 0);
                  CHECK((contains(told, "rank 0 (pid") || contains(told, "rank 1 (pid")));
                  as_expected &= contains(told, "MTU");
              }
              return as_expected ? "" : job.everything();
          }) == "");
}

TEST_CASE("large packets that vanish during rendezvous are reported where the answer is missing", "[link]") {
    NEEDS_A_NETWORK();
    Network network(2);
    network.lose_large_packets();
    NetworkJob job(network, 2);  // more than two ranks tell each other of their machines
    for (int rank = 0; rank < 4; ++rank)
        job.start(rank, {"init"}, {"WEFT_INIT_TIMEOUT_MS=4000", "WEFT_HEARTBEAT_MS=60000", quiet});
    job.finish();
    INFO(job.everything());
    // The root has all check-ins, which are small; the rank table, which is large, does not come to the other host.
    for (int rank = 2; rank < 4; ++rank) {
        const std::string told = job.answer(rank, "init");
        CHECK(told.rfind("8 ", 0) == 0);
        CHECK(contains(told, "rank"));
        CHECK(contains(told, "MTU"));
    }
}
