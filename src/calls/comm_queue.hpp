// comm_queue.hpp: the calls of a batch on one communicator.
// Messages run beside the other calls, which run one after another. The group's CallStatuses record each end.
// Thread-bound: only the thread that executes the batch uses it.
#pragma once
#include "src/calls/coalesced_calls.hpp"
#include "src/comm/call_statuses.hpp"

namespace weft::internal {

struct CommQueue {
    weftComm* handle;
    std::unique_ptr<Entered> entered = {};        // of the thread that executes the calls here
    std::unique_ptr<Turn> turn = {};              // or the turn of a stream
    std::shared_ptr<CallStatuses> statuses = {};  // of the calls' group; null: no group
    CallQueue calls = {};                         // empty if the communicator refuses them
    std::vector<Call> messages = {};              // likewise; until they are begun
    std::vector<size_t> numbers = {};             // of the messages; after their begin, of those in host memory
    bool begun = false;
    bool refused = false;
    bool exchanging = false;
    // Calls on device memory that have begun, alone or coalesced.
    // One-sided calls do not count, because ranks make different numbers of them.
    size_t launched = 0;

    void add(QueuedCall queued);
    // Begins the first call.
    Status begin();
    Communicator& communicator() const { return *handle->communicator; }
    bool done() const { return calls.empty() && messages.empty() && !exchanging; }
    // Whether a queue that is done still serves the one-sided calls of other ranks while this thread is inside.
    // A queue on a stream does not, because the next turn may begin.
    bool serves() const {
        return done() && entered && communicator().calls().windows().any() && !communicator().dead() &&
               !communicator().context().segment->aborted();
    }

    // The first call is done.
    Status finish();
    // Replaces the first call by the calls that were coalesced into it.
    void take_apart();
    // The messages have begun. Messages on device memory are done for this class.
    void follow_messages();
    void finish_messages();

    // Numbers of calls that are not done. of_first() includes the calls coalesced into the first call.
    // of_blocked(): those of the call or the messages for which pause() failed.
    std::vector<size_t> of_first() const;
    std::vector<size_t> of_calls() const;
    std::vector<size_t> of_messages() const;
    std::vector<size_t> of_blocked() const;

    // Only this rank refused the first call, with `failure`.
    // Later one-sided calls are skipped, too. Later collectives are not, because the other ranks wait in them.
    void skip(const Status& failure);
    // After a failure. If all ranks refused the call alike, the messages go on.
    void drop(const Status& failure);
    // Marks the calls that are not done as unknown.
    void abandon() noexcept;
};

}  // namespace weft::internal
