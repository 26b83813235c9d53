// dialogue_test.cpp: servers that answer in pieces, hang, die, are not there, or have no name yet.
#include "src/launchers/dialogue.hpp"

#include "tests/bootstrap/fake_server.hpp"
#include "tests/bootstrap/ranks.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// Who is slow may meet the deadline here.
Result<std::optional<Dialogue>> connect_within(const TcpServer& server, int64_t limit_ms) {
    auto dialogue = Dialogue::connect("the server", "127.0.0.1", server.port(), Deadline::in_ms(limit_ms));
    if (dialogue) REQUIRE(*dialogue);
    return dialogue;
}
Dialogue connected(const TcpServer& server) {
    auto dialogue = connect_within(server, patient_ms);
    REQUIRE(dialogue);
    REQUIRE(*dialogue);
    return std::move(**dialogue);
}

}  // namespace

TEST_CASE("lines and counts of bytes are whole, however they arrive", "[dialogue]") {
    const TcpServer server([](const Line& line) {
        for (const char letter : std::string("one\r\ntwo\n\nABCDEFthree\n")) line.send(std::string(1, letter));
        line.hang();
    });
    Dialogue dialogue = connected(server);
    CHECK(*dialogue.receive_line(10, "one") == "one");
    CHECK(*dialogue.receive_line(10, "two") == "two");
    CHECK(*dialogue.receive_line(10, "nothing") == "");
    CHECK(*dialogue.receive(4, "bytes") == "ABCD");
    CHECK(*dialogue.receive(0, "no bytes") == "");
    CHECK(*dialogue.receive(2, "bytes") == "EF");
    CHECK(*dialogue.receive_line(10, "three") == "three");
}

TEST_CASE("what is sent arrives whole, also when it fills every buffer", "[dialogue]") {
    const std::string large(16 << 20, 'x');
    const TcpServer server([&](const Line& line) { line.send(line.bytes(large.size()) == large ? "yes\n" : "no\n"); });
    Dialogue dialogue = connected(server);
    REQUIRE(dialogue.send(large));
    CHECK(*dialogue.receive_line(10, "the answer") == "yes");
}

TEST_CASE("a server that hangs meets the deadline, which says what was waited for", "[dialogue]") {
    const TcpServer server([](const Line& line) { line.hang(); });
    CHECK(with_growing_limit(50, [&](int64_t limit_ms) -> std::string {
              auto dialogue = connect_within(server, limit_ms);
              if (!dialogue) return dialogue.status().sentence();
              const auto line = (*dialogue)->receive_line(10, "a word of its own");
              REQUIRE(!line);
              CHECK(line.status().code() == weftTimeout);
              CHECK(line.status().sentence() == "the server at 127.0.0.1:" + std::to_string(server.port()) +
                                                    ": waited " + std::to_string(limit_ms) +
                                                    " ms for a word of its own");
              return "";
          }) == "");
}

TEST_CASE("a server that takes nothing meets the deadline", "[dialogue]") {
    std::mutex over;
    std::unique_lock lock(over);
    const TcpServer server([&](const Line&) { std::lock_guard until(over); });
    CHECK(with_growing_limit(200, [&](int64_t limit_ms) -> std::string {
              auto dialogue = connect_within(server, limit_ms);
              if (!dialogue) return dialogue.status().sentence();
              const Status status = (*dialogue)->send(std::string(64 << 20, 'x'));
              CHECK(status.code() == weftTimeout);
              CHECK(
                  contains(status.sentence(), "waited " + std::to_string(limit_ms) + " ms for room to send a request"));
              return "";
          }) == "");
    lock.unlock();
}

TEST_CASE("a server that dies is told, with what it owed", "[dialogue]") {
    const TcpServer server([](const Line& line) { line.send("half a li"); });
    Dialogue dialogue = connected(server);
    const auto line = dialogue.receive_line(100, "a line");
    REQUIRE(!line);
    CHECK(line.status().code() == weftRemoteError);
    CHECK(contains(line.status().sentence(), "closed the connection instead of a line"));
}

TEST_CASE("a line without an end is not read for ever", "[dialogue]") {
    const TcpServer server([](const Line& line) {
        while (line.send(std::string(1000, '\x01'))) continue;
    });
    Dialogue dialogue = connected(server);
    const auto line = dialogue.receive_line(1000, "a line");
    REQUIRE(!line);
    CHECK(line.status().code() == weftRemoteError);
    CHECK(contains(line.status().sentence(), "sent `" + std::string(60, '.') + "...` instead of a line"));
}

TEST_CASE("where nobody listens there is no dialogue, and no error", "[dialogue]") {
    const DesertedPort port;
    const auto dialogue = Dialogue::connect("nobody", "localhost", port.number(), Deadline::in_ms(patient_ms));
    REQUIRE(dialogue);
    CHECK(!*dialogue);
}

TEST_CASE("a name that never gets an address is asked for until the deadline", "[dialogue]") {
    const auto dialogue = Dialogue::connect("the server", "no-such-host.invalid", 1, Deadline::in_ms(300));
    REQUIRE(!dialogue);
    CHECK((dialogue.status().code() == weftTimeout || dialogue.status().code() == weftSystemError));
    CHECK(contains(dialogue.status().sentence(), "the name no-such-host.invalid had no address within 300 ms: "));
}

TEST_CASE("what a server sent is shown in one printable line", "[dialogue]") {
    CHECK(shown("plain text") == "plain text");
    CHECK(shown(std::string("a\0b\n\x1b[31m", 8)) == "a.b..[31");
    CHECK(shown("12345", 3) == "123...");
    CHECK(shown("") == "");
}
