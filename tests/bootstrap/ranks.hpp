// ranks.hpp: ranks as threads that share rank 0's text, and the result of each.
#pragma once
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "src/rendezvous/id_exchange.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/patience.hpp"

namespace weft::internal::test {

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline const std::string hex_text(256, 'a');  // as long as an id

// Long enough that only a hang reaches it, unless a test wants the deadline.
constexpr int64_t patient_ms = 60'000;

inline IdExchange exchange_of(int rank, int ranks, int64_t deadline_ms = patient_ms) {
    return {rank, ranks, rank == 0 ? hex_text : "", Deadline::in_ms(deadline_ms)};
}

using Share = std::function<Result<ExchangedText>(const IdExchange&)>;

inline std::vector<Result<ExchangedText>> share_on_threads(int ranks, const Share& share) {
    std::vector<std::optional<Result<ExchangedText>>> results(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] { results[size_t(rank)] = share(exchange_of(rank, ranks)); });
    for (std::thread& thread : threads) thread.join();
    std::vector<Result<ExchangedText>> all;
    for (auto& result : results) all.push_back(std::move(*result));
    return all;
}

// Checks that `share` fails at the deadline, and that the sentence names `whom`.
inline void check_waits_for(const std::string& whom,
                            const std::function<Result<ExchangedText>(int64_t limit_ms)>& share) {
    CHECK(with_growing_limit(100, [&](int64_t limit_ms) {
              const auto result = share(limit_ms);
              REQUIRE(!result);
              CHECK_ERROR(result, "launcher.timeout");
              // On a slow machine an earlier step may still be waiting.
              const std::string sentence = result.status().sentence();
              return contains(sentence, std::to_string(limit_ms) + " ms for " + whom) ? "" : sentence;
          }) == "");
}

inline void check_all_have_it(const std::vector<Result<ExchangedText>>& results) {
    for (const Result<ExchangedText>& result : results) {
        INFO(result.status().sentence());
        REQUIRE(result);
        CHECK(result->text == hex_text);
    }
}

}  // namespace weft::internal::test
