// progress.hpp: how far an engine that never blocks has come, and why it does not go on. Values.
#pragma once
#include <cstdint>

#include "src/base/rank_set.hpp"
#include "src/base/result.hpp"

namespace weft::internal {

enum class Progress : uint8_t {
    moved,    // something happened; call again
    blocked,  // waits for `missing`
    done,
    mismatch,  // `suspect` called something else
    failed,    // `failure`
};

// The failure of a run that accesses a peer's memory when the operation is aborted.
inline Status abandoned_operation() { return {error::rank_failed, "another rank ended the operation with an error"}; }

// The reasons of a run that is blocked, mismatched or failed.
struct RunReport {
    RankSet missing;
    int suspect = -1;
    uint64_t suspect_operation = 0;  // the operation of the suspect's message; 0: it was no message
    Status failure;

    void clear() {
        missing.clear();
        suspect = -1;
        suspect_operation = 0;
    }
    Progress suspects(int rank, uint64_t operation = 0) {
        suspect = rank;
        suspect_operation = operation;
        return Progress::mismatch;
    }
    Progress fails(Status status) {
        failure = std::move(status);
        return Progress::failed;
    }
    Progress abandons() { return fails(abandoned_operation()); }
};

}  // namespace weft::internal
