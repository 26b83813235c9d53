// requests.hpp: the requests that carry messages and credits. Pure functions.
#pragma once
#include "transports/verbs/lanes/lane.hpp"

namespace weft::internal::verbs {

// A part of a message: a write from its slot, or from the caller's memory, into the receiver's slot. If the receiver's
// data is apart from its headers, or the part is larger than `ahead_bytes`, the data has a write of its own. It goes ahead
// of the write with immediate data, on the same lane.
struct PartRequest {
    static constexpr uint64_t most = 2;  // places in a send queue
    abi::SendRequest data{}, last{};     // `data`: only if apart
    abi::Sge pieces[3];                  // the requests point to them, so it must not move
    bool apart = false;

    PartRequest() = default;
    PartRequest(const PartRequest&) = delete;
    void fill(uint32_t link, size_t place, const Lane& lane, const Outgoing& outgoing, uint64_t number, int part,
              size_t ahead_bytes);
    abi::SendRequest* first() { return apart ? &data : &last; }
};

// Posts a write of a whole packet, which the peer does not notice. It completes if the path to the peer's device works.
// An errno value, or 0.
int post_probe(uint32_t link, size_t place, Lane& lane);
abi::SendRequest credits_request(uint32_t link, size_t place, const Lane& lane, const Incoming& incoming, bool signals);

// The immediate data as completions have it.
inline uint32_t imm_of(uint32_t word) { return __builtin_bswap32(word); }

}  // namespace weft::internal::verbs
