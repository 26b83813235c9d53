// random_call.hpp: one collective as a program would make it, drawn from a seed alike by all ranks, with this rank's
// buffers, and judged against the exact reference. Clients' interface only.
#pragma once
#include <weft/weft.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/comm/random_calls.hpp"

namespace weft::internal::test {

// The final result of a call that returned weftInProgress on a non-blocking communicator.
weftResult_t settled(weftComm_t comm, weftResult_t code);

class RandomCall {
  public:
    // Number `index` of a sequence, on a communicator of `ranks`.
    RandomCall(const Sequence& sequence, int index, int rank, int ranks);
    ~RandomCall();

    // Calls; with a stream, or in a group, the next two are for when it is done.
    weftResult_t issue(weftComm_t comm, weftStream_t stream, bool in_group = false);
    // The error in this rank's results; empty: none.
    std::string fault() const;
    // Destroys the reduction that the call used, unless it is destroyed already.
    weftResult_t end(weftComm_t comm);
    // Of an all-reduce: ranks have the same bits? Calls, whether or not comm blocks; nothing is wrong, or it is said.
    std::string differing_bits(weftComm_t comm) const;
    // A sentence that says which call it was.
    std::string name() const;

  private:
    struct Drawn;
    class Memory;
    weftResult_t make_reduction(weftRedOp_t* op, weftComm_t comm);

    int rank_, index_;
    uint32_t seed_;
    std::unique_ptr<Drawn> drawn_;
    std::unique_ptr<Memory> first_, second_;
    std::byte *send_ = nullptr, *receive_ = nullptr;
    std::optional<weftRedOp_t> made_;
    bool misled_ = false;  // the user's function, about types
};

}  // namespace weft::internal::test
