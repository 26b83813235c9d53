// torch_store_test.cpp: the exchange by a TCPStore that works, is missing, hangs, ends or is another program.
// tools/test --launchers runs the real one.
#include "src/launchers/torch_store.hpp"

#include "tests/bootstrap/fake_torch_store.hpp"
#include "tests/bootstrap/ranks.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

Status failure_of(const Handler& handler, int rank, int64_t deadline_ms = patient_ms) {
    const TcpServer server(handler);
    auto result = exchange_by_torch_store("127.0.0.1", server.port(), "job/0", exchange_of(rank, 2, deadline_ms));
    REQUIRE(!result);
    CHECK(contains(result.status().sentence(),
                   "PyTorch's store (MASTER_ADDR, MASTER_PORT) at 127.0.0.1:" + std::to_string(server.port())));
    return result.take_status();
}

}  // namespace

TEST_CASE("a TCPStore passes rank 0's id to all ranks, and keeps no key", "[torch_store]") {
    FakeTorchStore store;
    for (const int ranks : {1, 2, 9}) {
        check_all_have_it(share_on_threads(ranks, [&](const IdExchange& exchange) {
            return exchange_by_torch_store("localhost", store.port(), "job/0", exchange);
        }));
        CHECK(store.keys() == 0);
    }
}

TEST_CASE("without a store server no store carries the id", "[torch_store]") {
    const DesertedPort port;
    const auto result = exchange_by_torch_store("127.0.0.1", port.number(), "job/0", exchange_of(1, 2));
    REQUIRE(result);
    CHECK(!result->text);
    CHECK(contains(result->reason, "PyTorch's store at 127.0.0.1:"));
}

TEST_CASE("a rank whose rank 0 never comes fails at the deadline, and rank 0 names the missing ranks",
          "[torch_store]") {
    FakeTorchStore store;
    check_waits_for("rank 0's unique id: does rank 0 run", [&](int64_t limit_ms) {
        return exchange_by_torch_store("127.0.0.1", store.port(), "job/0", exchange_of(1, 2, limit_ms));
    });
    check_waits_for("rank 1 to ask there", [&](int64_t limit_ms) {
        return exchange_by_torch_store("127.0.0.1", store.port(), "job/1", exchange_of(0, 2, limit_ms));
    });
    // Each host that uses a loopback address reaches a store of its own.
    for (const int rank : {0, 1}) {
        const auto late = exchange_by_torch_store("127.0.0.1", store.port(), "job/2", exchange_of(rank, 3, 100));
        REQUIRE(!late);
        CHECK_ERROR(late, "launcher.timeout");
        CHECK(contains(late.status().sentence(), "MASTER_ADDR is 127.0.0.1"));
    }
}

// Attempts of a job share its key: torchrun's agents each count their own restarts, and the store may outlive them all.
TEST_CASE("an id of an earlier attempt in the store is not used", "[torch_store]") {
    FakeTorchStore store;
    const auto share = [&](const IdExchange& exchange) {
        return exchange_by_torch_store("127.0.0.1", store.port(), "job", exchange);
    };
    const std::string former(256, 'f');
    constexpr int64_t short_ms = 300;
    // Rank 1 has asked and died.
    CHECK(!share(exchange_of(1, 3, short_ms)));
    // Rank 0 has answered rank 1, rank 2 never came, and rank 0 died.
    std::thread rank_1([&] { (void)share(exchange_of(1, 3)); });
    CHECK(!share({0, 3, former, Deadline::in_ms(patient_ms / 60)}));
    rank_1.join();
    CHECK(store.keys() > 0);
    // Whichever comes first: a rank that asks before rank 0 is there, and rank 0 before the ranks.
    for (const bool rank_0_first : {false, true}) {
        std::thread leftover([&] { (void)share(exchange_of(2, 3, short_ms)); });
        leftover.join();
        std::vector<std::optional<Result<ExchangedText>>> results(3);
        std::vector<std::thread> threads;
        const auto begin = [&](int rank) {
            threads.emplace_back([&, rank] { results[size_t(rank)] = share(exchange_of(rank, 3)); });
        };
        if (rank_0_first) begin(0);
        for (const int rank : {1, 2}) begin(rank);
        if (!rank_0_first) begin(0);
        for (std::thread& thread : threads) thread.join();
        for (auto& result : results) {
            INFO((*result).status().sentence());
            REQUIRE(*result);
            CHECK((*result)->text == hex_text);
        }
    }
}

TEST_CASE("a store that dies, hangs or is another program is an error that names it", "[torch_store]") {
    CHECK_ERROR(failure_of([](const Line&) {}, 1), "launcher.lost");
    CHECK_ERROR(failure_of([](const Line&) {}, 0), "launcher.lost");
    CHECK_ERROR(failure_of([](const Line& line) { line.bytes(30); }, 0), "launcher.lost");
    CHECK_ERROR(failure_of([](const Line& line) { line.hang(); }, 0, 100), "launcher.timeout");
    // A web server that refuses the request.
    for (const int rank : {0, 1}) {
        const Status web = failure_of(
            [](const Line& line) { line.bytes(5), line.send("HTTP/1.1 400 Bad Request\r\n"), line.hang(); }, rank);
        CHECK_ERROR(web, "launcher.lost");
        CHECK(contains(web.sentence(), "`H`"));
    }
    // A value of an impossible size, and two that are cut off.
    const auto after_wait = [](const std::string& answer) {
        return [answer](const Line& line) {
            line.bytes(5);
            line.bytes(1 + 8), read_text(line);
            line.send(std::string(1, '\1'));
            line.bytes(1), read_text(line), read_text(line);
            line.bytes(1 + 8), read_text(line);
            line.send(std::string(1, '\0'));
            line.bytes(1), read_text(line);
            line.send(answer);
        };
    };
    for (const std::string& answer : {raw(uint64_t(1) << 60), raw(uint64_t(256)) + "abc", raw(uint32_t(256))})
        CHECK_ERROR(failure_of(after_wait(answer), 1), "launcher.lost");
}
