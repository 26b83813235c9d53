// pmi_test.cpp: an id through PMI 1 and 2, servers that do not answer, and an MPI that has the socket. `tools/test
// --launchers` runs the servers of MPICH and Intel MPI.
#include "src/launchers/pmi.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>

#include "src/launchers/mpi_library.hpp"
#include "tests/bootstrap/fake_environment.hpp"
#include "tests/bootstrap/fake_pmi.hpp"
#include "tests/bootstrap/ranks.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// The error that rank 0 of 2 gets from a server with this handler.
Status failure_of(const Handler& handler, int64_t deadline_ms = patient_ms) {
    Handlers handlers(handler);
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const Fd client(ends[0]);
    handlers.take(Fd(ends[1]));
    auto result = exchange_by_pmi(client.number(), "", exchange_of(0, 2, deadline_ms));
    REQUIRE(!result);
    INFO(result.status().sentence());
    CHECK(contains(result.status().sentence(),
                   "the launcher's PMI server (PMI_FD " + std::to_string(client.number()) + ")"));
    return result.take_status();
}

// Answers in turn, one for each line, then closes when it is asked more, be it a line or a frame.
Handler answers(std::vector<std::string> lines) {
    return [lines](const Line& line) {
        for (const std::string& answer : lines) {
            if (!line.line()) return;
            line.send(answer);
        }
        line.bytes(1);
    };
}

// tests/bootstrap/fake_mpi.cpp, as a program's MPI would be there.
struct FakeMpi {
    explicit FakeMpi(bool initialized, bool finalized) : library(dlopen(FAKE_MPI, RTLD_NOW | RTLD_LOCAL)) {
        REQUIRE(library);
        const auto set = reinterpret_cast<void (*)(int, int)>(dlsym(library, "fake_mpi_set"));
        set(initialized, finalized);
    }
    ~FakeMpi() { dlclose(library); }
    void* library;
};

}  // namespace

TEST_CASE("PMI hands rank 0's id to all ranks, in either version", "[pmi]") {
    for (const auto& versions : {std::vector<int>{1}, std::vector<int>{2}, std::vector<int>{1, 2}}) {
        for (const int ranks : {1, 2, 7}) {
            FakePmi server(ranks, versions);
            check_all_have_it(share_on_threads(ranks, [&](const IdExchange& exchange) {
                return exchange_by_pmi(server.descriptor(exchange.rank), "12.0", exchange);
            }));
            // Only rank 0 puts, and no rank finalizes PMI, because MPI may still use it.
            int puts = 0;
            for (const std::string& request : server.requests()) {
                puts += contains(request, "cmd=put ") || contains(request, "cmd=kvs-put;");
                CHECK(!contains(request, "finalize"));
            }
            CHECK(puts == 1);
        }
    }
}

TEST_CASE("a rank whose peers never come fails at the deadline", "[pmi]") {
    for (const int version : {1, 2}) {
        check_waits_for(version == 1 ? "`barrier_out`" : "`kvs-fence-response`", [&](int64_t limit_ms) {
            FakePmi server(2, {version});
            return exchange_by_pmi(server.descriptor(1), "", exchange_of(1, 2, limit_ms));
        });
    }
}

TEST_CASE("a server that takes only short values is an error", "[pmi]") {
    FakePmi server(1, {1}, 256);
    const auto result = exchange_by_pmi(server.descriptor(0), "", exchange_of(0, 1));
    REQUIRE(!result);
    CHECK(contains(result.status().sentence(), "takes values of `256` characters at most; 257 are needed"));
}

TEST_CASE("PMI servers that hang, die, refuse or talk nonsense are errors that name the server", "[pmi]") {
    const std::string init = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    const std::string maxes = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
                      name = "cmd=my_kvsname kvsname=k\n";
    CHECK(failure_of([](const Line& line) { line.hang(); }, 50).code() == weftTimeout);
    CHECK(failure_of([](const Line&) {}).code() == weftRemoteError);
    CHECK(contains(failure_of(answers({"220 mail.example ESMTP\n"})).sentence(),
                   "sent `220 mail.example ESMTP` instead of `response_to_init`"));
    CHECK(contains(failure_of(answers({"cmd=response_to_init pmi_version=3 rc=-1\n",
                                       "cmd=response_to_init pmi_version=3 rc=-1\n"}))
                       .sentence(),
                   "instead of `response_to_init` of PMI 1 or 2"));
    CHECK(contains(failure_of(answers({init})).sentence(), "instead of `maxes`"));
    CHECK(contains(failure_of(answers({init, "cmd=maxes vallen_max=many\n"})).sentence(), "takes values of `many`"));
    CHECK(contains(failure_of(answers({init, maxes, "cmd=barrier_out\n"})).sentence(),
                   "instead of `my_kvsname` without an error"));
    CHECK(contains(failure_of(answers({init, maxes, name, "cmd=put_result rc=-1 msg=no_room\n"})).sentence(),
                   "sent `cmd=put_result rc=-1 msg=no_room` instead of `put_result` without an error"));
    CHECK(contains(failure_of(answers({init, maxes, name, "cmd=put_result rc=0\n", "cmd=barrier_out\n",
                                       "cmd=get_result rc=-1 msg=key_not_found\n"}))
                       .sentence(),
                   "instead of `get_result` without an error"));
    CHECK(failure_of(answers({init + "cmd=maxes vallen_"})).code() == weftRemoteError);
    CHECK(failure_of([](const Line& line) {
              line.send(std::string(100'000, 'x'));
              line.hang();
          }).code() == weftRemoteError);
    // Version 2: frames of a size that cannot be, and one that breaks off.
    const std::string refusal = "cmd=response_to_init pmi_version=2 rc=-1\n",
                      init2 = "cmd=response_to_init pmi_version=2 rc=0\n";
    for (const char* frame : {"abcdef", "-5    ", "0     ", "999999", "      ", "20    cmd=full"})
        CHECK(contains(failure_of(answers({refusal, init2 + frame})).sentence(), "`fullinit-response`"));
}

TEST_CASE("a PMI_FD that is closed, or something else by now, carries nothing", "[pmi]") {
    const auto closed = exchange_by_pmi(987'654, "", exchange_of(0, 2));
    REQUIRE(closed);
    CHECK(!closed->text);
    CHECK(closed->reason == "PMI_FD 987654 is closed in this process, or no socket");
    const Fd file(memfd_create("file", MFD_CLOEXEC));
    const auto other = exchange_by_pmi(file.number(), "", exchange_of(0, 2));
    REQUIRE(other);
    CHECK(!other->text);
}

TEST_CASE("an MPI that was initialised keeps its socket to itself", "[pmi]") {
    CHECK(mpi_state() == MpiState::absent);
    for (const bool finalized : {false, true}) {
        FakeMpi mpi(true, finalized);
        CHECK(mpi_state() == (finalized ? MpiState::finalized : MpiState::initialized));
        FakePmi server(1, {1});
        const auto result = exchange_by_pmi(server.descriptor(0), "", exchange_of(0, 1));
        REQUIRE(result);
        CHECK(!result->text);
        CHECK(result->reason == "MPI was initialised before and speaks to the launcher alone");
        CHECK(server.requests().empty());
    }
    FakeMpi mpi(false, false);
    CHECK(mpi_state() == MpiState::loaded);
    FakePmi server(1, {1});
    CHECK(exchange_by_pmi(server.descriptor(0), "", exchange_of(0, 1))->text == hex_text);
}

TEST_CASE("a process says goodbye to PMI when it ends, unless MPI took the socket over", "[pmi]") {
    for (const std::string mode : {"plain", "mpi", "fork"}) {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        const Fd server(ends[0]);
        Fd client(ends[1]);
        REQUIRE(fcntl(server.number(), F_SETFD, FD_CLOEXEC) == 0);
        Subprocess process({PMI_CLIENT, std::to_string(client.number()), mode, FAKE_MPI});
        client.reset();
        const Line line(server.number());
        std::vector<std::string> requests;
        while (const auto request = line.line()) {
            requests.push_back(*request);
            const std::pair<const char*, const char*> connection[] = {
                {"cmd=init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
                {"cmd=get_maxes", "cmd=maxes vallen_max=1024\n"},
                {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=k\n"},
                {"cmd=put", "cmd=put_result rc=0\n"},
                {"cmd=barrier_in", "cmd=barrier_out\n"},
                {"cmd=finalize", "cmd=finalize_ack\n"}};
            for (const auto& [asked, answer] : connection)
                if (request->rfind(asked, 0) == 0) line.send(answer);
            if (request->rfind("cmd=get kvsname", 0) == 0) line.send("cmd=get_result value=" + hex_text + "\n");
        }
        CHECK(process.wait() == 0);
        INFO(mode << ": " << process.error());
        CHECK(std::count(requests.begin(), requests.end(), "cmd=finalize") == (mode == "mpi" ? 0 : 1));
        REQUIRE(!requests.empty());
        CHECK((requests.back() == "cmd=finalize") == (mode != "mpi"));
    }
}

TEST_CASE("a job of PMI makes several communicators, and asks the launcher once", "[pmi]") {
    for (const bool several_hosts : {false, true}) {
        INFO((several_hosts ? "several hosts" : "one host"));
        constexpr int ranks = 2;
        FakePmi server(ranks, {1});
        std::vector<std::unique_ptr<Subprocess>> processes;
        for (int rank = 0; rank < ranks; ++rank) {
            const Fd inherited(dup(server.descriptor(rank)));  // the server's own is closed on exec
            const FakeEnvironment nothing_else{Variables{}};
            std::vector<std::string> variables{"PMI_RANK=" + std::to_string(rank), "PMI_SIZE=" + std::to_string(ranks),
                                               "PMI_FD=" + std::to_string(inherited.number()), "WEFT_DEBUG=NONE",
                                               "WEFT_INIT_TIMEOUT_MS=" + std::to_string(patient_ms)};
            if (several_hosts) variables.push_back("WEFT_HOSTID=node" + std::to_string(rank));
            processes.push_back(
                std::make_unique<Subprocess>(std::vector<std::string>{PMI_CLIENT, "communicators"}, variables));
        }
        for (auto& process : processes) {
            CHECK(process->wait() == 0);
            INFO(process->error());
            CHECK(process->error().empty());
        }
        const std::vector<std::string> requests = server.requests();
        for (const auto& [asked, times] :
             {std::pair("cmd=init", ranks), {"cmd=put", 1}, {"cmd=barrier_in", ranks}, {"cmd=finalize", ranks}})
            CHECK(std::count_if(requests.begin(), requests.end(), [word = asked](const std::string& request) {
                      return request.rfind(word, 0) == 0;
                  }) == times);
    }
}

TEST_CASE("a PMI server is known by its pid and start, without a word to it", "[pmi]") {
    FakePmi server(2, {1});
    const std::string identity = pmi_server_identity(server.descriptor(0));
    CHECK(identity == pmi_server_identity(server.descriptor(1)));
    CHECK(identity.rfind(std::to_string(getpid()) + " ", 0) == 0);
    CHECK(server.requests().empty());
    CHECK(pmi_server_identity(-1) == "");
    const TcpServer tcp([](const Line& line) { line.hang(); });
    CHECK(pmi_server_identity(987'654) == "");
}
