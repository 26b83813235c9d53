// http_store_test.cpp: the exchange by Horovod's rendezvous server that works, is missing, or fails.
#include "src/launchers/http_store.hpp"

#include "tests/bootstrap/fake_rendezvous.hpp"
#include "tests/bootstrap/ranks.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

Status failure_of(const std::string& answer, int rank) {
    const TcpServer server([&](const Line& line) {
        // If a socket is closed with unread data, the connection is reset and the answer may be lost.
        for (auto header = line.line(); header && *header != "\r"; header = line.line()) continue;
        line.send(answer);
    });
    auto result = exchange_by_http("127.0.0.1", server.port(), exchange_of(rank, 2));
    REQUIRE(!result);
    CHECK_ERROR(result, "launcher.lost");
    CHECK(contains(result.status().sentence(), "Horovod's rendezvous server"));
    return result.take_status();
}

}  // namespace

TEST_CASE("a rendezvous server passes rank 0's id to all ranks", "[http_store]") {
    FakeRendezvous rendezvous;
    check_all_have_it(share_on_threads(
        5, [&](const IdExchange& exchange) { return exchange_by_http("localhost", rendezvous.port(), exchange); }));
}

TEST_CASE("a rank that is early asks again until rank 0 has come", "[http_store]") {
    FakeRendezvous rendezvous;
    check_all_have_it(share_on_threads(2, [&](const IdExchange& exchange) {
        while (exchange.rank == 0 && rendezvous.requests < 3) std::this_thread::yield();
        return exchange_by_http("127.0.0.1", rendezvous.port(), exchange);
    }));
}

TEST_CASE("without an HTTP server no store carries the id", "[http_store]") {
    const DesertedPort port;
    const auto result = exchange_by_http("127.0.0.1", port.number(), exchange_of(1, 2));
    REQUIRE(result);
    CHECK(!result->text);
    CHECK(contains(result->reason, "Horovod's rendezvous server"));
}

TEST_CASE("a rank fails at the deadline if rank 0 never puts its id", "[http_store]") {
    FakeRendezvous rendezvous;
    check_waits_for("rank 0's unique id: does rank 0 run", [&](int64_t limit_ms) {
        return exchange_by_http("127.0.0.1", rendezvous.port(), exchange_of(1, 2, limit_ms));
    });
}

TEST_CASE("a rendezvous server that hangs is an error at the deadline", "[http_store]") {
    const TcpServer server([](const Line& line) { line.hang(); });
    for (const int rank : {0, 1}) {
        const auto result = exchange_by_http("127.0.0.1", server.port(), exchange_of(rank, 2, 100));
        REQUIRE(!result);
        CHECK_ERROR(result, "launcher.timeout");
    }
}

TEST_CASE("answers that are refusals, cut off or no HTTP are errors that contain them", "[http_store]") {
    for (const int rank : {0, 1}) {
        CHECK(contains(failure_of("HTTP/1.0 500 Sorry\r\n\r\n", rank).sentence(), " 500 "));
        CHECK_ERROR(failure_of("", rank), "launcher.lost");
        CHECK_ERROR(failure_of("HTTP/1.0 200 OK\r\n", rank), "launcher.lost");
        CHECK(contains(failure_of("SSH-2.0-OpenSSH_9.2\r\n", rank).sentence(), "`SSH-2.0-OpenSSH_9.2`"));
        CHECK(contains(failure_of("HTTP/1.1\r\n\r\n", rank).sentence(), "`HTTP/1.1`"));
        CHECK(contains(failure_of("HTTP/1.1 abc\r\n\r\n", rank).sentence(), "`HTTP/1.1 abc`"));
        for (const std::string length : {"Content-Length: -5", "Content-Length:", "Content-Length: 99999999"})
            CHECK(contains(failure_of("HTTP/1.1 200 OK\r\n" + length + "\r\n\r\n", rank).sentence(), length));
        std::string endless = "HTTP/1.1 200 OK\r\n";
        for (int i = 0; i < 200; ++i) endless += "X: y\r\n";
        CHECK(contains(failure_of(endless, rank).sentence(), "`X: y`"));
    }
    CHECK_ERROR(failure_of("HTTP/1.1 200 OK\r\nContent-Length: 256\r\n\r\nabc", 1), "launcher.lost");
    CHECK(contains(failure_of("HTTP/1.1 404 Never\r\n\r\n", 0).sentence(), " 404 "));
}
