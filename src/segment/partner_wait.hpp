// partner_wait.hpp: the peer that a rank waits for outside of collectives, for reports of ranks that wait for this one.
#pragma once
#include <cstdint>

namespace weft::internal {

struct PartnerWait {
    enum WaitReason : uint32_t {
        message,
        taking,
        message_of_both,
        taking_of_both,
        signal,
        one_sided
    };  // _of_both: weftSendRecv
    WaitReason kind;
    int32_t peer;

    uint64_t word() const { return uint64_t(kind) << 32 | uint32_t(peer); }
    static PartnerWait of(uint64_t word) { return {WaitReason(word >> 32), int32_t(uint32_t(word))}; }
};

}  // namespace weft::internal
