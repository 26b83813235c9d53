#include "src/comm/run_call.hpp"

namespace weft::internal {

namespace {

// After a step that was not the last one.
Status wait(Communicator& communicator, Progress progress) {
    if (progress == Progress::moved) return ok();
    Status failure = progress == Progress::failed ? communicator.take_failure() : communicator.pause(true);
    if (!failure) [[unlikely]]
        communicator.await_borrowers();
    return failure;
}

// For an exception, such as a lack of memory.
void break_off(Communicator& communicator) {
    communicator.break_off();
    communicator.await_borrowers();
}

}  // namespace

Status run(Communicator& communicator, const Call& call) try {
    WEFT_TRY(communicator.begin(call));
    for (;;) {
        const Progress progress = communicator.advance();
        if (progress == Progress::done) [[likely]]
            return communicator.end();
        WEFT_TRY(wait(communicator, progress));
    }
} catch (...) {
    break_off(communicator);
    throw;
}

Status run_messages(Communicator& communicator, std::span<const Call> messages) try {
    if (messages.size() == 1 && communicator.usable() && communicator.calls().moved_at_once(messages[0])) return ok();
    WEFT_TRY(communicator.begin_messages(messages));
    for (;;) {
        const Progress progress = communicator.advance_messages();
        if (progress == Progress::done) [[likely]]
            return ok();
        WEFT_TRY(wait(communicator, progress));
    }
} catch (...) {
    break_off(communicator);
    throw;
}

}  // namespace weft::internal
