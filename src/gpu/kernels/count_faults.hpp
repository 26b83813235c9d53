// count_faults.hpp: finds invalid counts of an all-to-all with counts in device memory. The reader of the counts runs
// it: a kernel, or the host if it works on copies.
#pragma once
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/message_arguments.hpp"

namespace weft::internal::cuda {

struct CountFault {
    int peer;
    bool outgoing;
    CountReport report;
};

// Each pair of ranks is checked separately, in any order, by any number of threads.
class CountFaults {
  public:
    WEFT_DEVICE CountFaults(const MessageCounts& counts, int rank, int ranks)
        : c_(counts), rank_(rank), ranks_(ranks) {}

    WEFT_DEVICE int pairs() const { return ranks_ * ranks_; }
    // Whether the pair with this number has a fault.
    WEFT_DEVICE bool find(int pair, CountFault& fault) const {
        const int one = pair / ranks_, other = pair % ranks_;
        const Part sent = sent_to(one), received = received_from(other);
        if (one == other) {
            if (!sent.inside()) return fault = outside(one, true, sent), true;
            if (!received.inside()) return fault = outside(one, false, received), true;
            if (one == rank_ && sent.count != received.count)
                return fault = {one, true, {CountReport::own, one, sent.count, received.count, 0}}, true;
        }
        // A part outside the buffer is reported by its rank's pair with itself.
        if (!received.inside() || received.count == 0) return false;
        if (one < other) {
            const Part before = received_from(one);
            if (before.inside() && before.count != 0) {
                const bool in_order = before.place <= received.place;
                const Part &first = in_order ? before : received, &second = in_order ? received : before;
                if (second.place - first.place < first.count)
                    return fault = {in_order ? one : other,
                                    false,
                                    {CountReport::overlap, in_order ? other : one, first.count,
                                     second.place - first.place, 0}},
                           true;
            }
        }
        if (!sent.inside() || sent.count == 0) return false;
        const uint64_t from = begin(c_.send, sent), to = begin(c_.receive, received);
        if (from + sent.count * c_.element <= to || to + received.count * c_.element <= from) return false;
        return fault = {one, true, {CountReport::sent, other, 0, 0, 0}}, true;
    }

  private:
    struct Part {
        uint64_t count, place, room;
        WEFT_DEVICE bool inside() const { return count == 0 || (count <= room && place <= room - count); }
    };
    WEFT_DEVICE Part sent_to(int peer) const { return {c_.sent[peer], c_.send_places[peer], c_.send_room}; }
    WEFT_DEVICE Part received_from(int peer) const {
        return {c_.received[peer], c_.receive_places[peer], c_.receive_room};
    }
    static WEFT_DEVICE CountFault outside(int peer, bool outgoing, const Part& part) {
        return {peer, outgoing, {CountReport::outside, peer, part.count, part.place, part.room}};
    }
    WEFT_DEVICE uint64_t begin(const std::byte* buffer, const Part& part) const {
        return reinterpret_cast<uint64_t>(buffer) + part.place * c_.element;
    }

    const MessageCounts& c_;
    int rank_, ranks_;
};

}  // namespace weft::internal::cuda
