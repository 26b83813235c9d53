// call_engine.hpp: the interface of the engines, one for each kind of call.
// ActiveCalls begins a call in its engine, advances it until it is done, and ends it. No engine blocks: while a call is
// blocked, ActiveCalls waits for all that it names, together with the messages beside it.
// An engine only reports a failure. The communicator decides what the failure means for the other ranks.
#pragma once
#include <concepts>
#include <vector>

#include "src/base/wakeups.hpp"
#include "src/comm/rank_context.hpp"

namespace weft::internal {

// How begin() ended. If it did not begin the call, take_failure() gives the reason.
enum class Begun : uint8_t {
    yes,
    refused,  // nothing has happened and no other rank waits for this one: the communicator goes on
    failed,   // other ranks wait for this one, or its GPU is lost: the communicator dies
};

// The ranks and the ways that a blocked call waits for.
struct Blocked {
    const RankSet* missing;
    bool sockets = false;     // some of the data comes by sockets
    bool connecting = false;  // it waits for connection info, which does not wake a rank that sleeps in poll()
};

template <class Engine>
concept CallEngine = requires(Engine engine, const Engine& fixed, Wakeups& wakeups) {
    { engine.advance() } -> std::same_as<Progress>;  // done, moved, blocked or failed
    { fixed.blocked() } -> std::same_as<Blocked>;
    fixed.add_wakeups(wakeups);
    // After a wait without progress: fails if the watchdog finds that the call cannot complete.
    { engine.look() } -> std::same_as<Status>;
    // The cause of a broken connection, if this rank can see it now.
    { engine.cause() } -> std::same_as<Status>;
    { engine.take_failure() } -> std::same_as<Status>;
    // After a failure, when the communicator is dead.
    engine.abandon();
};

}  // namespace weft::internal
