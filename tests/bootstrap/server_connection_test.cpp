// server_connection_test.cpp: servers that answer in pieces, hang, end, are missing, or have no name yet.
#include "src/launchers/server_connection.hpp"

#include "tests/bootstrap/fake_server.hpp"
#include "tests/bootstrap/ranks.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// A slow machine may reach the deadline here.
Result<std::optional<ServerConnection>> connect_within(const TcpServer& server, int64_t limit_ms) {
    auto connection = ServerConnection::connect("the server", "127.0.0.1", server.port(), Deadline::in_ms(limit_ms));
    if (connection) REQUIRE(*connection);
    return connection;
}
ServerConnection connected(const TcpServer& server) {
    auto connection = connect_within(server, patient_ms);
    REQUIRE(connection);
    REQUIRE(*connection);
    return std::move(**connection);
}

}  // namespace

TEST_CASE("lines and counts of bytes are whole, however they arrive", "[connection]") {
    const TcpServer server([](const Line& line) {
        for (const char letter : std::string("one\r\ntwo\n\nABCDEFthree\n")) line.send(std::string(1, letter));
        line.hang();
    });
    ServerConnection connection = connected(server);
    CHECK(*connection.receive_line(10, "one") == "one");
    CHECK(*connection.receive_line(10, "two") == "two");
    CHECK(*connection.receive_line(10, "nothing") == "");
    CHECK(*connection.receive(4, "bytes") == "ABCD");
    CHECK(*connection.receive(0, "no bytes") == "");
    CHECK(*connection.receive(2, "bytes") == "EF");
    CHECK(*connection.receive_line(10, "three") == "three");
}

TEST_CASE("a message arrives whole, also when it fills every buffer", "[connection]") {
    const std::string large(16 << 20, 'x');
    const TcpServer server([&](const Line& line) { line.send(line.bytes(large.size()) == large ? "yes\n" : "no\n"); });
    ServerConnection connection = connected(server);
    REQUIRE(connection.send(large));
    CHECK(*connection.receive_line(10, "the answer") == "yes");
}

TEST_CASE("a server that hangs is an error at the deadline that names the missing answer", "[connection]") {
    const TcpServer server([](const Line& line) { line.hang(); });
    CHECK(with_growing_limit(50, [&](int64_t limit_ms) -> std::string {
              auto connection = connect_within(server, limit_ms);
              if (!connection) return connection.status().sentence();
              const auto line = (*connection)->receive_line(10, "a word of its own");
              CHECK_ERROR(line, "launcher.timeout");
              for (const std::string& part : {"the server at 127.0.0.1:" + std::to_string(server.port()),
                                              std::to_string(limit_ms) + " ms for a word of its own"})
                  CHECK(contains(line.status().sentence(), part));
              return "";
          }) == "");
}

TEST_CASE("a server that reads nothing is an error at the deadline", "[connection]") {
    std::mutex over;
    std::unique_lock lock(over);
    const TcpServer server([&](const Line&) { std::lock_guard until(over); });
    CHECK(with_growing_limit(200, [&](int64_t limit_ms) -> std::string {
              auto connection = connect_within(server, limit_ms);
              if (!connection) return connection.status().sentence();
              const Status status = (*connection)->send(std::string(64 << 20, 'x'));
              CHECK_ERROR(status, "launcher.timeout");
              CHECK(contains(status.sentence(), std::to_string(limit_ms) + " ms for room to send a request"));
              return "";
          }) == "");
    lock.unlock();
}

TEST_CASE("a server that dies is reported with the missing answer", "[connection]") {
    const TcpServer server([](const Line& line) { line.send("half a li"); });
    ServerConnection connection = connected(server);
    const auto line = connection.receive_line(100, "a line");
    REQUIRE(!line);
    CHECK_ERROR(line, "launcher.lost");
    CHECK(contains(line.status().sentence(), "instead of a line"));
}

TEST_CASE("a line without an end is not read for ever", "[connection]") {
    const TcpServer server([](const Line& line) {
        while (line.send(std::string(1000, '\x01'))) continue;
    });
    ServerConnection connection = connected(server);
    const auto line = connection.receive_line(1000, "a line");
    REQUIRE(!line);
    CHECK_ERROR(line, "launcher.lost");
    CHECK(contains(line.status().sentence(), "`" + std::string(60, '.') + "...`"));
}

TEST_CASE("without a listener there is no connection, and no error", "[connection]") {
    const DesertedPort port;
    const auto connection =
        ServerConnection::connect("nobody", "localhost", port.number(), Deadline::in_ms(patient_ms));
    REQUIRE(connection);
    CHECK(!*connection);
}

TEST_CASE("a name that never gets an address is looked up until the deadline", "[connection]") {
    const auto connection = ServerConnection::connect("the server", "no-such-host.invalid", 1, Deadline::in_ms(300));
    REQUIRE(!connection);
    CHECK_ERROR(connection, "launcher.name-lookup");
    for (const char* part : {"no-such-host.invalid", " 300 ms"}) CHECK(contains(connection.status().sentence(), part));
}

TEST_CASE("the answer of a server is shown in one printable line", "[connection]") {
    CHECK(shown("plain text") == "plain text");
    CHECK(shown(std::string("a\0b\n\x1b[31m", 8)) == "a.b..[31");
    CHECK(shown("12345", 3) == "123...");
    CHECK(shown("") == "");
}
