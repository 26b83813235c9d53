// prepared.hpp: the struct that a weftPrepared_t points to: the calls of a group, checked once and executed many times.
// Never freed: a destroyed one stays a tombstone, so that its use is an error message.
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
// Ok if it can be used here, otherwise the reason.
Status check_prepared(const weftPrepared* prepared);
void end_prepared(weftPrepared* prepared);
// Executes the calls, or adds them to the open group.
Status start(const weftPrepared& prepared);

}  // namespace weft::internal
