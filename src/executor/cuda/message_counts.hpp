// message_counts.hpp: an all-to-all whose counts are device memory. Before its messages move, one block reads them and
// writes the messages down; counts that do not fit the buffers end it here, and nothing moves.
#pragma once
#include "src/executor/cuda/meeting.hpp"
#include "src/executor/cuda/message_arguments.hpp"

namespace weft::cuda {

class CountReader {
  public:
    WEFT_DEVICE CountReader(const Team& team, const MessageArguments& arguments)
        : team_(team), a_(arguments), c_(arguments.counts) {}

    // The kernel that moves leaves when this one, or one before it, has failed.
    WEFT_DEVICE void run() const {
        if (load_relaxed(&a_.own->failed) != 0) return;
        for (int i = team_.thread; i < a_.queue_count; i += team_.threads) write(a_.queues[i]);
    }

  private:
    struct Part {
        uint64_t count, place, room;
        WEFT_DEVICE bool inside() const { return count == 0 || (count <= room && place <= room - count); }
    };

    WEFT_DEVICE void write(const MessageQueue& queue) const {
        const Part sent{c_.sent[queue.peer], c_.send_places[queue.peer], c_.send_room};
        const Part received{c_.received[queue.peer], c_.receive_places[queue.peer], c_.receive_room};
        MessageItem item{nullptr, nullptr, 0, c_.mark};
        if (queue.kind != MessageQueue::incoming) {
            if (!sent.inside()) return fail(queue, true, {true, sent.count, sent.place, sent.room});
            item.bytes = sent.count * c_.element;
        }
        if (queue.kind != MessageQueue::outgoing) {
            if (!received.inside()) return fail(queue, false, {true, received.count, received.place, received.room});
            item.bytes = received.count * c_.element;
        }
        if (queue.kind == MessageQueue::own && sent.count != received.count)
            return fail(queue, true, {false, sent.count, received.count, 0});
        // Of what is empty nobody reads the place.
        const uint64_t from = item.bytes == 0 ? 0 : sent.place * c_.element;
        const uint64_t to = item.bytes == 0 ? 0 : received.place * c_.element;
        if (queue.kind == MessageQueue::outgoing) {
            item.data = c_.send + from;
            if (c_.lent[queue.peer] && item.bytes >= c_.lent_least) item.other = c_.lent[queue.peer] + from;
        } else {
            item.data = c_.receive + to;
            if (queue.kind == MessageQueue::own) item.other = c_.send + from;
        }
        a_.table[queue.first] = item;
    }

    // As Meeting::fail().
    WEFT_DEVICE_COLD void fail(const MessageQueue& queue, bool outgoing, const CountReport& why) const {
        if (!claim(&a_.own->failed, uint32_t(Failure::counts) | (a_.launch & 0xffffff) << 8)) return;
        *a_.message_report = {true, outgoing, false, 0, 0, why};
        FailureReport& report = *a_.report;
        report.waiting = Waiting::nothing;
        report.rank = a_.rank;
        report.peer = queue.peer;
        report.fingerprint = c_.mark;
        store_release(reinterpret_cast<uint32_t*>(&report.failure), uint32_t(Failure::counts));
    }

    const Team& team_;
    const MessageArguments& a_;
    const MessageCounts& c_;
};

}  // namespace weft::cuda
