// returned_error.hpp: the failure that was last returned to a rank's process, in shared memory. If the process ends
// without another call of the rank, other ranks report this failure as the cause, not the end of the process.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/result.hpp"

namespace weft::internal {

// One writer at a time; any number of readers.
struct alignas(64) ReturnedError {
    static constexpr size_t bytes_max = 8 * 39;
    // One more than the number of calls that the rank had entered when the failure was returned; 0: no failure. A rank
    // that has entered another call since did not end because of the failure.
    std::atomic<uint64_t> calls;  // release, pairs with read()
    std::atomic<uint64_t> words[bytes_max / 8];

    // Of two failures between two calls, the first one stays: the second write() returns false.
    bool write(uint64_t entered, const Failure& failure) {
        if (calls.load(std::memory_order_relaxed) == entered + 1) return false;
        Content content{};
        std::string_view(row_of(failure.id).id).copy(content.id, sizeof content.id - 1);
        content.facts = failure.facts;
        failure.sentence.copy(content.sentence, sizeof content.sentence - 1);
        calls.store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_release);
        for (size_t i = 0; i < bytes_max / 8; ++i) {
            uint64_t word;
            memcpy(&word, reinterpret_cast<const char*>(&content) + 8 * i, sizeof word);
            words[i].store(word, std::memory_order_relaxed);
        }
        calls.store(entered + 1, std::memory_order_release);
        return true;
    }
    // The failure, for a rank that has entered `entered` calls. Empty: no failure, or the rank has called again.
    std::optional<Failure> read(uint64_t entered) const {
        if (calls.load(std::memory_order_acquire) != entered + 1) return {};
        Content content;
        for (size_t i = 0; i < bytes_max / 8; ++i) {
            const uint64_t word = words[i].load(std::memory_order_relaxed);
            memcpy(reinterpret_cast<char*>(&content) + 8 * i, &word, sizeof word);
        }
        std::atomic_thread_fence(std::memory_order_acquire);
        if (calls.load(std::memory_order_relaxed) != entered + 1) return {};
        content.id[sizeof content.id - 1] = content.sentence[sizeof content.sentence - 1] = 0;
        return Failure{error_named(content.id).value_or(error::rank_failed), content.sentence, content.facts};
    }

    static constexpr size_t sentence_bytes = bytes_max - error_id_bytes - sizeof(FailureFacts);

  private:
    struct Content {
        FailureFacts facts;
        char id[error_id_bytes];
        char sentence[sentence_bytes];
    };
    static_assert(sizeof(Content) == bytes_max);
};
static_assert(sizeof(ReturnedError) == 320);

}  // namespace weft::internal
