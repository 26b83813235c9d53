// prepared.hpp: what a weftPrepared_t points to: the calls of a group, checked once, to be carried out many times. A
// tombstone when it has ended.
#pragma once
#include <atomic>

#include "src/calls/group.hpp"

struct weftPrepared {
    static constexpr uint64_t living = 0x7466657770726570u, destroyed = 0x7466657770646561u;

    std::atomic<uint64_t> magic{living};
    uint64_t process = 0;
    weft::internal::Group::Kept kept;
};

namespace weft::internal {

weftPrepared* make_prepared(Group::Kept kept);
// Why it cannot be used here; ok if it can.
Status check_prepared(const weftPrepared* prepared);
void end_prepared(weftPrepared* prepared);
// Carries the calls out; within an open group they become part of it.
Status start(const weftPrepared& prepared);

}  // namespace weft::internal
