// error.hpp: tests assert the id of an error and its rank numbers, not its wording.
//     CHECK_ERROR(status, "mismatch.count");           a Status, Result, Failure or weft::Error
//     CHECK_ERROR(status, "rank.died", 3);             rank 3 failed
//     CHECK_ERROR(last_error(comm), "rank.died", 3, 0);  rank 0 waited for it: weftGetLastErrorInfo's fields
#pragma once
#include <optional>
#include <string>

#include "src/base/result.hpp"
#include "tests/catch.hpp"
#include "weft/weft.hpp"

namespace weft::internal::test {

struct SeenError {
    std::string id;
    int rank = -1, peer = -1;
    std::string text;
};
inline SeenError seen(const Failure& failure) {
    return {row_of(failure.id).id, failure.facts.rank, failure.facts.peer, failure.sentence};
}
inline SeenError seen(const Status& status) { return seen(status.failure()); }
template <class T>
SeenError seen(const Result<T>& result) {
    return seen(result.status());
}
inline SeenError seen(const weftErrorInfo_t& info) { return {info.id, info.failedRank, info.peer, ""}; }
inline SeenError seen(const weft::Error& error) {
    return {error.id(), error.failed_rank(), error.peer(), error.what()};
}

struct WantedError {
    std::string id;
    std::optional<int> rank = {}, peer = {};
};

// Of the communicator, or of this thread.
inline weftErrorInfo_t last_error(weftComm_t comm = nullptr) {
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    if (weftGetLastErrorInfo(comm, &info) != weftSuccess) info.id = "(no info)";
    return info;
}

// Of this thread's newest error.
inline std::string newest_id() { return last_error().id; }
// The same, or the whole text, if a call failed. Empty: it did not.
inline std::string id_of(weftResult_t result) { return result == weftSuccess ? "" : newest_id(); }
inline std::string text_of(weftResult_t result) { return result == weftSuccess ? "" : weftGetLastError(nullptr); }

// The id at the end of a text: of weftGetLastError, or of a line of a log. Empty: it has none.
inline std::string id_in(const std::string& text) {
    const size_t begin = text.rfind('[');
    return begin == text.npos || text.back() != ']' ? "" : text.substr(begin + 1, text.size() - begin - 2);
}

// The error in the last line that a command printed. A fault of the command line itself has no id: CLI11 prints it.
struct PrintedError {
    std::string output;
};
inline SeenError seen(const PrintedError& printed) {
    const size_t end = printed.output.find_last_not_of('\n');
    return {id_in(printed.output.substr(0, end == std::string::npos ? 0 : end + 1)), -1, -1, printed.output};
}

}  // namespace weft::internal::test

#define CHECK_ERROR(error, ...) WEFT_CHECK_ERROR(::weft::internal::test::seen(error), __VA_ARGS__)
#define WEFT_CHECK_ERROR(error, ...)                                        \
    do {                                                                    \
        const ::weft::internal::test::SeenError weft_seen = (error);        \
        const ::weft::internal::test::WantedError weft_wanted{__VA_ARGS__}; \
        INFO(weft_seen.text);                                               \
        CHECK(weft_seen.id == weft_wanted.id);                              \
        if (weft_wanted.rank) CHECK(weft_seen.rank == *weft_wanted.rank);   \
        if (weft_wanted.peer) CHECK(weft_seen.peer == *weft_wanted.peer);   \
    } while (0)
// As files of wrong input say it: `[schedule.race] a part of the sentence`.
#define CHECK_EXPECTED(error, expected)                                                                                \
    do {                                                                                                               \
        const std::string weft_expected = (expected);                                                                  \
        const size_t weft_end = weft_expected.find("] ");                                                              \
        REQUIRE((weft_expected[0] == '[' && weft_end != std::string::npos));                                           \
        CHECK_ERROR(error, weft_expected.substr(1, weft_end - 1));                                                     \
        INFO(weft_expected);                                                                                           \
        CHECK(::weft::internal::test::seen(error).text.find(weft_expected.substr(weft_end + 2)) != std::string::npos); \
    } while (0)
