#include "call.hpp"

#include <ATen/core/grad_mode.h>

#include "failure.hpp"

namespace weft_torch {

void execute(const std::vector<Call>& calls, Communicator& communicator, std::chrono::milliseconds timeout,
             weftStream_t stream) {
    const at::NoGradGuard no_gradients;
    communicator.set_timeout(timeout);
    weftComm_t comm = communicator.get();
    if (calls.size() == 1) {
        calls[0].begin(comm, stream);
    } else {
        check(weftGroupStart());
        std::exception_ptr refused;
        for (const Call& call : calls) {
            try {
                call.begin(comm, stream);
            } catch (...) {  // the rest of the group is executed, as other ranks expect it
                if (!refused) refused = std::current_exception();
            }
        }
        const weftResult_t ended = weftGroupEnd();
        if (refused) std::rethrow_exception(refused);
        check(ended, comm);
    }
    for (const Call& call : calls)
        if (call.end) call.end(comm);
}

}  // namespace weft_torch
