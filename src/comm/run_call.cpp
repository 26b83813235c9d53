#include "src/comm/run_call.hpp"

namespace weft::internal {

Status run(Communicator& communicator, std::span<const Call> calls) try {
    const bool messages = calls[0].is_message();
    if (messages && calls.size() == 1 && communicator.usable() && communicator.calls().moved_at_once(calls[0]))
        return ok();
    WEFT_TRY(messages ? communicator.begin_messages(calls) : communicator.begin(calls[0]));
    for (;;) {
        const Progress progress = messages ? communicator.advance_messages() : communicator.advance();
        if (progress == Progress::done) [[likely]]
            return messages ? ok() : communicator.end();
        if (progress == Progress::moved) continue;
        Status failure = progress == Progress::failed ? communicator.take_failure() : communicator.pause(true);
        if (failure) [[likely]]
            continue;
        communicator.await_borrowers();
        return failure;
    }
} catch (...) {
    // For example, memory is exhausted.
    communicator.break_off();
    communicator.await_borrowers();
    throw;
}

}  // namespace weft::internal
