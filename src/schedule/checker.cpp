#include "src/schedule/checker.hpp"

#include "src/schedule/proof.hpp"

namespace weft {

Status check(int ranks, std::span<const CheckedOperation> operations, const CheckOptions& options, uint64_t* steps) {
    Proof proof(ranks, operations, options);
    WEFT_TRY(proof.load());
    Status status = proof.run();
    if (steps) *steps = proof.steps();
    return status;
}

}  // namespace weft
