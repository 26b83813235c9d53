// comm_queue.hpp: the calls of a batch on one communicator: its messages, which go on beside the others, and those, one after
// the other; and which of them its group is told of when they end. Of the thread that carries out the batch.
#pragma once
#include "src/calls/batch.hpp"

namespace weft::internal {

struct CommQueue {
    weftComm* handle;
    std::unique_ptr<Entered> entered = {};          // of who carries out its calls here
    std::unique_ptr<Turn> turn = {};                // or of a stream
    std::shared_ptr<CallStatuses> statuses = {};    // of the calls' group; null: they are of none
    CallQueue calls = {};                           // none on a communicator that refuses them
    std::vector<Communicator::Call> messages = {};  // likewise; until they are begun
    std::vector<size_t> numbers = {};               // of the messages; from when they are begun of those in host memory
    bool begun = false;
    bool refused = false;
    bool exchanging = false;
    // Calls on device memory that have begun, each by itself or coalesced; not one-sided ones, of which ranks make different
    // numbers.
    size_t launched = 0;

    void add(QueuedCall queued);
    // Begins the first call.
    Status begin();
    Communicator& communicator() const { return *handle->communicator; }
    bool done() const { return calls.empty() && messages.empty() && !exchanging; }
    // Done, but the others' one-sided calls may want something of it, and this thread is there anyway. On a stream
    // others may have their turn.
    bool serves() const {
        return done() && entered && communicator().has_windows() && !communicator().dead() &&
               !communicator().segment()->aborted();
    }

    // The first call is done.
    Status finish();
    // Puts what the first call was coalesced from in its place.
    void take_apart();
    // The messages have begun: those on devices are done here.
    void follow_messages();
    void finish_messages();

    // The numbers of what is not done: the first call or what that is made of, all calls, the messages; and of what
    // pause() found in trouble.
    std::vector<size_t> of_first() const;
    std::vector<size_t> of_calls() const;
    std::vector<size_t> of_messages() const;
    std::vector<size_t> of_blocked() const;

    // The first call was refused here alone, by `failure`. What this rank does to others' memory behind it is left out,
    // too; calls in which all take part are not, for the others are waiting in them.
    void skip(const Status& failure);
    // After a failure. A call that all ranks refused alike leaves messages alone.
    void drop(const Status& failure);
    // Nothing will be known of what is not done.
    void abandon() noexcept;
};

}  // namespace weft::internal
